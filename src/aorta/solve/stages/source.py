"""One short script out of the program itself, after everything around it is small. A change that
the bisection named is the known fix: the script must end well without it.
"""

import subprocess
from pathlib import Path

from aorta.engine.rundir import write_atomically
from aorta.reduce.request import ReduceRequest, reduce
from aorta.registry.environments import EnvironmentLayers
from aorta.solve.reproducer import reduced_spec
from aorta.solve.stages.reduce import SummaryOfBest, draft, status_of
from aorta.solve.state import Stage, StageResult, State, Stopped
from aorta.solve.subject import subject_of

_GIT_SECONDS = 30


class Source(Stage):
    name = "source"

    def __call__(self, state: State) -> StageResult:
        asked, folder = state.request, state.folder(self.name)
        subject, oracle = subject_of(asked), state.known("reproduce")["oracle"]
        report = reduce(
            ReduceRequest(
                spec=reduced_spec(state) or draft(state, subject, oracle),
                source=True,
                fixed_by=_fix(state),
                run_dir=folder,
                ticket=asked.ticket,
                layers=EnvironmentLayers(
                    subject.environment, mitigations_files=asked.mitigations_files
                ),
                timeout=asked.timeout,
                max_wall_clock=state.seconds_left(self.name),
                executor=state.executor(self.name),
                resume=state.resume(folder),
            ),
            lambda: [*state.views.listeners(self.name), SummaryOfBest(state, folder)],
        )
        Stopped.check(report.ending)
        answer = report.to_json()
        status = status_of(answer, report.ending.reason)
        return StageResult(self.name, *status, str(report.run_dir), answer=answer)


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
