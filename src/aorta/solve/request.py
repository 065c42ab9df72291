"""What is asked of `aorta solve`, and what is kept of it so that a resumed run needs no more than
its directory.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aorta.core.errors import ResumeError, UsageError
from aorta.engine.events import Listener
from aorta.engine.rundir import RunDir, write_atomically
from aorta.engine.session import Resume
from aorta.executors.choosing import ExecutorChoice
from aorta.registry.mitigations import load_mitigations

if TYPE_CHECKING:
    from aorta.solve.solution import Solution

STAGES = ("reproduce", "reduce", "triage", "bisect", "diverge", "isolate", "source", "bundle")
WANTED = tuple(name for name in STAGES if name != "source")  # unless stages are named
_ASKED = "request.json"
_NOT_KEPT = frozenset({"executor", "resume"})  # a run may be gone on with elsewhere


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
    def jobs(self) -> int:
        return self.executor.jobs or 1

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
        if "reproduce" not in self.stages:
            raise UsageError(
                "the stage reproduce cannot be left out: all others need what it finds"
            )
        absolute = [p if p is None else p.absolute() for p in (self.source, self.spec)]
        files = tuple(path.absolute() for path in self.mitigations_files)
        load_mitigations(files)  # what is wrong with them is said before anything runs
        return replace(
            self,
            source=absolute[0],
            spec=absolute[1],
            directory=self.directory.absolute(),
            output=self.output.absolute(),
            mitigations_files=files,
        )

    def to_json(self) -> dict[str, Any]:
        kept = (name for name in vars(self) if name not in _NOT_KEPT)
        return {name: _plain(getattr(self, name)) for name in kept}


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def solve(
    request: SolveRequest,
    listeners: Callable[[str], Sequence[Listener]] = lambda _stage: (),
    say: Callable[[str], None] = lambda _text: None,
    written: Callable[[Path], None] = lambda _run_dir: None,
) -> "Solution":
    """From a failing command to all that can be found out about it within the budget. `listeners`
    of a stage, by its name; `written` is called whenever the summary was written anew.
    """
    from aorta.solve import running

    views = Views(listeners, say, written)
    if request.source is not None and RunDir(request.source).about().get("verb") == "solve":
        request = replace(request, resume=Resume(request.source))
    if request.resume is not None:
        return running.go_on(request, views)
    return running.begin(request, views)


@dataclass(frozen=True)
class Views:
    """Who looks on: fresh listeners for each stage, who hears which one begins, and who is called
    with the run directory whenever `solve.json` was written.
    """

    listeners: Callable[[str], Sequence[Listener]] = lambda _stage: ()
    say: Callable[[str], None] = lambda _text: None
    written: Callable[[Path], None] = lambda _run_dir: None


def stages_from(wanted: Sequence[str], left_out: Sequence[str]) -> tuple[str, ...]:
    """The stages that `--stages` and `--skip` leave, in their order."""
    for name in (*wanted, *left_out):
        if name not in STAGES:
            raise UsageError(f"{name!r} is no stage; expected some of {', '.join(STAGES)}")
    if "reproduce" in left_out:
        raise UsageError("the stage reproduce cannot be left out: all others need what it finds")
    chosen = {*wanted, "reproduce"} if wanted else WANTED
    return tuple(name for name in STAGES if name in chosen and name not in left_out)


def keep_request(run: RunDir, request: SolveRequest) -> None:
    place = run.private / _ASKED
    if not place.exists():
        write_atomically(place, json.dumps(request.to_json(), indent=2) + "\n")
        place.chmod(0o600)  # a command line may hold a secret


def kept_request(run: RunDir, now: SolveRequest) -> SolveRequest:
    """The original request, with where trials run `now` and what may be spent from now on."""
    try:
        asked = json.loads((run.private / _ASKED).read_bytes())
    except (OSError, ValueError):
        raise ResumeError(
            "it does not say what was asked; expected a directory that solve wrote",
            where=str(run.path),
        ) from None
    paths = ("source", "spec", "directory", "output")
    asked |= {name: Path(asked[name]) for name in paths if asked[name] is not None}
    asked |= {name: tuple(asked[name]) for name in ("command", "stages", "find_links")}
    asked["mitigations_files"] = tuple(map(Path, asked["mitigations_files"]))
    begun = SolveRequest(**asked, executor=now.executor)
    return replace(begun, max_trials=now.max_trials or begun.max_trials)
