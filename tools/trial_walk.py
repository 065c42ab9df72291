"""The files that one trial crosses, counted: `python tools/trial_walk.py`. CONTRIBUTING.md quotes
the figures.

A reduction runs in this process with a profiler on between the end of one trial and the end of the
next; its supervisor, which is a process of its own, counts with the modules it loads.
"""

import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src/aorta"
_SPEC = """
workload: {command: [bash, -c, 'test "$STEPS" -lt 12']}
axes: [{name: STEPS, kind: env, type: int, initial: 4096, floor: 1}]
"""
_COUNTED = 4  # the trial whose files are counted: by then nothing is set up any more


class Walk:
    """A listener of the engine's events, and the profiler."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self._ended = 0

    def __call__(self, event: object) -> None:
        if type(event).__name__ == "TrialEnded":
            self._ended += 1
            if self._ended == _COUNTED:
                sys.setprofile(self._seen)
                threading.setprofile(self._seen)
            elif self._ended == _COUNTED + 1:
                sys.setprofile(None)
                threading.setprofile(None)

    def _seen(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            self.files.add(str(Path(frame.f_code.co_filename).relative_to(PACKAGE)))


def files_of_a_trial() -> set[str]:
    from aorta.reduce.request import ReduceRequest, reduce

    walk = Walk()
    with tempfile.TemporaryDirectory(prefix="aorta-walk-") as scratch:
        spec = Path(scratch) / "aorta.yaml"
        spec.write_text(_SPEC, encoding="utf-8")
        reduce(ReduceRequest(spec=spec, output=Path(scratch) / "out"), lambda: [walk])
    return walk.files


def files_of(module: str) -> set[str]:
    """What a process that runs this module loads of the house."""
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


def main() -> None:
    sizes = sorted(
        len(path.read_text(encoding="utf-8").splitlines()) for path in PACKAGE.rglob("*.py")
    )
    print(f"{len(sizes)} files, {sum(sizes)} lines, median {statistics.median(sizes):.0f}")
    here = files_of_a_trial()
    supervisor = files_of("aorta.executors.supervisor")
    print(f"a trial of reduce: {len(here)} files in the run, {len(supervisor)} in its supervisor")
    for name in sorted(here):
        print(f"  {name}")
    for name in sorted(supervisor - here):
        print(f"  {name} (supervisor)")
    print(f"a worker on a cluster: {len(files_of('aorta.executors.worker'))} files")


if __name__ == "__main__":
    main()
