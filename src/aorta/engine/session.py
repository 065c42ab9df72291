"""One run of any verb, from output directory to ending: claim or resume, lock, journal, engine."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

from pydantic import BaseModel, TypeAdapter

from aorta.core.errors import ResumeError
from aorta.engine.drive import Engine
from aorta.engine.events import Ending, Listener, Reason
from aorta.engine.journal import Journal
from aorta.engine.question import Answer, Question
from aorta.engine.rundir import RunDir, RunLock, claim_run_dir, find_resumable, writing
from aorta.executors import Executor

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_REQUEST = "request.json"
_LIMITS = ("max_trials", "max_wall_clock")
_Request = TypeVar("_Request", bound="DataclassInstance")


@dataclass(frozen=True)
class Resume:
    """Which run to go on with."""

    run: Path | None = None  # None: the newest unfinished one


class _Resumable(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def resume(self) -> Resume | None: ...


_Resuming = TypeVar("_Resuming", bound=_Resumable)


class Session:
    """A locked run directory. A context manager: the lock goes however it is left."""

    def __init__(self, run: RunDir, *, resumed: bool) -> None:
        self.run = run
        self.resumed = resumed
        self._lock = RunLock(run.lock)
        self._ending: Ending | None = None

    @classmethod
    def fresh(
        cls,
        parent: Path,
        verb: str,
        *,
        name: str | None = None,
        private_beside: bool = False,
        **about: Any,
    ) -> "Session":
        run = claim_run_dir(parent, verb, name=name, private_beside=private_beside, **about)
        return cls(run, resumed=False)

    @classmethod
    def resuming(cls, output: Path, verb: str, resume: Resume | None = None) -> "Session":
        return cls(find_resumable(output, verb, resume.run if resume else None), resumed=True)

    @property
    def path(self) -> Path:
        return self.run.path

    def __enter__(self) -> Self:
        self._lock.take()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """A run is over when its results are written; until then it can be resumed."""
        try:
            if kind is None and self._ending is not None:
                self.run.ends(self._ending.reason, trials=self._ending.trials)
        finally:
            self._lock.release()

    def answer(
        self, question: Question, executor: Executor, listeners: Sequence[Listener] = ()
    ) -> Answer:
        """Drive the question to its end. Its state is written down when the session is left. The
        time of its budget begins when a run is gone on with; its trials are those of the whole run.
        """
        budget = replace(question.budget, anew=self.resumed)
        question = replace(question, budget=budget)
        engine = Engine(
            question,
            executor,
            self.open_journal(question.fingerprint),
            self.run.private if question.private_trials else self.path,
            listeners,
        )
        answer = engine.run()
        self.count(answer.ending)
        return answer

    def count(self, ending: Ending) -> None:
        """Of one of its questions: what was stopped is not over, whatever is asked after it."""
        if self._ending is None or self._ending.reason is Reason.DONE:
            self._ending = ending

    def open_journal(self, fingerprint: Mapping[str, object]) -> Journal:
        if self.run.journal.exists():
            return Journal.resume(self.run.journal, fingerprint)
        return Journal.create(self.run.journal, fingerprint)


def keep_request(run: RunDir, request: "DataclassInstance") -> None:
    """So that `--resume` needs the directory alone. Private: a command line may hold a secret."""
    place = run.private / _REQUEST
    place.touch(mode=0o600)
    with writing(place):
        place.write_text(json.dumps(asdict(request), default=_plain), encoding="utf-8")


def begun_with(run: RunDir, kind: type[_Request]) -> _Request:
    """The request that a run was begun with."""
    try:
        text = (run.private / _REQUEST).read_bytes()
        return TypeAdapter(kind).validate_python(json.loads(text))
    except PermissionError as wrong:
        raise ResumeError(f"cannot read it: {wrong.strerror}", where=str(wrong.filename)) from None
    except (OSError, ValueError):  # none, or one whose writer was killed
        why = "it does not say what was asked; give the whole command line again"
        raise ResumeError(why, where=str(run.path)) from None


def taken_up(
    request: _Resuming, output: Path, verb: str, *, is_whole: bool, say: Callable[[str], None]
) -> _Resuming:
    """The request that goes on with a run, which it names: what that was begun with, unless it
    `is_whole` itself. `say` is told which run, where nobody named it.
    """
    if request.resume is None:
        return request
    run = find_resumable(output, verb, request.resume.run)
    if request.resume.run is None:
        say(f"resuming {run.path}")
    request = replace(request, resume=Resume(run.path))
    return request if is_whole else kept_request(run, request)


def kept_request(run: RunDir, now: _Request) -> _Request:
    """The request that a run was begun with, under whatever `now` says that is not a default. What
    may be spent is never kept: a run that its budget ended could not be gone on with.
    """
    limits = {each.name: getattr(now, each.name) for each in fields(now) if each.name in _LIMITS}
    return replace(_over(begun_with(run, type(now)), now), **limits)


def _over(begun: _Request, now: _Request) -> _Request:
    usual = type(now)()
    changed = {}
    for name in (each.name for each in fields(now)):
        value, before = getattr(now, name), getattr(begun, name)
        if value != getattr(usual, name):
            both = is_dataclass(value) and type(value) is type(before)
            changed[name] = _over(before, value) if both else value
    return replace(begun, **changed)


def _plain(value: object) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)
