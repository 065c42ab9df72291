"""One run directory, several searches: each stage has its own journal, all share one lock and one fingerprint.

The main stage lives in the run directory itself, the others below `stages/`. A stage that was cut short goes on from
its journal when the run is resumed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aorta.bisect.trials import BuildFirst, BuildWatch, OneTrial, Workshop
from aorta.core.errors import UsageError
from aorta.core.signature import Signature
from aorta.engine.events import Listener, Reason
from aorta.engine.judge import Judges, SameJudge
from aorta.engine.question import Answer, Budget, Experiment, Question
from aorta.engine.rundir import RunDir
from aorta.engine.session import Resume, Session
from aorta.executors import Executor
from aorta.search import Search

MAIN = "versions"
_VERB = "bisect"


@dataclass(frozen=True)
class Workplace:
    """Where and how trials run, whatever the search. Each stage opens its own executor and its own view."""

    executor: Callable[[], Executor]
    listeners: Callable[[], Sequence[Listener]] = tuple
    budget: Budget = field(default_factory=Budget)
    same_failure: bool = False
    builds: BuildWatch | None = None


class Stages:
    def __init__(
        self, session: Session, fingerprint: Mapping[str, object], place: Workplace
    ) -> None:
        self.session, self._fingerprint, self._place = session, fingerprint, place
        self.answers: dict[str, Answer] = {}
        self.current, self.stage = self.path, MAIN

    @property
    def path(self) -> Path:
        return self.session.path

    @property
    def interrupted(self) -> Answer | None:
        """The stage that was cut short, if one was."""
        cut = (a for a in self.answers.values() if a.ending.reason is not Reason.DONE)
        return next(cut, None)

    def drive(
        self,
        name: str,
        search: Search,
        experiment: Experiment,
        workshop: Workshop | None = None,
        listeners: Sequence[Listener] = (),
        judges: Judges | None = None,
    ) -> Answer:
        question = Question(
            search,
            judges or SameJudge(OneTrial()),
            experiment,
            {**self._fingerprint, "stage": name},
            budget=self._left(),
            guard_signature=self._place.same_failure,
            expected=self._failure,
        )
        executor = self._place.executor()
        place = BuildFirst(executor, workshop, self._place.builds) if workshop else executor
        everyone = [*self._place.listeners(), *listeners]
        self.current, self.stage = self.stage_path(name), name
        if name == MAIN:
            answer = self.session.answer(question, place, everyone)
        else:
            with self._side_stage(self.stage_path(name)) as stage:
                answer = stage.answer(question, place, everyone)
        self.answers[name] = answer
        return answer

    @property
    def _failure(self) -> Signature | None:
        """The failure that is searched for, as the first stage that saw one saw it: a later one keeps to it."""
        return next((a.expected for a in self.answers.values() if a.expected), None)

    def _left(self) -> Budget:
        """One budget for all stages: what the earlier ones spent is gone."""
        budget, earlier = self._place.budget, self.answers.values()
        trials, seconds = budget.max_trials, budget.max_seconds
        if trials is not None:
            trials = max(0, trials - sum(len(answer.records) for answer in earlier))
        if seconds is not None:
            seconds = max(0.0, seconds - sum(answer.ending.seconds for answer in earlier))
        return replace(budget, max_trials=trials, max_seconds=seconds)

    def stage_path(self, name: str) -> Path:
        return self.path if name == MAIN else self.path / "stages" / name

    def check_question(self) -> None:
        """Refuse to go on with another question, before anything is run; from here on the run can be resumed."""
        self.session.open_journal({**self._fingerprint, "stage": MAIN}).close()

    def _side_stage(self, path: Path) -> Session:
        run = RunDir(path)
        if not run.journal.exists():
            run.describe(verb=_VERB, stage=path.name)
        return Session(run, resumed=run.journal.exists(), salvage=self.session.salvage)


def open_session(prefix: Path, resume: Resume | None) -> Session:
    """The run directory `prefix`, new or gone on with. An empty directory of that name counts as new."""
    if resume is not None:
        return Session.resuming(prefix.parent, _VERB, replace(resume, run=prefix))
    if prefix.is_dir() and not any(prefix.iterdir()):
        prefix.rmdir()
    if prefix.exists():
        raise UsageError(
            "already exists; choose another --output-prefix, or go on with it by --resume",
            where=str(prefix),
        )
    return Session.fresh(prefix.parent, _VERB, name=prefix.name)
