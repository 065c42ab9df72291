"""kill -9 at random moments over run, reduce, triage and bisect, each time gone on with by another
number of jobs.

Every case is first run to its end undisturbed; then it is killed and resumed until it ends, again
and again, until the kills are spent. On Slurm every second kill hits a worker on a node and not the
command. Counted is what must not happen: a trial that was written down and is gone, or ran again;
another answer; a finished run that runs something; a process, a job or step, a draft or a temporary
file that is left.

`PYTHONPATH=src:tests python -m benchmarks.kills [KILLS] [local|slurm|steps|ray]` starts a small
cluster where it needs one; `steps` is Slurm inside an allocation. KILLS of `200/7` begins with
another seed, 7.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aorta.engine.rundir import RunDir

KILLS = 200
MARK = "AORTA_KILL_MARK"
_LOG = 'echo "$AORTA_TRIAL_DIR" >> "$COUNT"; sleep 0.1; '
# Seconds before a kill; most runs take a few times as long.
_LONGEST = {"local": 1.5, "slurm": 4.0, "steps": 3.0, "ray": 8.0}
_PATIENCE = 60.0
_NO_ANSWER = "no answer"


@dataclass(frozen=True)
class Case:
    """A command line, and what of its result is the answer."""

    name: str
    prepare: Callable[[Path], list[str]]
    answer: Callable[[dict[str, Any]], object]


@dataclass
class Found:
    kills: int = 0
    runs: int = 0
    trials: int = 0
    wrong: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: "Found") -> "Found":
        return Found(
            self.kills + other.kills,
            self.runs + other.runs,
            self.trials + other.trials,
            self.wrong + other.wrong,
        )


def _run(_where: Path) -> list[str]:
    words = ["run", "--trials", "14", "--results-dir", "out", "--json"]
    return [*words, "--", "bash", "-c", _LOG + "false"]


def _reduce(where: Path) -> list[str]:
    (where / "f.txt").write_text("a\nb\nc\nd\ne\nf\n")
    script = _LOG + '[ "$N" -ge 137 ] && grep -qx c "$F" && echo BOOM && exit 1; exit 0'
    spec = {
        "workload": {"command": ["bash", "-c", script]},
        "oracle": {"kind": "exit_code"},
        "axes": [
            {"name": "N", "kind": "env", "type": "int", "initial": 5000, "floor": 50},
            {"name": "F", "kind": "file_subset", "initial": "f.txt"},
        ],
    }
    (where / "aorta.json").write_text(json.dumps(spec))
    return ["reduce", "--spec", "aorta.json", "--output", "out", "--json"]


def _triage(_where: Path) -> list[str]:
    script = _LOG + 'test -n "$OMP_NUM_THREADS"'
    axes = ["--mitigation-axis", "none,omp_one_thread", "--environment-axis", "local"]
    return [
        "triage",
        "run",
        *axes,
        "--trials",
        "8",
        "--output-dir",
        "out",
        "--json",
        "--",
        "bash",
        "-c",
        script,
    ]


def _bisect(where: Path) -> list[str]:
    def git(*words: str) -> str:
        identity = ("-c", "user.name=t", "-c", "user.email=t@localhost")
        done = subprocess.run(
            ("git", *identity, *words), cwd=where, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q")
    (where / ".gitignore").write_text("out\ncount\ntmp\nlog*\n")
    for number in range(24):
        (where / "n").write_text(f"{number}\n")
        git("add", "n", ".gitignore")
        git("commit", "-qm", f"n is {number}")
    good = git("rev-parse", "HEAD~23")
    script = _LOG + "test $(cat n) -lt 13"
    return ["bisect", "--good", good, "--output-prefix", "out/b", "--json", "--",
            "bash", "-c", script]  # fmt: skip


CASES = (
    Case("run", _run, lambda r: (r["rate"]["reproduced"], r["rate"]["of"], r["status"])),
    Case(
        "reduce",
        _reduce,
        lambda r: (r["status"], [(a["name"], a["final"]) for a in r["axes"]]),
    ),
    Case(
        "triage",
        _triage,
        lambda r: [(c["name"], c["failed_count"] > 0) for c in r["cells"]],
    ),
    Case(
        "bisect",
        _bisect,
        lambda r: (r["status"], [c["title"] for c in r["culprits"]]),
    ),
)


def main(kills: int = KILLS, executor: str = "local", seed: int | None = None) -> None:
    seed = random.randrange(10**6) if seed is None else seed
    _import_everything()
    print(f"{kills} kills, executor {executor}, seed {seed}")
    total = Found()
    for case in CASES:
        found = _killed(case, kills // len(CASES), executor, random.Random(f"{seed} {case.name}"))
        print(
            f"{case.name:>8}: {found.kills} kills in {found.runs} runs, {found.trials} trials "
            "kept; "
            f"{dict(found.wrong) or 'nothing wrong'}",
            flush=True,
        )
        total += found
    print(f"   total: {total.kills} kills, {dict(total.wrong) or 'nothing wrong'}")
    if total.wrong:
        raise SystemExit(1)


def _killed(case: Case, kills: int, executor: str, draw: random.Random) -> Found:
    total = Found()
    with tempfile.TemporaryDirectory(prefix="aorta-kills-") as scratch:
        plain = _Place(Path(scratch) / "plain", case, executor)
        expected = plain.finish(jobs=2)
        if str(expected).startswith(_NO_ANSWER):
            raise RuntimeError(f"{case.name} by itself: {expected}")
        while total.kills < kills:
            place = _Place(Path(scratch) / str(total.runs), case, executor)
            found = place.disturb(kills - total.kills, draw)
            if place.finish(draw.randint(1, 4)) != expected:
                found.wrong["another answer"] += 1
            place.check(found)
            total += found
            shutil.rmtree(place.path, ignore_errors=True)
    return total


class _Place:
    """One run directory and everything that is written down around it."""

    def __init__(self, path: Path, case: Case, executor: str) -> None:
        self.path, self.case = path, case
        path.mkdir(parents=True)
        (path / "tmp").mkdir()
        self.words = case.prepare(path)
        self._executor = executor
        self._kept: dict[str, int] = {}  # trial directory -> lines of the log when it was seen kept

    def disturb(self, most: int, draw: random.Random) -> Found:
        """Kill until it ends by itself, or the kills are spent."""
        found = Found(runs=1)
        while found.kills < most:
            child = self._start(draw.randint(1, 4))
            if not self._lives(child, draw.uniform(0.05, _LONGEST[self._executor])):
                break
            workers = self._workers()
            if workers and draw.random() < 0.5:
                with suppress(ProcessLookupError):
                    os.kill(draw.choice(workers), signal.SIGKILL)
                found.kills += 1
                if not self._lives(child, draw.uniform(0.05, 2.0)):
                    break
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            found.kills += 1
            self._look(found)
        return found

    def _lives(self, child: int, seconds: float) -> bool:
        """Whether it has not ended by itself after so long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with suppress(ChildProcessError):
                if not os.waitpid(child, os.WNOHANG)[0]:
                    time.sleep(0.005)
                    continue
            return False
        return True

    def _workers(self) -> list[int]:
        """Of Slurm, on what it takes for nodes."""
        found = []
        for pid in _processes_with(f"{MARK}={self.path}"):
            with suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"aorta.executors.worker" in line and line.startswith(sys.executable.encode()):
                    found.append(pid)
        return found

    def finish(self, jobs: int) -> object:
        child = self._start(jobs)
        os.waitpid(child, 0)
        said = (self.path / "log.out").read_text().splitlines()
        document = next((json.loads("\n".join(said[i:])) for i in _documents(said)), None)
        if document is None or "error" in document:
            return f"{_NO_ANSWER}: {document}"
        return self.case.answer(document)

    def check(self, found: Found) -> None:
        """At the end: what was kept is there once, was not run again, and nothing else is left."""
        self._look(found)
        begun = self._log()
        for place, lines in self._kept.items():
            found.wrong["trial run again"] += place in begun[lines:]
        before = len(begun)
        self.finish(1)
        found.wrong["finished run ran something"] += len(self._log()) != before
        keys = Counter(key for _, key in self._records())
        found.trials += len(keys)
        found.wrong["trial counted twice"] += sum(count > 1 for count in keys.values())
        found.wrong["process left"] += bool(_wait_for_none(f"{MARK}={self.path}"))
        if self._executor in _QUEUES:
            found.wrong["job left"] += not _until(lambda: not _queue(self._executor))
        # A run that was killed while it was born cannot be gone on with, and keeps its draft.
        drafts = (
            draft
            for draft in self.path.rglob("*.draft")
            if draft.name != ".run.json.0.draft" or draft.with_name("run.json").exists()
        )
        for path in (*(self.path / "tmp").iterdir(), *drafts):
            found.wrong[f"file left: {path.name}"] += 1
        found.wrong += Counter()  # drops what never happened

    def _look(self, found: Found) -> None:
        """What is in the journal now must stay in it."""
        lines = len(self._log())
        now = {place for place, _ in self._records()}
        found.wrong["trial lost"] += len(self._kept.keys() - now)
        for place in now:
            self._kept.setdefault(place, lines)

    def _records(self) -> list[tuple[str, tuple[str, str, int]]]:
        from aorta.engine.journal import read_records

        found = []
        for run in self._runs():
            for record in read_records(run.journal) if run.journal.exists() else ():
                inside = (run.path / record.path).exists()
                place = str((run.path if inside else run.private) / record.path)
                found.append((place, (str(run.path), record.point.key, record.index)))
        return found

    def _runs(self) -> list["RunDir"]:
        """The outermost first."""
        from aorta.engine.rundir import RunDir

        runs = [RunDir(place.parent.resolve()) for place in self.path.glob("out/**/.aorta")]
        return sorted(filter(RunDir.about, runs), key=lambda run: (len(run.path.parts), run.path))

    def _log(self) -> list[str]:
        try:
            return (self.path / "count").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _start(self, jobs: int) -> int:
        split = self.words.index("--") if "--" in self.words else len(self.words)
        executor = "slurm" if self._executor == "steps" else self._executor
        words = [*self.words[:split], "--jobs", str(jobs), "--executor", executor, "-q"]
        if begun := self._runs():
            words += ["--resume", str(begun[0].path)]
        words += self.words[split:]
        child = os.fork()
        if child:
            return child
        os.setsid()
        os.chdir(self.path)
        os.environ.update(
            {MARK: str(self.path), "COUNT": str(self.path / "count"), "TMPDIR": str(self.path / "tmp")}
        )  # fmt: skip
        for number, name, mode in ((1, "log.out", os.O_TRUNC), (2, "log.err", os.O_APPEND)):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | mode), number)
        _become(words)
        os._exit(70)


