"""The files that one trial crosses, counted by profile: `python tools/walk.py [slurm] [launch]`.

A reduction, or with `slurm` a run on a small cluster of this machine (with `PYTHONPATH=src:tests`),
goes on in this process, with a profiler on between the end of one trial and the end of the next.
The usual trial is listed, and the one that crosses most files counted. A supervisor and a cluster's
worker, which are processes of their own, count with the modules that they load.

With `launch`: the files that one failure crosses, from the agent that sees it to the case on disk.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import chdir
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src/aorta"
_SPEC = """
workload: {command: [bash, -c, 'test "$STEPS" -lt 12']}
axes: [{name: STEPS, kind: env, type: int, initial: 4096, floor: 1}]
"""
_SETTING_UP = 3  # trials after which nothing is set up any more


class Walk:
    """A listener of the engine's events, and the profiler."""

    def __init__(self) -> None:
        self.trials: list[set[str]] = []

    def __call__(self, event: object) -> None:
        if type(event).__name__ == "TrialEnded":
            self.trials.append(set())

    def seen(self, frame: FrameType, event: str, _argument: Any) -> None:
        if self.trials and event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            self.trials[-1].add(str(Path(frame.f_code.co_filename).relative_to(PACKAGE)))


def files_of_a_reduction() -> list[set[str]]:
    from aorta.reduce.request import ReduceRequest, reduce

    def run(scratch: Path, walk: Walk) -> None:
        spec = scratch / "aorta.yaml"
        spec.write_text(_SPEC, encoding="utf-8")
        reduce(ReduceRequest(spec=spec, output=scratch / "out"), lambda: [walk])

    return _walked(run)


def files_of_a_run_on_slurm() -> list[set[str]]:
    from aorta.executors.choosing import ExecutorChoice
    from aorta.run.request import RunRequest, run

    def on_slurm(scratch: Path, walk: Walk) -> None:
        request = RunRequest(
            command=("true",),
            trials=_SETTING_UP + 3,
            results_dir=scratch,
            executor=ExecutorChoice("slurm", jobs=1),
        )
        run(request, lambda: [walk])

    return _walked(on_slurm)


def files_of_a_failure() -> set[str]:
    """Of a job of two ranks that lack a module: it is stopped, and leaves a case. They wait until
    the agent has read its rule files.
    """
    from aorta.launch.job import launch

    seen: set[str] = set()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        name = frame.f_code.co_filename
        begun = bool(seen) or frame.f_code.co_name == "_note_failure"
        if event == "call" and begun and name.startswith(str(PACKAGE)):
            seen.add(str(Path(name).relative_to(PACKAGE)))

    with tempfile.TemporaryDirectory(prefix="aorta-walk-") as scratch, chdir(scratch):
        Path("job.py").write_text("import time; time.sleep(5); import nowhere\n", encoding="utf-8")
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            job = ["--standalone", "--nproc-per-node", "2", "--log-dir", "logs", "job.py"]
            launch(job)
        finally:
            sys.setprofile(None)
        assert Path("logs/case/aorta.yaml").exists()
    return seen


def _walked(run: Callable[[Path, Walk], None]) -> list[set[str]]:
    """The files of each trial but the first ones, and the last, behind which the end begins."""
    walk = Walk()
    threading.setprofile(walk.seen)  # of threads that are started from here on
    sys.setprofile(walk.seen)
    try:
        with tempfile.TemporaryDirectory(prefix="aorta-walk-") as scratch:
            run(Path(scratch), walk)
    finally:
        sys.setprofile(None)
    return sorted(walk.trials[_SETTING_UP:-1], key=len)


def files_of(module: str) -> set[str]:
    """What a process that runs this module loads of the package."""
    program = (
        f"import sys, {module}; "
        "print(*(m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'aorta'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    found = {str(Path(name).relative_to(PACKAGE)) for name in done.stdout.split()}
    return {name for name in found if not name.endswith("__init__.py")}


def _show(what: str, files: set[str]) -> None:
    print(f"{what}: {len(files)} files")
    for name in sorted(files):
        print(f"  {name}")


def _show_trials(what: str, trials: Sequence[set[str]]) -> None:
    _show(f"{what} (the most: {len(trials[-1])})", trials[len(trials) // 2])


def main(words: Sequence[str]) -> None:
    sizes = sorted(
        len(path.read_text(encoding="utf-8").splitlines()) for path in PACKAGE.rglob("*.py")
    )
    print(f"{len(sizes)} files, {sum(sizes)} lines, median {statistics.median(sizes):.0f}")
    _show_trials("a trial of reduce, in the run", files_of_a_reduction())
    if "slurm" in words:
        from support.services.slurm import start_slurm

        cluster = start_slurm()
        os.environ.update(cluster.environ)
        try:
            _show_trials("a trial of run --executor slurm, in the run", files_of_a_run_on_slurm())
        finally:
            cluster.stop()
    if "launch" in words:
        _show("a failure, from the agent to the case", files_of_a_failure())
        _show("the process that writes the case loads", files_of("aorta.launch.case"))
    _show("its supervisor loads", files_of("aorta.executors.supervisor"))
    _show("a worker on a cluster loads", files_of("aorta.executors.worker"))


if __name__ == "__main__":
    main(sys.argv[1:])
