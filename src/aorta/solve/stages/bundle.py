"""What leaves: scrubbed, packed, unpacked into an empty directory under another home, and run there."""

from dataclasses import dataclass
from pathlib import Path

from aorta.bundle.pack import prepared, write
from aorta.bundle.policy import Policy
from aorta.bundle.reading import DEFAULT_MAX_BYTES, verify
from aorta.bundle.rehearsal import rehearse
from aorta.core.errors import AortaError
from aorta.engine.rundir import RunDir
from aorta.solve.state import StageResult, State

_TICKET = "solve"


@dataclass(frozen=True)
class Bundle:
    name: str = "bundle"

    def why_not(self, state: State) -> str:
        return "" if state.is_done("reproduce") else "there is nothing to ship"

    def __call__(self, state: State) -> StageResult:
        source = _source(state)
        ticket = state.request.ticket or _TICKET
        try:
            with prepared(source, ticket, Policy(), (), state.path) as packing:
                draft = write(packing, state.run.private / "draft")
                checked = None
                if packing.source.reproduces:
                    programs = [str(place) for place in RunDir(source).about().get("programs", [])]
                    timeout = state.request.timeout
                    checked = rehearse(draft, programs=programs, timeout=timeout)
                path = write(packing, state.path, checked)
                draft.unlink()
        except AortaError as wrong:
            return StageResult(self.name, "failed", str(wrong))
        answer = {
            "path": str(path),
            "sha256": verify(path, DEFAULT_MAX_BYTES).sha256,
            "elsewhere": None
            if checked is None
            else {"reproduced": checked.reproduced, "of": checked.of},
        }
        if checked is None:
            why = "packed; what is in it was not run elsewhere, because it needs the original's directory"
            return StageResult(self.name, "done", why, answer=answer)
        if not checked.reproduces:
            why = f"packed, but it does not fail the same way elsewhere: {checked.why}"
            return StageResult(self.name, "no_answer", why, answer=answer)
        return StageResult(self.name, "done", trials=checked.of, answer=answer)


def _source(state: State) -> Path:
    """The reduction, where there is one with a reproducer in it; else the trials of the original."""
    reduced = state.known("reduce").get("run_dir")
    if reduced and (Path(reduced) / "shrunken" / "run_repro.sh").is_file():
        return Path(reduced)
    return state.folder("reproduce")
