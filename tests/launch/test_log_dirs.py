"""Whose logs lie where, and what a disk without room costs: log lines, never the job."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from aorta.launch.records import CycleStart, LogDir
from support.launching import Site, script
from support.waiting import wait_until

WAITS_FOR_GO = """
    print("job", sys.argv[1], flush=True)
    while not os.path.exists("go"):
        time.sleep(0.05)
    print("end of", sys.argv[1], flush=True)
"""


def test_two_jobs_in_one_log_directory_lose_nothing_of_each_other(site: Site) -> None:
    job = script(site.folder, WAITS_FOR_GO)
    first = site.start(str(job), "one")
    wait_until(lambda: "job one" in first.out())
    second = site.start(str(job), "two")
    wait_until(lambda: "job two" in second.out())
    (site.folder / "go").touch()
    ends = [first.wait(), second.wait()]
    assert [end.code for end in ends] == [0, 0], ends
    assert "another job writes to" in ends[1].err
    logs = {
        path.read_text() for path in site.logs.glob("**/rank_0.out") if "current" not in str(path)
    }
    assert logs == {"job one\nend of one\n", "job two\nend of two\n"}
    infos = [json.loads(path.read_text()) for path in site.logs.glob("**/cycle_0/cycle_info.json")]
    assert len({info["job_id"] for info in infos}) == 2
    assert all(info["ended"] for info in infos)


def test_submissions_of_one_name_never_share_a_cycle_id(site: Site) -> None:
    job = script(site.folder, "pass")
    for _ in range(2):
        assert site.run("--rdzv-id", "none", "--standalone", str(job)).code == 0
    ids = [site.cycle(number)["cycle_id"] for number in (0, 1)]
    assert len({cycle.partition(":")[0] for cycle in ids}) == 2


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB, with nothing left on it."""
    place = tmp_path / "full"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], check=True)
    (place / "big").write_bytes(b"x" * (60 << 10))
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_temporary_directory_does_not_end_a_job_that_torchrun_would_run(
    site: Site, full_disk: Path
) -> None:
    job = script(site.folder, "print('x' * (1 << 20), flush=True); print('done', flush=True)")
    end = site.run(str(job), log_dir="", TMPDIR=str(full_disk))
    assert end.code == 0, end.err
    assert end.out.endswith("done\n")
    assert end.err.count("No space left") <= 2, "it is said once"
    assert "the job goes on" in end.err


def test_attribution_hears_last_words_that_no_disk_could_keep(site: Site, full_disk: Path) -> None:
    job = script(site.folder, "print('x' * (1 << 20), flush=True); import surely_not_installed")
    end = site.run("--max-restarts", "3", str(job), log_dir="", TMPDIR=str(full_disk))
    assert end.code == 93, end.err
    assert "import_error" in end.err


def test_a_cycle_that_was_cut_short_has_an_end(site: Site) -> None:
    job = script(site.folder, "print('runs', flush=True); time.sleep(600)")
    agent = site.start(str(job))
    wait_until(lambda: "runs" in agent.out())
    agent.signal(signal.SIGTERM)
    assert agent.wait().code == 143
    info = site.cycle(0)
    assert info["ended"] is not None
    assert info["ending"] == {"exit_code": 143, "reason": "stopped by SIGTERM"}
    (rank,) = info["ranks"]
    assert rank["signal"] == 15
    assert rank["time"] is not None


def test_what_a_rank_put_into_a_session_of_its_own_ends_with_it(site: Site) -> None:
    job = script(
        site.folder,
        """
        import subprocess
        nap = [sys.executable, "-c", "import time; time.sleep(600)"]
        child = subprocess.Popen(nap, start_new_session=True)
        bare = subprocess.Popen(nap, start_new_session=True, env={})
        open("children.part", "w").write(f"{child.pid} {bare.pid}")
        os.rename("children.part", "children")
        time.sleep(600)
        """,
    )
    agent = site.start(str(job))
    wait_until((site.folder / "children").exists)
    agent.signal(signal.SIGTERM)
    assert agent.wait().code == 143
    for pid in (site.folder / "children").read_text().split():
        assert not Path(f"/proc/{pid}").exists(), "nothing that a rank started stays"


def test_logs_of_an_earlier_job_are_not_taken_for_those_of_this_one(tmp_path: Path) -> None:
    """On a disk of its own a node may have a cycle of a number that its leader does not know of."""
    from aorta.launch.output import CycleLogs, Shown

    logs = CycleLogs(LogDir(tmp_path), Shown())
    directory = logs.prepare(CycleStart("job7-2", 0, ("node",)))
    for file in (directory.file(0, "err"), directory.file(0, "error.json")):
        file.write_text("ModuleNotFoundError: of another job")
    logs.reify({0: {"RANK": "0", "ROLE_NAME": "default"}})
    logs.pump.stop()
    assert directory.file(0, "err").read_bytes() == b""
    assert not directory.file(0, "error.json").exists()
