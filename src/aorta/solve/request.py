"""What is asked of `aorta solve`, kept so that a resumed run needs its directory alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aorta.core.errors import UsageError
from aorta.engine.session import Resume
from aorta.executors.choosing import ExecutorChoice
from aorta.registry.mitigations import load_mitigations

STAGES = ("reproduce", "reduce", "triage", "bisect", "diverge", "isolate", "source", "bundle")
WANTED = tuple(name for name in STAGES if name != "source")  # unless stages are named


@dataclass(frozen=True, kw_only=True)
class SolveRequest:
    """A failing command, or another verb's directory, and what may be spent on it."""

    command: tuple[str, ...] = ()
    source: Path | None = None  # a case, or the run directory of another verb
    spec: Path | None = None
    directory: Path = Path()
    output: Path = Path("solve")
    # Of every trial; None: what a spec or recipe says, else this machine.
    environment: str | None = None
    good: str | None = None
    index_url: str | None = None  # where releases between two environments come from
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    budget: float | None = None  # seconds
    max_trials: int | None = None
    stages: tuple[str, ...] = WANTED
    ticket: str | None = None
    allow_binary: bool = False  # data that is no text may leave as it is
    timeout: float | None = None  # of one trial
    # What counts as the failure; None: what the first one shows.
    oracle: dict[str, Any] | None = None
    mitigations_files: tuple[Path, ...] = ()
    executor: ExecutorChoice = field(default_factory=ExecutorChoice)
    resume: Resume | None = None  # nothing else is asked then but where trials run

    @property
    def on_several_nodes(self) -> bool:
        return self.executor.name == "slurm" and self.executor.resources.nodes > 1

    def checked(self) -> "SolveRequest":
        given = [bool(self.command), self.source is not None, self.spec is not None]
        if sum(given) != 1:
            raise UsageError(
                "give one thing to solve: a command behind --, a directory of a case or a run, or "
                "--spec"
            )
        if self.source is not None and not self.source.is_dir():
            raise UsageError(
                "there is no such directory; expected a case or a run, or a command behind --",
                where=str(self.source),
            )
        load_mitigations(self.mitigations_files)  # what is wrong with them is said at once
        return replace(
            self,
            source=self.source and self.source.absolute(),
            spec=self.spec and self.spec.absolute(),
            directory=self.directory.absolute(),
            output=self.output.absolute(),
            mitigations_files=tuple(path.absolute() for path in self.mitigations_files),
        )


def stages_from(wanted: Sequence[str], left_out: Sequence[str]) -> tuple[str, ...]:
    """The stages that `--stages` and `--skip` leave, in their order."""
    for name in (*wanted, *left_out):
        if name not in STAGES:
            raise UsageError(f"{name!r} is no stage; expected some of {', '.join(STAGES)}")
    if "reproduce" in left_out:
        raise UsageError("the stage reproduce cannot be left out: all others need what it finds")
    chosen = {*wanted, "reproduce"} if wanted else WANTED
    return tuple(name for name in STAGES if name in chosen and name not in left_out)
