"""Trials that are forked from a process with their libraries imported: how they end, what they say,
and that nothing is left of them.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aorta.core.trial import Start, Watch
from aorta.executors.local import LocalExecutor
from aorta.executors.warm import HOOK, python_command, read_imports
from support.executor_contract import looking_for, pid_in
from support.processes import wait_until_gone
from support.waiting import wait_until
from support.warm import IMPORT_SECONDS, WarmBench, facts, hosts_of, said, slow_environment

CASES = """
import atexit, multiprocessing, os, pickle, random, signal, subprocess, sys, threading, time
import slow

class Kept:
    pass

def looks():
    own = {"AORTA_TRIAL_DIR", "AORTA_STEP_TIMES"}
    print(sys.argv, sys.flags, sys.path, __name__, __file__, os.getcwd())
    print(sorted((n, v) for n, v in os.environ.items() if n not in own))
    print(os.getsid(0) == os.getpid(), sys.stdin.read(), sys.stdout.line_buffering)
    print(threading.main_thread() is threading.current_thread(), threading.active_count())

def raises(): raise ValueError("boom")
def chained():
    try: raises()
    except ValueError as wrong: raise RuntimeError("worse") from wrong
def exits(): sys.exit(7)
def exits_with_words(): sys.exit("no such thing")
def leaves(): os._exit(5)
def segfaults(): os.kill(os.getpid(), signal.SIGSEGV)
def at_exit():
    atexit.register(print, "second"); atexit.register(print, "first", file=sys.stderr); print("running")
def pickles(): print(pickle.loads(pickle.dumps(Kept())).__class__)
def child(): print("child", __name__, flush=True)
def spawns():
    process = multiprocessing.get_context("spawn").Process(target=child); process.start(); process.join()
    print(process.exitcode)
def forks():
    process = multiprocessing.get_context("fork").Process(target=child); process.start(); process.join()
    print(process.exitcode)
def runs(): print(subprocess.run([sys.executable, "-c", "import os, sys; print(sorted(n for n in os.environ if 'PYTHONP' in n or 'FORK' in n))"], capture_output=True, text=True).stdout)
def sleeps(): print("sleeping", os.getpid(), flush=True); time.sleep(600)
def litters():
    subprocess.Popen(["sh", "-c", "sleep 600 & echo $! > grown; wait"], start_new_session=True); time.sleep(600)
def draws(): print(random.random(), os.getpid())
def seeded(): random.seed(int(os.environ["SEED"])); sys.exit(random.random() < 0.5)

if __name__ == "__main__":
    globals()[sys.argv[1]]()
