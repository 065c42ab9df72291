"""Where do the numbers part? The failing run beside a clean one that an earlier stage found."""

from typing import Any

from aorta.diverge.request import DivergeRequest
from aorta.diverge.running import diverge
from aorta.engine.events import Reason
from aorta.solve.state import Stage, StageResult, State, Status, Stopped
from aorta.solve.subject import environment_of, reduced_in_place, smallest


class Diverge(Stage):
    name = "diverge"
    only_if = "the failure is one of numbers, and something was found that makes it stop"

    def why_not(self, state: State) -> str:
        if state.known("reproduce").get("class") != "nan":
            return "the failure is not one of numbers"
        if environment_of(state.request).isolated:
            return "operations are compared on this machine, and it fails in a container"
        if not _good_side(state):
            return "no clean configuration is known to compare it with"
        return ""

    def __call__(self, state: State) -> StageResult:
        folder, good = state.folder(self.name), _good_side(state)
        # The reproducer as it ships; or, for another revision, the command in a checkout.
        bad = reduced_in_place(state) if "good" in good else smallest(state)
        request = DivergeRequest(
            command=bad.command,
            cwd=bad.cwd,
            bad_set=bad.env,
            **good,
            mitigations_files=state.request.mitigations_files,
            output=state.path,
            name=folder.name,
            **state.how(self.name, folder),
        )
        report = diverge(request, state.listeners(self.name))
        Stopped.check(report.ended)
        if report.ended is Reason.BUDGET:
            why = "stopped before the answer"
            return StageResult(self.name, "budget", why, str(report.run_dir))
        status: Status = "no_answer" if report.first is None else "done"
        why = f"the numbers are {report.status}" if report.first is None else ""
        return StageResult(self.name, status, why, str(report.run_dir), answer=report.to_json())


def _good_side(state: State) -> dict[str, Any]:
    """Options of diverge for the clean side: the cure, else the last good revision."""
    cure = state.known("triage").get("cure")
    if cure:
        return {"good_mitigations": tuple(cure["mitigations"])}
    found = state.known("bisect")
    if state.is_done("bisect") and found["between"] == "revisions" and len(found["culprits"]) == 1:
        return {"good": str(found["culprits"][0]["good"])}
    return {}
