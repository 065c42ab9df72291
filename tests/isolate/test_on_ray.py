"""`aorta isolate` on a real Ray: nodes are custom resources, and the command places its own tasks."""

from pathlib import Path

import pytest

from support.aorta_cli import aorta
from support.services.ray_cluster import RayCluster

pytestmark = pytest.mark.xdist_group("ray")

JOB = """
import os, ray
ray.init({address!r}, log_to_driver=False)

@ray.remote(num_cpus=0)
def step():
    if "beta" in ray.get_runtime_context().get_assigned_resources():
        raise RuntimeError("HBM bank 3 is bad")

places = os.environ["AORTA_NODES"].split(",")
ray.get([step.options(resources={{place: 0.1}}).remote() for place in places])
"""


def test_the_node_whose_tasks_fail_is_named_by_its_custom_resource_and_ships_without_its_name(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    (tmp_path / "job.py").write_text(JOB.format(address=ray_cluster.address))
    added = [ray_cluster.add_node(1, resource=name) for name in ("alpha", "beta")]
    try:
        done = aorta(
            *("isolate", "--nodes", "alpha,beta", "--confidence", "0.7", "--json"),
            *("--executor", "ray", "--ray-address", ray_cluster.address),
            *("--", "python", "job.py"),
            cwd=tmp_path,
            env=ray_cluster.environ,
            timeout=400,
        )
    finally:
        for node in added:
            ray_cluster.remove_node(node)
    result = done.json()
    assert result["status"] == "found", result
    assert [one["name"] for one in result["guilty"]] == ["beta"]
    for place in result["placements"]:
        assert (place["outcome"] == "reproduced") == ("beta" in place["nodes"])
    packed = aorta("bundle", result["run_dir"], "--ticket", "T-1", "--json", cwd=tmp_path)
    aorta("bundle", "unpack", packed.json()["path"], "unpacked", cwd=tmp_path)
    (shipped,) = (tmp_path / "unpacked").rglob("result.json")
    assert '"status": "found"' in shipped.read_text()
    assert "alpha" not in shipped.read_text()
    assert "beta" not in shipped.read_text()
