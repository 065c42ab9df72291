"""The FSDP workload is a real one: two ranks, sharded, timed; and its failure is a loss that is no
number.
"""

from pathlib import Path

from support.aorta_cli import ROOT, aorta
from support.triage_runs import by_name


def test_two_ranks_train_and_a_rate_at_which_they_diverge_fails(tmp_path: Path) -> None:
    recipe = tmp_path / "once.yaml"
    five = (ROOT / "examples/triage/fsdp_diverges.yaml").read_text()
    recipe.write_text(five.replace("trials: 5", "trials: 1"))
    done = aorta("triage", "run", "--recipe", recipe, "--json", "-q", cwd=tmp_path, timeout=900)
    cells = by_name(done.json())
    said = "\n".join(
        f"{file}: {file.read_text()[-2000:]}" for file in sorted(tmp_path.rglob("*stderr*"))
    )
    assert cells["baseline-local"]["failed_count"] == 1, f"{cells}\n{said}"
    assert cells["small-rate"]["passed_count"] == 1, f"{cells}\n{said}"
    assert cells["small-rate"]["steps_counted"] == 20
