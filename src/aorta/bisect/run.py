"""One run: its directory, its logs and its searches one after the other.

Each search is a stage with a journal of its own (the main one in the run directory, others below
`stages/`) and goes on from it on a resume; lock, fingerprint, executor and budget are shared.
"""

import hashlib
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from aorta.bisect.metric import Metric, is_measured
from aorta.bisect.spec import BisectSpec
from aorta.bisect.trials import BuildSteps, OneTrial, ProbedCommand, Skipping, VersionSets
from aorta.bisect.watching import FirstFailure, LogFiles, Say
from aorta.core.errors import UsageError
from aorta.core.oracle import ExitCodeOracle, known_failure
from aorta.core.trial import LOCAL
from aorta.engine.events import Listener, Reason
from aorta.engine.judge import Judges, SameJudge
from aorta.engine.question import Answer, Budget, Experiment, Question
from aorta.engine.rundir import RunDir, write_atomically
from aorta.engine.session import Resume, Session, keep_request
from aorta.executors import Executor
from aorta.runtimes.http_get import without_credentials
from aorta.search import Search

MAIN = "versions"
_VERB = "bisect"


@dataclass(frozen=True)
class ResolvedRequest:
    """Everything a run needs. `executor` is for the whole run; `listeners` for each stage."""

    spec: BisectSpec
    directory: Path
    prefix: Path
    executor: Callable[[], Executor]
    listeners: Callable[[], Sequence[Listener]] = tuple
    say: Say = lambda _: None
    resume: Resume | None = None
    checks: bool = True
    budget: Budget = field(default_factory=Budget)
    summary: bool = False


class _OneInterrupt:
    """The first Ctrl-C stops the search; a second does not stop the final writes, a third does."""

    def __init__(self, say: Say) -> None:
        self._say, self._count = say, 0
        self._before: Any = None

    def begin(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._interrupted)

    def end(self) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _interrupted(self, *_: object) -> None:
        self._count += 1
        if self._count == 2:
            self._say("it is being stopped; what is known is written first")
        else:
            raise KeyboardInterrupt


class BisectRun:
    """One open run directory with its logs and the answers of its stages; used by every way in."""

    def __init__(self, request: ResolvedRequest) -> None:
        self.request = request
        self.session = _open_session(request)
        self.path = self.session.path
        self._began = time.monotonic()
        self.answers: dict[str, Answer] = {}
        self.image_of: Callable[[str], str] = str  # of a day, once they are listed
        self.logs = LogFiles(self.path)
        oracle = request.spec.oracle
        self.metric = Metric(oracle, request.spec.confidence) if is_measured(oracle) else None
        self._interrupts = _OneInterrupt(self.say)
        self._fingerprint = fingerprint(request)
        self._current = self.path
        self._first_failure = FirstFailure(self._directory, self.say)

    def __enter__(self) -> Self:
        self.session.__enter__()
        self._interrupts.begin()
        try:
            # Another question is refused before anything runs.
            self.session.open_journal({**self._fingerprint, "stage": MAIN}).close()
            _keep(self.request, self.session.run)
            self.say(f"whole outputs are written to {self.logs.debug_path}")
        except BaseException as wrong:
            self.__exit__(type(wrong))
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._interrupts.end()
        self.session.__exit__(kind)
        self.logs.close()

    def say(self, text: str) -> None:
        self.request.say(text)
        self.logs.say(text)

    def command(self) -> ProbedCommand:
        spec = self.request.spec
        oracle = Skipping(self.metric or spec.oracle or ExitCodeOracle())
        return ProbedCommand(spec.command, oracle, LOCAL, self.path, dict(spec.env), spec.timeout)

    @property
    def interrupted(self) -> Answer | None:
        """The stage that was cut short, if one was."""
        cut = (a for a in self.answers.values() if a.ending.reason is not Reason.DONE)
        return next(cut, None)

    def stage_path(self, name: str) -> Path:
        return self.path if name == MAIN else self.path / "stages" / name

    def drive(
        self,
        name: str,
        search: Search,
        experiment: Experiment,
        listeners: Sequence[Listener] = (),
        judges: Judges | None = None,
    ) -> Answer:
        """Run one stage to its end; the failure it searches is that of the first that saw one."""
        spec = self.request.spec
        # Between environments other failures are no evidence, unless asked for.
        between = spec.environments is not None
        seen = next((a.expected for a in self.answers.values() if a.expected), None)
        question = Question(
            search,
            judges or SameJudge(OneTrial()),
            experiment,
            {**self._fingerprint, "stage": name},
            budget=self._left(),
            guard_signature=spec.same_failure or (between and not spec.any_failure),
            expected=seen or known_failure(spec.oracle),
            program_varies=True,
            must_tell=name == MAIN,
        )
        executor = self.request.executor()
        place = executor
        if isinstance(experiment, VersionSets):
            place = BuildSteps(executor, experiment, self.say)
        own: list[Listener] = [self.logs.listener(self._directory), self._first_failure]
        everyone = [*self.request.listeners(), *own, *listeners]
        self._current = self.stage_path(name)
        if name == MAIN:
            self.answers[name] = self.session.answer(question, place, everyone)
            return self.answers[name]
        run = RunDir(self._current)
        if not run.journal.exists():
            run.describe(verb=_VERB, stage=name)
        with Session(run, resumed=run.journal.exists()) as stage:
            self.answers[name] = stage.answer(question, place, everyone)
        self.session.count(self.answers[name].ending)
        return self.answers[name]

    def _directory(self) -> Path:
        """Of the stage that runs."""
        return self._current

    def _left(self) -> Budget:
        """One budget for all stages: what the earlier ones spent is gone."""
        budget = self.request.budget.less(time.monotonic() - self._began)
        if budget.max_trials is None:
            return budget
        spent = sum(len(answer.records) for answer in self.answers.values())
        return replace(budget, max_trials=max(0, budget.max_trials - spent))


