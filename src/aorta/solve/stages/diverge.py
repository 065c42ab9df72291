"""Where do the numbers part? The failing run beside a clean one that an earlier stage found."""

from dataclasses import dataclass
from pathlib import Path

from aorta.core.errors import Exit
from aorta.diverge.running import DivergePlan, run_diverge
from aorta.diverge.sides import GoodSide, Side, Sides
from aorta.engine.events import Reason
from aorta.registry.layers import stack_mitigations
from aorta.registry.mitigations import get_mitigation
from aorta.solve.reproducer import original, reduced_command, smallest
from aorta.solve.state import StageResult, State, Stopped
from aorta.solve.subject import environment_of

NUMERIC = frozenset({"nan"})


@dataclass(frozen=True)
class Diverge:
    name: str = "diverge"

    def why_not(self, state: State) -> str:
        if not state.is_done("reproduce"):
            return "there is no failure to look at"
        if state.known("reproduce").get("class") not in NUMERIC:
            return "the failure is not one of numbers"
        if environment_of(state.request).isolated:
            return "operations are compared on this machine, and it fails in a container"
        if not _good_side(state).is_given:
            return "no clean configuration is known to compare it with"
        return ""

    def __call__(self, state: State) -> StageResult:
        folder = state.folder(self.name)
        good, bad = _good_side(state), _bad_side(state)
        plan = DivergePlan(
            sides=lambda scratch: Sides(bad, good.of(bad, scratch)),
            output=state.path,
            about={
                "command": [dict(bad.config), str(bad.base), sorted(bad.env.items())],
                "good": repr(good),
            },
            timeout=state.request.timeout,
            budget=state.budget(self.name),
            name=folder.name,
        )
        report = run_diverge(
            plan,
            state.executor(self.name),
            lambda: state.means.listeners(self.name),
            resume=state.resume(folder),
        )
        if report.ended in {Reason.INTERRUPTED, Reason.TERMINATED}:
            interrupted = report.ended is Reason.INTERRUPTED
            raise Stopped(Exit.INTERRUPTED if interrupted else Exit.TERMINATED)
        answer = {**report.to_json(), "good_side": good.words}
        run_dir = str(report.run_dir)
        if report.ended is Reason.BUDGET:
            return StageResult(self.name, "budget", "stopped before the answer", run_dir)
        if report.first is None:
            why = {
                "same": "no operation differs beyond its own noise",
                "not_aligned": "nothing could be recorded, or the sides do different things",
                "nondeterministic": "the failing side does not repeat its own numbers",
            }.get(report.status, report.status)
            return StageResult(self.name, "no_answer", why, run_dir, answer=answer)
        return StageResult(self.name, "done", "", run_dir, answer=answer)


def _good_side(state: State) -> GoodSide:
    """The cure where there is one, else the last good revision."""
    cure = state.known("triage").get("cure")
    if cure:
        files = state.request.mitigations_files
        stack = [(name, get_mitigation(name, files).env) for name in cure["mitigations"]]
        return GoodSide(mitigations=stack_mitigations(stack))
    found = state.known("bisect")
    if state.is_done("bisect") and found["between"] == "revisions" and len(found["culprits"]) == 1:
        return GoodSide(revision=str(found["culprits"][0]["good"]))
    return GoodSide()


def _bad_side(state: State) -> Side:
    """The reproducer as it ships; where the good side is another revision, the command in its own checkout."""
    if _good_side(state).revision is not None:
        command, env = reduced_command(state)
        return Side("command", {"command": command}, original(state).cwd, env)
    subject = smallest(state)
    return Side("command", {"command": subject.command}, Path(subject.cwd), dict(subject.env))
