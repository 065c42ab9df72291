"""What leaves: scrubbed, packed, unpacked into an empty directory under another home, and run
there.
"""

from dataclasses import dataclass
from pathlib import Path

from aorta.bundle.request import BundleRequest, bundle
from aorta.core.errors import AortaError
from aorta.solve.state import Stage, StageResult, State

_TICKET = "solve"


@dataclass(frozen=True)
class Bundle(Stage):
    name = "bundle"
    check: bool = True  # run what was packed elsewhere

    def __call__(self, state: State) -> StageResult:
        request = BundleRequest(
            run_dir=_source(state),
            output=state.path,
            ticket=state.request.ticket or _TICKET,
            timeout=state.request.timeout,
            check=self.check,
            allow_binary=state.request.allow_binary,
        )
        older = list(state.path.glob(f"{request.ticket}-*.tar.gz"))  # of a run that was stopped
        try:
            packed = bundle(request)
        except AortaError as wrong:
            return StageResult(self.name, "failed", str(wrong))
        assert packed is not None  # nobody was asked
        for path in older:
            path.unlink(missing_ok=True)
        checked = packed.checked
        ran = None if checked is None else {"reproduced": checked.reproduced, "of": checked.of}
        answer = {"path": str(packed.path), "sha256": packed.sha256, "elsewhere": ran}
        if not self.check:
            return StageResult(self.name, "done", "packed, and not run elsewhere", answer=answer)
        if checked is None:
            why = f"packed, and not run elsewhere: {_why_not_run(state)}"
            return StageResult(self.name, "done", why, answer=answer)
        if not checked.reproduces:
            ended = "does not fail the same way" if checked.of else "could not be run"
            why = f"packed, but it {ended} elsewhere: {checked.why}"
            return StageResult(self.name, "no_answer", why, answer=answer)
        return StageResult(self.name, "done", trials=checked.of, answer=answer)


def _why_not_run(state: State) -> str:
    shipped = state.reduction.get("shipped_copy") or {}
    if _source(state) == state.folder("reproduce"):
        return "there is no reproducer in it, only the logs of the failing runs"
    if shipped.get("in_original_directory"):
        return "its run_repro.sh needs the directory of the original"
    if shipped.get("self_contained") is None:
        return "there was no time to try its run_repro.sh"
    return "its run_repro.sh does not fail by itself"


def _source(state: State) -> Path:
    """The reduction with a reproducer, if there is one; else the original's trials."""
    reduced = state.reduction.get("run_dir")
    if reduced and (Path(reduced) / "shrunken" / "run_repro.sh").is_file():
        return Path(reduced)
    return state.folder("reproduce")
