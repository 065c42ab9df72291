"""One short script out of the program itself, after everything around it is small. A change that
the bisection named is the known fix: the script must end well without it.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from aorta.engine.rundir import write_atomically
from aorta.solve.reproducer import reduced_spec
from aorta.solve.stages.reduce import draft, reduced_by
from aorta.solve.state import StageResult, State
from aorta.solve.subject import subject_of

_GIT_SECONDS = 30


@dataclass(frozen=True)
class Source:
    name: str = "source"

    def why_not(self, state: State) -> str:
        return "" if state.is_done("reproduce") else "there is no failure to look for"

    def __call__(self, state: State) -> StageResult:
        oracle = state.known("reproduce")["oracle"]
        spec = reduced_spec(state) or draft(state, subject_of(state.request), oracle)
        folder = state.folder(self.name)
        return reduced_by(state, self.name, spec, folder, source=True, fixed_by=_fix(state))


def _fix(state: State) -> Path | None:
    """What undoes the change that the bisection named, as a patch of the program's directory; None
    where there is none.
    """
    if not state.is_done("bisect"):
        return None
    place = state.path / "fix.patch"
    for culprit in state.known("bisect").get("culprits") or []:
        revisions = [str(culprit.get(side) or "") for side in ("bad", "good")]
        done = subprocess.run(
            ("git", "diff", "--relative", *revisions, "--", "*.py"),
            cwd=subject_of(state.request).cwd,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
        if done.returncode == 0 and done.stdout:
            write_atomically(place, done.stdout)
            return place
    return None
