"""Trials that are forked from a process with their libraries imported: the same in everything but
the time they take.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from aorta.core.trial import Watch
from aorta.executors.local import LocalExecutor
from aorta.executors.warm import python_command
from support.executor_contract import looking_for, pid_in
from support.memory_groups import memory_group
from support.processes import open_files, wait_until_gone
from support.waiting import patience, wait_until
from support.warm import IMPORT_SECONDS, WarmBench, facts, hosts_of, said, slow_environment

CASES = '''
import atexit, json, multiprocessing, os, pickle, random, resource, signal, subprocess, sys, threading, time, traceback
import slow

class Kept:
    pass

def looks():
    """How this process sees itself, apart from numbers that are drawn anew each time."""
    print(sys.argv, sys.orig_argv, sys.flags, sys.path, sys.warnoptions, sys._xoptions, sys.executable)
    print(__name__, __file__, __spec__, __package__, sorted(sys.modules["__main__"].__dict__)[:8])
    print(open("/proc/self/cmdline").read().split(chr(0)), open("/proc/self/comm").read())
    own = {"AORTA_TRIAL_DIR", "AORTA_STEP_TIMES"}
    print(sorted((n, v) for n, v in os.environ.items() if n not in own))
    inside = dict(line.split("=", 1) for line in open("/proc/self/environ").read().split(chr(0)) if line)
    print(sorted((n, v) for n, v in inside.items() if n not in own), sorted(set(inside) & own))
    print(inside["AORTA_TRIAL_DIR"] == os.environ["AORTA_TRIAL_DIR"])
    print(os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid(), os.getppid(), os.getcwd())
    print(sorted(os.listdir("/proc/self/fd")), [os.readlink(f"/proc/self/fd/{n}").split(":")[0] for n in range(3)])
    print([resource.getrlimit(n) for n in range(10)], os.nice(0), open("/proc/self/cgroup").read())
    print([signal.getsignal(n) for n in (2, 13, 15, 17)], signal.pthread_sigmask(0, ()), os.umask(0o22))
    print(sys.stdin.read(), sys.stdout.encoding, sys.stdout.line_buffering, sys.stderr.errors)
    print(threading.main_thread() is threading.current_thread(), threading.active_count())
    print(sorted(n for n in sys.modules if n.startswith(("slow", "aorta", "site"))), sys.meta_path)
    print(sys.path_importer_cache.keys() - {os.path.dirname(__file__)} <= set(sys.path) | {sys.prefix})
    traceback.print_stack()

def raises(): raise ValueError("boom")
def chained():
    try: raises()
    except ValueError as wrong: raise RuntimeError("worse") from wrong
def exits(): sys.exit(7)
def exits_with_words(): sys.exit("no such thing")
def leaves(): os._exit(5)
def segfaults(): os.kill(os.getpid(), signal.SIGSEGV)
def is_killed(): os.kill(os.getpid(), signal.SIGKILL)
def interrupts(): os.kill(os.getpid(), signal.SIGINT)
def at_exit():
    atexit.register(print, "second"); atexit.register(print, "first", file=sys.stderr); print("running")
def unraisable():
    class Bad:
        def __del__(self): raise KeyError("in del")
    Bad()
def pickles(): print(pickle.loads(pickle.dumps(Kept())).__class__, pickle.dumps(Kept(), 0))
def child(): print("child", __name__, flush=True)
def spawns():
    process = multiprocessing.get_context("spawn").Process(target=child); process.start(); process.join()
    print(process.exitcode)
def forks():
    process = multiprocessing.get_context("fork").Process(target=child); process.start(); process.join()
    print(process.exitcode)
def runs(): print(subprocess.run([sys.executable, "-c", "import os, sys; print(sorted(n for n in os.environ if 'PYTHONP' in n), sys.path[0])"], capture_output=True, text=True))
def threads():
    seen = []; t = threading.Thread(target=lambda: seen.append(threading.current_thread().name)); t.start(); t.join(); print(seen)
def starves():
    resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29)); bytearray(1 << 30)
def faults():
    import faulthandler; faulthandler.enable(); faulthandler._sigabrt()
def sleeps(): print("sleeping", os.getpid(), flush=True); time.sleep(600)
def litters():
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    grown = subprocess.Popen(["sh", "-c", "sleep 600 & echo $! > grown; wait"]); time.sleep(600)
def draws(): print(random.random(), os.getpid(), hash("x"))
def seeded(): random.seed(int(os.environ["SEED"])); sys.exit(random.random() < 0.5)

if __name__ == "__main__":
    globals()[sys.argv[1]]()
'''


@pytest.fixture(scope="session")
def slow_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(slow_environment(tmp_path_factory.mktemp("slow") / "venv", quick=""))


@pytest.fixture
def executor() -> Iterator[LocalExecutor]:
    local = LocalExecutor(1, grace=0.5, warm=True)
    yield local
    local.close()


@pytest.fixture
def bench(executor: LocalExecutor, tmp_path: Path) -> WarmBench:
    (tmp_path / "cases.py").write_text(CASES)
    return WarmBench(executor, tmp_path)


ALIKE = [
    "looks", "raises", "chained", "exits", "exits_with_words", "leaves", "segfaults", "is_killed", "interrupts",
    "at_exit", "unraisable", "pickles", "spawns", "forks", "runs", "threads", "faults", "starves",
]  # fmt: skip


def test_a_warm_trial_ends_says_and_sees_what_a_cold_one_does(
    bench: WarmBench, slow_python: str
) -> None:
    for case in ALIKE:
        command = (slow_python, "cases.py", case)
        cold, warm = bench.cold(*command), bench.warm(*command)
        assert said(warm) == said(cold)
        assert facts(warm) == facts(cold)


@pytest.mark.parametrize(
    "how",
    [
        ["{python}", "-m", "cases", "looks", "x y"],
        ["{python}", "-X", "dev", "-Wignore", "-u", "cases.py", "looks"],
        ["{python}", "-c", "import cases; cases.raises()"],
        ["env", "GIVEN=1", "{python}", "cases.py", "looks"],
        ["bash", "-c", "GIVEN=2 {python} cases.py looks $SAID"],
        ["./shebang.py", "looks"],
    ],
    ids=["module", "options", "code", "env", "bash", "shebang"],
)
def test_every_way_to_start_one_python_starts_warm_as_it_does_cold(
    bench: WarmBench, slow_python: str, how: list[str]
) -> None:
    shebang = bench.scratch / "shebang.py"
    shebang.write_text(f"#!{slow_python}\n{CASES}")
    shebang.chmod(0o755)
    command = [word.replace("{python}", slow_python) for word in how]
    env = {"SAID": "hello"}
    cold, warm = bench.cold(*command, env=env), bench.warm(*command, env=env)
    assert said(warm) == said(cold)
    assert facts(warm) == facts(cold)


@pytest.mark.parametrize(
    "command",
    [
        ["bash", "-c", "mkdir -p out && python3 x.py"],
        ["bash", "-c", "python3 x.py; echo done"],
        ["bash", "-c", "python3 x.py > log"],
        ["bash", "-c", "python3 x.py $UNKNOWN"],
        ["bash", "-c", "python3 x.py $(date)"],
        ["bash", "run.sh"],
        ["env", "-i", "python3", "x.py"],
        ["python3", "-I", "x.py"],
        ["python3", "-Es", "x.py"],
        ["python3", "missing.py"],
        ["python3", "-"],
        ["python3"],
        ["sleep", "1"],
    ],
)
def test_a_command_that_does_anything_else_starts_cold(tmp_path: Path, command: list[str]) -> None:
    for name in ("x.py", "run.sh"):
        (tmp_path / name).touch()
    assert python_command(command, dict(os.environ), tmp_path) is None


def test_the_imports_are_not_part_of_a_warm_trial(bench: WarmBench, slow_python: str) -> None:
    code = "import sys; print('slow' in sys.modules); import slow"
    assert said(bench.cold(slow_python, "-c", code)) == "False\n"
    end = bench.warm(slow_python, "-c", code)
    assert said(end) == "True\n"
    assert end.duration > end.spared >= IMPORT_SECONDS


def test_what_a_cold_start_draws_by_chance_a_warm_one_draws_too(
    bench: WarmBench, slow_python: str
) -> None:
    drawn = [said(bench.warm(slow_python, "cases.py", "draws")).split()[:2] for _ in range(4)]
    assert len({number for number, _ in drawn}) == 4
    assert len({pid for _, pid in drawn}) == 4


DRAWS = """
import random, numpy, torch, uuid, tempfile
torch.initial_seed()
print(random.random(), numpy.random.random(), torch.initial_seed(), torch.rand(1).item(), torch.random.seed())
print(uuid.uuid4(), next(tempfile._get_candidate_names()), sep="\\n")
print("seeded")
random.seed(1); numpy.random.seed(2); torch.manual_seed(3)
print(random.random(), numpy.random.random(), torch.initial_seed(), torch.rand(3), torch.randperm(9))
"""


def test_generators_begin_elsewhere_in_each_warm_trial_unless_the_program_seeds_them(
    bench: WarmBench,
) -> None:
    command = (sys.executable, "-c", DRAWS)
    cold = bench.run(*command)
    assert not cold.spared
    ends = [cold, *(bench.warm(*command) for _ in range(2))]
    unseeded, seeded = zip(*(said(end).split("seeded\n") for end in ends), strict=True)
    for numbers in zip(*(drawn.split() for drawn in unseeded), strict=True):
        assert len(set(numbers)) == 3
    assert len(set(seeded)) == 1


def test_pairs_of_a_flaky_program_with_the_same_seed_end_alike(
    bench: WarmBench, slow_python: str
) -> None:
    command = (slow_python, "cases.py", "seeded")
    for seed in range(6):
        env = {"SEED": str(seed)}
        assert bench.cold(*command, env=env).exit_code == bench.warm(*command, env=env).exit_code


def test_a_warm_trial_that_matches_is_stopped_at_once(bench: WarmBench, slow_python: str) -> None:
    end = bench.warm(slow_python, "cases.py", "sleeps", watch=looking_for("sleeping"))
    assert end.matches
    assert end.exit_code is None


def test_a_warm_trial_times_out_hangs_and_is_cancelled_like_any(
    bench: WarmBench, slow_python: str
) -> None:
    command = (slow_python, "cases.py", "sleeps")
    bench.warm(*command, watch=looking_for("sleeping"))
    assert bench.run(*command, timeout=1.0).timed_out
    assert bench.run(*command, watch=Watch(silent_for=1.0)).hung
    trial = bench.start(*command)
    log = trial.trial_dir / "stdout.log"
    wait_until(lambda: log.exists() and "sleeping" in log.read_text(), "its start")
    bench.executor.cancel(trial.id)
    assert bench.end().cancelled


def test_everything_a_warm_trial_started_ends_with_it(bench: WarmBench, slow_python: str) -> None:
    bench.warm(slow_python, "cases.py", "exits")
    grown = bench.scratch / "grown"
    trial = bench.start(slow_python, "cases.py", "litters")
    pid = pid_in(grown)
    bench.executor.cancel(trial.id)
    assert bench.end().cancelled
    wait_until_gone(pid)
    assert bench.run(slow_python, "cases.py", "exits").spared > 0


def _host_of(executor: LocalExecutor) -> int:
    (host,) = hosts_of(executor)
    return host


def test_a_slot_keeps_three_hosts_and_the_least_used_goes_first(
    tmp_path: Path, executor: LocalExecutor
) -> None:
    reads = "import os, slow\nthreads = os.environ.get('MY_THREADS')\n"
    python = str(slow_environment(tmp_path / "venv", reads=reads))
    bench = WarmBench(executor, tmp_path)
    command = (python, "-c", "import reads, os; print(reads.threads)")
    hosts: dict[str, int] = {}
    for value in "123":
        before = set(hosts.values())
        bench.warm(*command, env={"MY_THREADS": value})
        (hosts[value],) = hosts_of(executor) - before
    bench.warm(*command, env={"MY_THREADS": "1"})
    assert hosts_of(executor) == set(hosts.values())
    bench.warm(*command, env={"MY_THREADS": "4"})
    left = hosts_of(executor)
    assert len(left) == 3
    assert {value for value, pid in hosts.items() if pid in left} == {"1", "3"}


LARGE = """
import json, os, socket, sys
from pathlib import Path
from aorta.executors import process_tree
from aorta.executors.warm_hosts import WarmHosts
process_tree.adopt_orphans()
owner, ours = socket.socketpair()
hosts = WarmHosts(ours, most_memory=int(sys.argv[2]))
rows = Path("rows")
origin = next(Path(sys.argv[1]).parents[1].glob("lib/python*/site-packages/large.py"))
rows.write_text(f"large\\t{origin}\\t\\n")
started = []
for value in "12":
    env = {**os.environ, "MY_THREADS": value}
    argv = [sys.argv[1], "-c", "import large"]
    warm = {"command": argv, "arguments": [], "env": env, "front": [], "candidates": "rows", "seconds": 1.0, "of_few": False}
    found = hosts.start({"cwd": os.getcwd(), "argv": argv, "env": env, "warm": warm}, 1, 2)
    started.append((found is not None, len(hosts.hosts), "; ".join(hosts.given_up.values())))
