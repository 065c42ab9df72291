"""A restart whose workers need not import again: forks of a process that has imported their
libraries meanwhile.
"""

import json
import signal
from pathlib import Path

import pytest

from aorta.executors.process_tree import descendants
from support.launching import Agent, Site, script
from support.processes import wait_until_gone
from support.waiting import wait_until
from support.warm import slow_environment

JOB = """
early = "slow" in sys.modules
import slow, json, random
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "AORTA_CYCLE")
about = {
    "early": early, "argv": sys.argv[1:], "session": os.getsid(0) == os.getpid(), "parent": os.getppid(),
    "random": random.random(), "env": {name: os.environ[name] for name in names},
    "shown": dict(line.split("=", 1) for line in open("/proc/self/environ").read().split(chr(0)) if line)["RANK"],
    "pid": os.getpid(), "hook": "AORTA_WARM" in os.environ, "path": os.environ.get("PYTHONPATH"),
}
with open(f"seen_{attempt}_{rank}.json.new", "w") as file:
    json.dump(about, file)
os.rename(file.name, f"seen_{attempt}_{rank}.json")
print("hello from", rank, attempt, flush=True)
if attempt:
    time.sleep(600 * ("stays" in sys.argv))
    sys.exit(3 * ("fails" in sys.argv and attempt == 1))
while not os.path.exists("die"):
    time.sleep(0.05)
sys.exit(3 * (rank == 0))
"""
RESTARTS = ("--nproc-per-node", "2", "--max-restarts", "2", "--ft-max-no-progress-cycles", "0")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(slow_environment(tmp_path_factory.mktemp("slow") / "venv"))


def seen(site: Site, attempt: int, rank: int) -> Path:
    return site.folder / f"seen_{attempt}_{rank}.json"


def read(site: Site, attempt: int, rank: int) -> dict[str, object]:
    content: dict[str, object] = json.loads(seen(site, attempt, rank).read_text())
    return content


def fail_once_warm(
    site: Site, python: str, *arguments: str, options: tuple[str, ...] = ()
) -> Agent:
    job = str(script(site.folder, JOB))
    agent = site.start(*RESTARTS, *options, "--no-python", python, job, *arguments)
    wait_until(lambda: "are kept warm for a restart" in agent.err(), "the warm host")
    (site.folder / "die").touch()
    return agent


def test_restarted_workers_have_their_libraries_and_are_otherwise_as_ever(
    site: Site, python: str
) -> None:
    ended = fail_once_warm(site, python, "one", "two words").wait()
    assert ended.code == 0, ended
    assert "2 workers started warm, without" in ended.err
    for rank in range(2):
        cold, warm = (read(site, attempt, rank) for attempt in (0, 1))
        assert (cold["early"], warm["early"]) == (False, True)
        same = ("argv", "session", "parent", "shown", "hook", "path")
        assert [warm[name] for name in same] == [cold[name] for name in same]
        told = warm["env"]
        assert isinstance(told, dict)
        assert (told["RANK"], told["WORLD_SIZE"], told["AORTA_CYCLE"]) == (str(rank), "2", "1")
        assert told["TORCHELASTIC_RESTART_COUNT"] == "1"
        logs = list(site.logs.rglob(f"rank_{rank}.out"))
        assert sorted(log.read_text() for log in logs) == [
            f"hello from {rank} {attempt}\n" for attempt in (0, 1)
        ]
    assert len({str(read(site, 1, rank)["random"]) for rank in range(2)}) == 2


def test_hangs_are_watched_for_in_warm_workers_too(site: Site, python: str) -> None:
    options = ("--ft-hang-timeout", "300")
    ended = fail_once_warm(site, python, options=options).wait()
    assert ended.code == 0, ended
    assert read(site, 1, 0)["early"] is True
    assert len(list(site.logs.rglob("*stacks*"))) == 4


def test_cold_workers_import_again_and_nothing_is_kept(site: Site, python: str) -> None:
    job = str(script(site.folder, JOB))
    (site.folder / "die").touch()
    ended = site.run(*RESTARTS, "--cold", "--no-python", python, job)
    assert ended.code == 0, ended
    assert read(site, 1, 0)["early"] is False
    assert "warm" not in ended.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_warm_workers_and_their_host(
    site: Site, python: str, number: signal.Signals
) -> None:
    agent = fail_once_warm(site, python, "stays")
    wait_until(lambda: all(seen(site, 1, rank).exists() for rank in range(2)), "warm workers")
    children = [pid for pid in descendants(agent.pid) if pid != agent.pid]
    assert len(children) >= 3
    agent.signal(number)
    agent.process.wait()
    wait_until_gone(*children)


def test_a_warm_cycle_that_fails_at_once_is_followed_by_cold_ones(site: Site, python: str) -> None:
    ended = fail_once_warm(site, python, "fails").wait()
    assert ended.code == 0, ended
    assert [read(site, attempt, 0)["early"] for attempt in range(3)] == [False, True, False]
    assert "started cold from here on: workers that started warm failed at once" in ended.err


def test_a_library_that_asks_for_its_rank_when_it_is_imported_is_imported_again(
    site: Site, tmp_path: Path
) -> None:
    asks = "import os, slow\nrank = os.environ['RANK']\n"
    python = str(slow_environment(tmp_path / "venv", asks=asks))
    job = script(site.folder, JOB)
    job.write_text(job.read_text().replace("import slow, json", "import asks, json"))
    job.write_text(job.read_text().replace('"pid": os.getpid()', '"rank": asks.rank'))
    agent = site.start(*RESTARTS, "--no-python", python, str(job))
    wait_until(lambda: "are kept warm for a restart" in agent.err(), "the warm host")
    (site.folder / "die").touch()
    ended = agent.wait()
    assert ended.code == 0, ended
    assert "RANK is read by a library when it is imported" in ended.err
    assert [read(site, 1, rank)["rank"] for rank in range(2)] == ["0", "1"]
    assert read(site, 1, 1)["early"] is False