"""
ALIKE = [
    "looks", "raises", "chained", "exits", "exits_with_words", "leaves", "segfaults",
    "at_exit", "pickles", "spawns", "forks", "runs",
]  # fmt: skip


@pytest.fixture(scope="session")
def slow_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    threads = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\ntime.sleep(0.4)\n"
    moody = "import os, time\ntime.sleep(0.4)\nif os.path.exists('moody'): raise OSError(3)\n"
    place = tmp_path_factory.mktemp("slow") / "venv"
    return str(slow_environment(place, threaded=threads, moody=moody))


@pytest.fixture
def executor() -> Iterator[LocalExecutor]:
    local = LocalExecutor(1, grace=0.5, warm=True)
    yield local
    local.close()


@pytest.fixture
def bench(executor: LocalExecutor, tmp_path: Path) -> WarmBench:
    (tmp_path / "cases.py").write_text(CASES)
    return WarmBench(executor, tmp_path)


def test_a_warm_trial_ends_says_and_sees_what_a_cold_one_does(
    bench: WarmBench, slow_python: str
) -> None:
    for case in ALIKE:
        cold = bench.cold(slow_python, "cases.py", case)
        warm = bench.warm(slow_python, "cases.py", case)
        assert said(warm) == said(cold), case
        assert facts(warm) == facts(cold), case
        assert warm.duration > warm.saved >= IMPORT_SECONDS


@pytest.mark.parametrize(
    "command",
    [
        ["{python}", "-m", "cases", "exits"],
        ["{python}", "-u", "cases.py", "exits"],
        ["bash", "-c", "exec {python} cases.py $CASE"],
    ],
)
def test_other_ways_to_start_one_python_start_warm_too(
    bench: WarmBench, slow_python: str, command: list[str]
) -> None:
    words = [word.format(python=slow_python) for word in command]
    assert bench.warm(*words, env={"CASE": "exits"}).exit_code == 7


@pytest.mark.parametrize(
    "command",
    [
        ["bash", "-c", "mkdir -p out && python3 x.py"],
        ["bash", "-c", "python3 x.py > log"],
        ["bash", "-c", "python3 x.py $UNKNOWN"],
        ["bash", "-c", "python3 x.py $(date)"],
        ["bash", "run.sh"],
        ["env", "A=1", "python3", "x.py"],
        ["python3", "-I", "x.py"],
        ["python3", "program"],
        ["python3", "-c", "import x"],
        ["python3"],
        ["sleep", "1"],
    ],
)
def test_a_command_that_does_anything_else_starts_cold(command: list[str]) -> None:
    assert python_command(command, dict(os.environ))[0] == []


def test_a_module_counts_for_as_long_as_it_is_imported_and_no_longer(
    slow_python: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(
        "import slow, xml, time\nprint(time.monotonic())\ntime.sleep(0.1)\n"
        "from xml import dom\n\ndef later():\n    import wave\nlater()\n"
        "import os\nos.environ['A'] = '1'\nimport csv\n"
    )
    file = tmp_path / "imports.txt"
    watching = f"AORTA_HOOK=$PPID:{file} PYTHONPATH={HOOK} exec {slow_python} train.py"
    done = subprocess.run(
        ["bash", "-c", watching], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    modules, seconds = read_imports(file)
    assert modules == ["slow", "xml"]
    assert seconds >= IMPORT_SECONDS
    assert float(file.read_text().split()[-1]) <= float(done.stdout)


def test_nothing_is_imported_ahead_that_the_program_finds_on_a_path_of_its_own(
    bench: WarmBench, slow_python: str, tmp_path: Path
) -> None:
    (tmp_path / "vendored").mkdir()
    (tmp_path / "vendored" / "slow.py").write_text("loaded_at = 'vendored'\n")
    (tmp_path / "train.py").write_text(
        "import sys\nsys.path.insert(0, 'vendored')\nimport slow\nprint(slow.loaded_at)\n"
    )
    assert {said(bench.run(slow_python, "train.py")) for _ in range(3)} == {"vendored\n"}


def test_libraries_of_the_interpreter_that_an_environment_builds_on_are_imported_ahead(
    bench: WarmBench, slow_python: str, tmp_path: Path
) -> None:
    python = slow_environment(tmp_path / "thin")
    (site,) = (tmp_path / "thin" / "lib").glob("python*/site-packages")
    (site / "slow.py").unlink()
    (below,) = (Path(slow_python).parents[1] / "lib").glob("python*/site-packages")
    (site / "below.pth").write_text(f"{below}\n")
    assert bench.warm(str(python), "cases.py", "exits").saved >= IMPORT_SECONDS


def test_a_server_that_would_save_nothing_is_not_used(
    bench: WarmBench, executor: LocalExecutor, slow_python: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text("import slow\n")
    (tmp_path / "train.py").write_text("import mine\nprint('done')\n")
    assert not any(bench.run(slow_python, "train.py").saved for _ in range(3))
    assert hosts_of(executor) == set()


def test_each_fork_draws_its_own_random_numbers(bench: WarmBench, slow_python: str) -> None:
    drawn = [said(bench.warm(slow_python, "cases.py", "draws")).split() for _ in range(4)]
    assert len({number for number, _ in drawn}) == len({pid for _, pid in drawn}) == 4


def test_generators_of_libraries_begin_elsewhere_in_each_fork(
    bench: WarmBench, tmp_path: Path
) -> None:
    (tmp_path / "draws.py").write_text(
        "import numpy, torch\nprint(numpy.random.random(), torch.rand(1).item())\n"
        "torch.manual_seed(3)\nprint('seeded', torch.rand(2))\n"
    )
    ends = [said(bench.warm(sys.executable, "draws.py")).split("seeded") for _ in range(2)]
    assert not set(ends[0][0].split()) & set(ends[1][0].split())
    assert ends[0][1] == ends[1][1]


def test_only_what_the_search_varies_may_differ_between_the_forks_of_one_server(
    bench: WarmBench, executor: LocalExecutor, slow_python: str
) -> None:
    bench.warm(slow_python, "cases.py", "seeded", env={"SEED": "1"})
    first = hosts_of(executor)
    for seed in ("2", "3"):
        cold = bench.cold(slow_python, "cases.py", "seeded", env={"SEED": seed})
        warm = bench.run(slow_python, "cases.py", "seeded", env={"SEED": seed})
        assert warm.saved
        assert cold.exit_code == warm.exit_code
    assert hosts_of(executor) == first
    bench.warm(slow_python, "cases.py", "seeded", env={"SEED": "1", "OTHER": "1"})
    assert len(hosts_of(executor)) == 2


def test_a_server_whose_imports_a_fork_would_break_is_not_used(
    bench: WarmBench, executor: LocalExecutor, slow_python: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("import threaded\nprint('done')\n")
    ends = [bench.run(slow_python, "train.py") for _ in range(4)]
    assert not any(end.saved for end in ends)
    assert hosts_of(executor) == set()


def test_a_server_whose_import_fails_never_runs_the_program_itself(
    bench: WarmBench, slow_python: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(
        "try:\n    import moody\nexcept BaseException:\n    pass\nopen('ran', 'a').write('x')\n"
    )
    bench.run(slow_python, "train.py")
    (tmp_path / "moody").touch()
    assert not bench.run(slow_python, "train.py").saved
    assert (tmp_path / "ran").read_text() == "xx"


def test_none_of_the_programs_own_files_is_imported_ahead(
    bench: WarmBench, slow_python: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text("value = 1\n")
    (tmp_path / "train.py").write_text("import slow\nimport mine\nprint(mine.value)\n")
    assert said(bench.warm(slow_python, "train.py")) == "1\n"
    (tmp_path / "mine.py").write_text("value = 22\n")
    assert said(bench.warm(slow_python, "train.py")) == "22\n"


def test_a_warm_trial_is_stopped_timed_out_found_hung_and_cancelled_like_any(
    bench: WarmBench, slow_python: str
) -> None:
    command = (slow_python, "cases.py", "sleeps")
    stopped = bench.warm(*command, watch=looking_for("sleeping"))
    assert (bool(stopped.matches), stopped.exit_code) == (True, None)
    assert bench.run(*command, timeout=1.0).timed_out
    assert bench.run(*command, watch=Watch(silent_for=1.0)).hung
    trial = bench.start(slow_python, "cases.py", "litters")
    grown = pid_in(bench.scratch / "grown")
    bench.executor.cancel(trial.id)
    assert bench.end().cancelled
    wait_until_gone(grown)
    assert bench.run(slow_python, "cases.py", "exits").saved


def test_a_trial_that_is_cancelled_while_its_server_imports_leaves_the_server_to_the_next(
    bench: WarmBench, slow_python: str
) -> None:
    bench.run(slow_python, "cases.py", "exits")
    trial = bench.start(slow_python, "cases.py", "sleeps")
    bench.executor.cancel(trial.id)
    assert bench.end().cancelled
    assert bench.run(slow_python, "cases.py", "exits").saved


def test_a_fork_server_that_is_killed_costs_no_trial(
    bench: WarmBench, executor: LocalExecutor, slow_python: str
) -> None:
    bench.warm(slow_python, "cases.py", "exits")
    (server,) = hosts_of(executor)
    os.kill(server, signal.SIGKILL)
    assert bench.run(slow_python, "cases.py", "exits").exit_code == 7


def test_killing_the_supervisor_leaves_neither_server_nor_trial(
    bench: WarmBench, executor: LocalExecutor, slow_python: str
) -> None:
    bench.warm(slow_python, "cases.py", "exits")
    servers = hosts_of(executor)
    bench.start(slow_python, "cases.py", "sleeps")
    log = bench.scratch / f"t{bench._count}" / "stdout.log"
    wait_until(lambda: log.exists() and log.read_text().endswith("\n"), "its start")
    trial = int(log.read_text().split()[1])
    os.kill(executor._slots[0].process.pid, signal.SIGKILL)
    assert bench.end().lost
    wait_until_gone(trial, *servers)


def test_without_warm_starts_the_imports_of_the_first_trial_are_told_and_no_other_is_touched(
    slow_python: str, tmp_path: Path
) -> None:
    local = LocalExecutor(1, warm=False)
    try:
        bench = WarmBench(local, tmp_path)
        bench.kind = Start.WATCHED
        (tmp_path / "cases.py").write_text(CASES)
        first, second = (bench.run(slow_python, "cases.py", "looks") for _ in range(2))
    finally:
        local.close()
    assert first.imports is not None
    assert first.imports >= IMPORT_SECONDS
    assert second.imports is None
    assert said(first) == said(second)
    assert not list(tmp_path.rglob("imports.tsv"))