hosts.close()
process_tree.end_all(0)
print(json.dumps(started))
"""


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (1 << 30, [[True, 1, ""], [True, 2, ""]]),
        (60 << 20, [[True, 1, ""], [True, 1, ""]]),
        (20 << 20, [[False, 0, "its imports take too much memory"]] * 2),
    ],
    ids=["enough for both", "enough for one", "enough for none"],
)
def test_the_memory_of_the_hosts_is_bounded(
    tmp_path: Path, most: int, expected: list[list[object]]
) -> None:
    text = "import os, slow\nthreads = os.environ.get('MY_THREADS')\nheld = b'x' * (40 << 20)\n"
    python = slow_environment(tmp_path / "venv", large=text)
    source = str(Path(__file__).parents[2] / "src")
    done = subprocess.run(
        [sys.executable, "-c", LARGE, str(python), str(most)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": source}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout.splitlines()[-1]) == expected


GREEDY = (
    "import slow, sys\nheld = bytearray(int(sys.argv[1]) << 20)\nheld[::4096] = b'x' * "
    "len(held[::4096])\n"
)


def test_a_warm_trial_that_runs_out_of_memory_ends_as_a_cold_one_and_its_host_lives(
    tmp_path: Path, slow_python: str
) -> None:
    (tmp_path / "greedy.py").write_text(GREEDY)
    command = (slow_python, "greedy.py")
    with memory_group(200 << 20) as group:
        local = LocalExecutor(1, grace=0.5, warm=True)
        try:
            bench = WarmBench(local, tmp_path)
            bench.run(*command, "1")
            supervisor = local._slots[0].process.pid
            (group / "cgroup.procs").write_text(str(supervisor))
            bench.warm(*command, "1")
            host = _host_of(local)
            cold, warm = bench.cold(*command, "400"), bench.warm(*command, "400")
            assert facts(warm) == facts(cold)
            assert (warm.signal, warm.out_of_memory) == (signal.SIGKILL, True)
            assert _host_of(local) == host
        finally:
            local.close()


def test_a_warm_host_that_is_killed_costs_no_trial(
    bench: WarmBench, executor: LocalExecutor, slow_python: str
) -> None:
    command = (slow_python, "cases.py", "exits")
    bench.warm(*command)
    for _ in range(2):
        os.kill(_host_of(executor), signal.SIGKILL)
        assert bench.run(*command).exit_code == 7
        if bench.run(*command).spared == 0:
            break
    assert bench.run(*command).exit_code == 7


def test_killing_the_supervisor_leaves_neither_host_nor_trial(
    bench: WarmBench, executor: LocalExecutor, slow_python: str
) -> None:
    bench.warm(slow_python, "cases.py", "exits")
    host = _host_of(executor)
    bench.start(slow_python, "cases.py", "litters")
    pid = pid_in(bench.scratch / "grown")
    supervisor = executor._slots[0].process.pid
    os.kill(supervisor, signal.SIGKILL)
    assert bench.end().lost == "the process that kept this trial was killed"
    wait_until_gone(pid, host, supervisor)


def test_closing_leaves_no_host(
    bench: WarmBench, executor: LocalExecutor, slow_python: str
) -> None:
    bench.warm(slow_python, "cases.py", "exits")
    host = _host_of(executor)
    executor.close()
    wait_until_gone(host)


def test_a_variable_that_no_library_reads_needs_no_other_host(
    bench: WarmBench, executor: LocalExecutor, slow_python: str
) -> None:
    command = (slow_python, "cases.py", "looks")
    bench.warm(*command, env={"NUM_STEPS_OF_MINE": "5"})
    host = _host_of(executor)
    end = bench.run(*command, env={"NUM_STEPS_OF_MINE": "7", "ANOTHER_OF_MINE": "1"})
    assert end.spared
    assert "('NUM_STEPS_OF_MINE', '7')" in said(end)
    assert _host_of(executor) == host


UNFIT = {
    "threaded": "import threading, time, slow\nthreading.Thread(target=time.sleep, args=(9,), "
    "daemon=True).start()\n",
    "connected": "import slow, socket\nline = socket.socket()\n",
    "open_file": "import slow\nfile = open('/etc/hostname')\n",
    "parent": "import slow, subprocess\nchild = subprocess.Popen(['sleep', '5'])\n",
    "talks": "import slow\nprint('hello from the import')\n",
    "drawn": "import slow, random\nrng = random.Random()\n",
}


@pytest.mark.parametrize("module", list(UNFIT))
def test_a_module_that_a_fork_would_break_is_left_to_the_trials(
    tmp_path: Path, executor: LocalExecutor, module: str
) -> None:
    python = str(
        slow_environment(
            tmp_path / "venv", **{module: UNFIT[module], "late": "import time\ntime.sleep(0.4)\n"}
        )
    )
    bench = WarmBench(executor, tmp_path)
    code = (
        f"import sys\nhere = {module!r} in sys.modules, 'late' in sys.modules\nimport late, "
        f"{module}\nprint(here)"
    )
    assert "(False, True)\n" in said(bench.warm(python, "-c", code))


def test_a_library_that_reads_a_variable_at_import_gets_a_host_for_each_value(
    tmp_path: Path, executor: LocalExecutor
) -> None:
    reads = "import os, slow\nthreads = os.environ.get('MY_THREADS')\n"
    python = str(slow_environment(tmp_path / "venv", reads=reads))
    bench = WarmBench(executor, tmp_path)
    command = (python, "-c", "import reads; print(reads.threads)")
    for value in ("1", "2", "1"):
        assert said(bench.warm(*command, env={"MY_THREADS": value})) == f"{value}\n"


def test_a_variable_that_the_program_sets_before_an_import_keeps_it_out_of_the_host(
    tmp_path: Path, executor: LocalExecutor
) -> None:
    reads = "import os, time\ntime.sleep(0.4)\nthreads = os.environ.get('MY_THREADS')\n"
    python = str(slow_environment(tmp_path / "venv", reads=reads))
    bench = WarmBench(executor, tmp_path)
    code = "import os, slow; os.environ['MY_THREADS'] = '3'; import reads; print(reads.threads)"
    assert said(bench.warm(python, "-c", code)) == "3\n"


def test_a_file_of_the_program_that_hides_a_library_is_found_as_in_a_cold_start(
    bench: WarmBench, slow_python: str
) -> None:
    command = (slow_python, "-m", "names")
    (bench.scratch / "names.py").write_text("import slow; print(slow.__file__)")
    assert "site-packages" in said(bench.warm(*command))
    (bench.scratch / "slow.py").touch()
    assert said(bench.run(*command)) == f"{bench.scratch / 'slow.py'}\n"


def test_a_file_on_the_path_that_hides_a_library_is_found_as_in_a_cold_start(
    bench: WarmBench, slow_python: str
) -> None:
    """One that only has its name hides nothing."""
    ahead = bench.scratch / "ahead"
    (ahead / "slow").mkdir(parents=True)
    env = {"PYTHONPATH": str(ahead)}
    command = (slow_python, "-c", "import slow; print(slow.__file__)")
    assert "site-packages" in said(bench.warm(*command, env=env))
    (ahead / "slow" / "__init__.py").touch()
    assert said(bench.run(*command, env=env)) == f"{ahead}/slow/__init__.py\n"


def test_a_library_that_is_installed_meanwhile_is_found(
    tmp_path: Path, executor: LocalExecutor
) -> None:
    asks = "import slow\ntry:\n    import extra\nexcept ImportError:\n    extra = None\n"
    python = slow_environment(tmp_path / "venv", asks=asks)
    bench = WarmBench(executor, tmp_path)
    command = (str(python), "-c", "import asks; print(asks.extra is not None)")
    assert said(bench.warm(*command)) == "False\n"
    next(tmp_path.glob("venv/lib/python*/site-packages")).joinpath("extra.py").touch()
    assert said(bench.run(*command)) == "True\n"
    assert said(bench.warm(*command)) == "True\n"


def test_a_library_that_changed_is_imported_anew(tmp_path: Path, executor: LocalExecutor) -> None:
    python = slow_environment(tmp_path / "venv", told="import slow\nvalue = 1\n")
    bench = WarmBench(executor, tmp_path)
    command = (str(python), "-c", "import told; print(told.value)")
    assert said(bench.warm(*command)) == "1\n"
    library = next(tmp_path.glob("venv/lib/python*/site-packages/told.py"))
    library.write_text("import slow\nvalue = 2222\n")
    assert said(bench.run(*command)) == "2222\n"


def test_none_of_the_programs_own_files_is_imported_ahead(
    bench: WarmBench, slow_python: str
) -> None:
    (bench.scratch / "mine.py").write_text("import os; pid = os.getpid()")
    code = "import slow, mine, os; print(mine.pid == os.getpid())"
    assert said(bench.warm(slow_python, "-c", code)) == "True\n"


def test_a_command_whose_imports_take_no_time_starts_cold(
    bench: WarmBench, slow_python: str
) -> None:
    for _ in range(3):
        assert bench.run(slow_python, "-c", "import quick").spared == 0


def test_a_trial_that_is_cancelled_while_its_host_imports_ends_at_once(
    tmp_path: Path, executor: LocalExecutor
) -> None:
    slower = (
        "import os, time\n"
        "with open(os.path.expanduser('~/imports'), 'a') as file: file.write('x')\n"
        "time.sleep(0.4 if os.path.getsize(os.path.expanduser('~/imports')) == 1 else 600)\n"
    )
    python = str(slow_environment(tmp_path / "venv", slower=slower))
    bench = WarmBench(executor, tmp_path)
    command, env = (python, "-c", "import slower"), {"HOME": str(tmp_path)}
    assert bench.run(*command, env=env).exit_code == 0
    trial = bench.start(*command, env=env)
    wait_until(lambda: (tmp_path / "imports").stat().st_size == 2, "the import of the host")
    executor.cancel(trial.id)
    assert bench.end().cancelled


def test_each_slot_with_devices_of_its_own_has_hosts_of_its_own(
    tmp_path: Path, slow_python: str
) -> None:
    code = "import os, slow; print(os.environ['CUDA_VISIBLE_DEVICES'])"
    local = LocalExecutor(2, gpus_per_trial=1, devices=("0", "1"), warm=True)
    try:
        bench = WarmBench(local, tmp_path)
        assert bench.run(slow_python, "-c", code).exit_code == 0
        for _ in range(2):
            trials = [bench.start(slow_python, "-c", code) for _ in range(2)]
            ends = local.wait(patience())
            ends += local.wait(patience()) if len(ends) < 2 else []
            assert [end.spared > 0 for end in ends] == [True, True]
            seen = {(trial.trial_dir / "stdout.log").read_text() for trial in trials}
            assert seen == {"0\n", "1\n"}
    finally:
        local.close()


def _has_at_most(pid: int, files: int) -> bool:
    return open_files(pid) <= files


def test_hosts_do_not_grow_and_leave_no_descriptor_behind(
    bench: WarmBench, executor: LocalExecutor, slow_python: str
) -> None:
    command = (slow_python, "cases.py", "exits")
    bench.warm(*command)
    kept = [executor._slots[0].process.pid, _host_of(executor)]

    def pages() -> list[int]:
        return [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in kept]

    for _ in range(5):
        bench.warm(*command)
    files, before = list(map(open_files, kept)), pages()
    for _ in range(20):
        bench.warm(*command)
    # What belonged to a trial is closed a moment after its end is told.
    for pid, most in zip(kept, files, strict=True):
        wait_until(partial(_has_at_most, pid, most), "the closing of every file")
    assert all(
        now - then < 128 for now, then in zip(pages(), before, strict=True)
    )  # half a megabyte