def _become(words: Sequence[str]) -> None:
    from aorta.cli.app import run

    try:
        run(list(words))
    except SystemExit as leaving:
        sys.stdout.flush()
        os._exit(leaving.code if isinstance(leaving.code, int) else 1)


def _import_everything() -> None:
    """Children are forked from here, so that a kill costs no start-up."""
    import aorta.bisect.run
    import aorta.cli.bisect
    import aorta.cli.reduce
    import aorta.cli.run
    import aorta.cli.triage
    import aorta.executors.choosing
    import aorta.reduce.running
    import aorta.run.request
    import aorta.triage.running  # noqa: F401


def _documents(lines: Sequence[str]) -> list[int]:
    return [number for number, line in enumerate(lines) if line.startswith("{")]


def _wait_for_none(variable: str) -> list[int]:
    """Processes that carry the variable and do not end within the patience."""
    _until(lambda: not _processes_with(variable))
    return _processes_with(variable)


def _until(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


_QUEUES = {"slurm": ("squeue", "--noheader"), "steps": ("squeue", "--noheader", "--steps")}


def _queue(executor: str) -> list[str]:
    done = subprocess.run(_QUEUES[executor], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@contextmanager
def _cluster_for(executor: str) -> Iterator[None]:
    """A small one, as the tests start it, for what needs one."""
    with ExitStack() as stack:
        if executor == "ray":
            from support.services.ray_cluster import start_ray

            ray_cluster = start_ray().with_nodes(1)
            stack.callback(ray_cluster.stop)
            os.environ.update({**ray_cluster.environ, "RAY_ADDRESS": ray_cluster.address})
        elif executor in _QUEUES:
            from support.services.slurm import start_slurm

            cluster = start_slurm()
            stack.callback(cluster.stop)
            os.environ.update(cluster.environ)
        if executor == "steps":
            salloc = ("salloc", "--no-shell", "--nodes=2", "--ntasks-per-node=4")
            said = subprocess.run(salloc, capture_output=True, text=True, check=True).stderr
            job = said.partition("Granted job allocation ")[2].split()[0]
            os.environ.update(SLURM_JOB_ID=job, SLURM_JOB_CPUS_PER_NODE="4(x2)")
        yield


def _processes_with(variable: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


if __name__ == "__main__":
    spent, _, first = (sys.argv[1] if len(sys.argv) > 1 else str(KILLS)).partition("/")
    chosen = sys.argv[2] if len(sys.argv) > 2 else "local"
    with _cluster_for(chosen):
        main(int(spent), chosen, int(first) if first else None)
