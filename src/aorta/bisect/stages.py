"""One run directory, several searches: each stage has its own journal, all share one lock and one
fingerprint.

The main stage lives in the run directory itself, the others below `stages/`. A stage that was cut
short goes on from its journal when the run is resumed.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from aorta.bisect.trials import BuildFirst, BuildWatch, OneTrial, VersionSets
from aorta.core.errors import UsageError
from aorta.core.failure import Failure
from aorta.engine.events import Listener, Reason
from aorta.engine.judge import Judges, SameJudge
from aorta.engine.question import Answer, Budget, Experiment, Question
from aorta.engine.rundir import RunDir
from aorta.engine.session import Resume, Session
from aorta.executors import Executor
from aorta.search import Search

MAIN = "versions"
_VERB = "bisect"


class Stages:
    """`expected`: the failure that is meant, where somebody knows it already. `listeners` makes
    fresh ones for each stage; all stages share one executor and one budget.
    """

    def __init__(
        self,
        session: Session,
        fingerprint: Mapping[str, object],
        executor: Callable[[], Executor],
        listeners: Callable[[], Sequence[Listener]],
        builds: BuildWatch,
        *,
        budget: Budget,
        same_failure: bool,
        expected: Failure | None,
    ) -> None:
        self.session, self._fingerprint = session, fingerprint
        self._executor, self._listeners, self._builds = executor, listeners, builds
        self._budget, self._same_failure, self._expected = budget, same_failure, expected
        self.answers: dict[str, Answer] = {}
        self.current = self.path

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
        sets: VersionSets | None = None,
        listeners: Sequence[Listener] = (),
        judges: Judges | None = None,
    ) -> Answer:
        question = Question(
            search,
            judges or SameJudge(OneTrial()),
            experiment,
            {**self._fingerprint, "stage": name},
            budget=self._left(),
            guard_signature=self._same_failure,
            expected=self._failure,
            program_varies=True,
        )
        executor = self._executor()
        place = BuildFirst(executor, sets, self._builds) if sets else executor
        everyone = [*self._listeners(), *listeners]
        self.current = self.stage_path(name)
        if name == MAIN:
            answer = self.session.answer(question, place, everyone)
        else:
            with self._side_stage(self.stage_path(name)) as stage:
                answer = stage.answer(question, place, everyone)
        self.answers[name] = answer
        return answer

    @property
    def _failure(self) -> Failure | None:
        """The failure that is searched for, as the first stage that saw one recorded it."""
        seen = next((a.expected for a in self.answers.values() if a.expected), None)
        return seen or self._expected

    def _left(self) -> Budget:
        """One budget for all stages: what the earlier ones spent is gone."""
        budget, earlier = self._budget, self.answers.values()
        trials, seconds = budget.max_trials, budget.max_seconds
        if trials is not None:
            trials = max(0, trials - sum(len(answer.records) for answer in earlier))
        if seconds is not None:
            seconds = max(0.0, seconds - sum(answer.ending.seconds for answer in earlier))
        return replace(budget, max_trials=trials, max_seconds=seconds)

    def stage_path(self, name: str) -> Path:
        return self.path if name == MAIN else self.path / "stages" / name

    def check_question(self) -> None:
        """Refuse to resume with another question, before anything runs."""
        self.session.open_journal({**self._fingerprint, "stage": MAIN}).close()

    def _side_stage(self, path: Path) -> Session:
        run = RunDir(path)
        if not run.journal.exists():
            run.describe(verb=_VERB, stage=path.name)
        return Session(run, resumed=run.journal.exists())


def open_session(prefix: Path, resume: Resume | None, *, is_named: bool = True) -> Session:
    """The run directory `prefix`, new or gone on with. An empty directory of that name counts as
    new; one that nobody named makes way for another of the same second.
    """
    if resume is not None:
        return Session.resuming(prefix.parent, _VERB, replace(resume, run=prefix))
    if is_named and prefix.is_dir() and not any(prefix.iterdir()):
        prefix.rmdir()
    if is_named and prefix.exists():
        raise UsageError(
            "already exists; choose another --output-prefix, or go on with it by --resume",
            where=str(prefix),
        )
    return Session.fresh(prefix.parent, _VERB, name=prefix.name)


def user_cache() -> Path:
    """Where this user keeps what programs can make again."""
    named = os.environ.get("AORTA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "aorta"


def files_named_in(
    command: Sequence[str], directory: Path, mounts: Sequence[str] = ()
) -> dict[str, str]:
    """A digest of every file of the host that the command names, also by its place in a container:
    an edited script is another question.
    """
    found: dict[str, str] = {}
    for word in (word.partition("::")[0] for word in command):
        for path in (directory / word, *_behind(word, directory, mounts)):
            with suppress(OSError, ValueError):
                if path.is_file():
                    found[word] = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return found


def _behind(word: str, directory: Path, mounts: Sequence[str]) -> Iterator[Path]:
    """The files of the host that a path in the container leads to."""
    for mount in mounts:
        source, _, rest = mount.partition(":")
        target = rest.partition(":")[0].rstrip("/")
        if target and (word == target or word.startswith(f"{target}/")):
            yield directory / Path(source).expanduser() / word[len(target) :].lstrip("/")
