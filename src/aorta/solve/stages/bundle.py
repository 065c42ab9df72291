"""What leaves: scrubbed, packed, unpacked under another home, and run there."""

from dataclasses import dataclass
from pathlib import Path

from aorta.bundle.request import BundleRequest, bundle
from aorta.solve.state import Stage, StageResult, State, Status

_TICKET = "solve"


@dataclass(frozen=True)
class Bundle(Stage):
    name = "bundle"
    check: bool = True  # run what was packed elsewhere

    def __call__(self, state: State) -> StageResult:
        # The reduction with a reproducer, if there is one; else the original's trials.
        reduced = Path(state.reduction.get("run_dir") or state.folder("reproduce"))
        ships = (reduced / "shrunken" / "run_repro.sh").is_file()
        request = BundleRequest(
            run_dir=reduced if ships else state.folder("reproduce"),
            output=state.path,
            ticket=state.request.ticket or _TICKET,
            timeout=state.request.timeout,
            check=self.check,
            allow_binary=state.request.allow_binary,
        )
        older = list(state.path.glob(f"{request.ticket}-*.tar.gz"))  # of a run that was stopped
        packed = bundle(request)
        assert packed is not None  # nobody was asked
        for path in older:
            path.unlink(missing_ok=True)
        checked = packed.checked
        ran = None if checked is None else {"reproduced": checked.reproduced, "of": checked.of}
        answer = {"path": str(packed.path), "sha256": packed.sha256, "elsewhere": ran}
        status: Status = "done"
        why = ""
        if checked is None:
            why = "packed, and not run elsewhere: it has no run_repro.sh that fails by itself"
        elif not checked.reproduces:
            ended = "does not fail the same way" if checked.of else "could not be run"
            status, why = "no_answer", f"packed, but it {ended} elsewhere: {checked.why}"
        trials = 0 if checked is None else checked.of
        return StageResult(self.name, status, why, trials=trials, answer=answer)