def _open_session(request: ResolvedRequest) -> Session:
    """The run directory, new or gone on with. An empty directory of that name counts as new."""
    prefix = request.prefix
    if request.resume is not None:
        return Session.resuming(prefix.parent, _VERB, replace(request.resume, run=prefix))
    if prefix.is_dir() and not any(prefix.iterdir()):
        prefix.rmdir()
    if prefix.exists():
        raise UsageError(
            "already exists; choose another --output-prefix, or go on with it by --resume",
            where=str(prefix),
        )
    return Session.fresh(prefix.parent, _VERB, name=prefix.name)


# -- what was asked


@dataclass(frozen=True)
class KeptQuestion:
    """What a run was asked, as it is kept in its directory: `--resume` needs nothing else."""

    spec: BisectSpec
    directory: Path
    checks: bool


def _keep(request: ResolvedRequest, run: RunDir) -> None:
    keep_request(
        run, KeptQuestion(_without_tokens(request.spec), request.directory, request.checks)
    )
    if any((folder / ".git").exists() for folder in run.path.parents):
        # No untracked files in the user's repository.
        write_atomically(run.path / ".gitignore", "*\n")


def _without_tokens(spec: BisectSpec) -> BisectSpec:
    """Remotes without their credentials: those stay with whoever gave them."""
    packages = tuple(
        package.model_copy(update={"remote": without_credentials(package.remote)})
        if package.remote
        else package
        for package in spec.packages
    )
    return spec.model_copy(update={"packages": packages})


def fingerprint(request: ResolvedRequest) -> dict[str, object]:
    """What makes two runs the same question, with the content of the files that are named."""
    spec, directory = request.spec, request.directory
    content = _without_tokens(spec).model_dump(
        mode="json", exclude={"command", "timeout", "build_timeout"}
    )
    found: dict[str, object] = {
        "command": list(spec.command),
        "files of the command": _digests(spec.command, directory),
        "spec": content,
    }
    if spec.environments is not None:
        ends = (spec.environments.good, spec.environments.bad)
        found["environments"] = _digests(ends, directory)
    return found


def _digests(words: Sequence[str], directory: Path) -> dict[str, str]:
    """Of every file of the host that is named."""
    found: dict[str, str] = {}
    for word in (word.partition("::")[0] for word in words):
        with suppress(OSError, ValueError):
            if (directory / word).is_file():
                content = (directory / word).read_bytes()
                found[word] = hashlib.sha256(content).hexdigest()[:16]
    return found
