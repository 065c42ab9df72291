"""The peer's own programs, as they are on PyPI, with this service and this launcher."""

import json
import sqlite3
from pathlib import Path

import pytest

from support.attribution_service import running_service
from support.launching import Site, script
from support.services.peer import demand_peer, run_peer_launcher, running_peer_service

pytestmark = pytest.mark.xdist_group("launch")  # whose worker has loaded torch for launchers

IMPORTS_NOTHING_THERE = "import surely_not_installed"
NO_RESTART = 93


def test_the_peers_launcher_ends_a_doomed_job_after_its_first_failure(tmp_path: Path) -> None:
    demand_peer()
    job = script(tmp_path, IMPORTS_NOTHING_THERE)
    with running_service(tmp_path, tmp_path / "state.sqlite", "--no-token") as service:
        code = run_peer_launcher(tmp_path, service.url, job)
    with sqlite3.connect(tmp_path / "state.sqlite") as database:
        ((cycle, answer),) = database.execute("SELECT cycle_id, answer FROM aorta_cycles")
    database.close()
    first = json.loads(answer)
    assert code == NO_RESTART, (tmp_path / "launcher.log").read_text()
    assert (cycle, first["decision"]["action"]) == ("0", "STOP")
    assert first["finding"]["class"] == "import_error"
    assert "rejected" not in (tmp_path / "launcher.log").read_text()


def test_this_launcher_is_told_by_the_peers_service_to_restart(tmp_path: Path) -> None:
    demand_peer()
    job, site = script(tmp_path, IMPORTS_NOTHING_THERE), Site(tmp_path)
    patience = ("--ft-attribution-timeout", "60", "--ft-attribution-decision-timeout", "50")
    try:
        with running_peer_service(tmp_path) as url:
            end = site.run(
                "--ft-attribution-http-url", url, *patience, "--max-restarts", "1", str(job)
            )
    finally:
        site.close()
    assert end.code == 1, end
    first = site.cycle(0)
    assert first["decision"]["action"] == "RESTART", first
    assert first["decided_by"].startswith("http"), first
