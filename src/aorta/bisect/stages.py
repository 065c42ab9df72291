"""One run directory, several searches: each stage has its own journal, all share one lock and one
fingerprint.

The main stage lives in the run directory itself, the others below `stages/`. A stage that was cut
short goes on from its journal when the run is resumed. And what earlier runs of this user found
out, by everything that decides an outcome: versions, command, image, build, oracle. A run reads
that once, when it begins, and adds its own; what could not be told is never kept.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from aorta.bisect.package import Package, Versions, whole
from aorta.bisect.trials import Builder, BuildFirst, BuildWatch, OneTrial
from aorta.core.axis import Purpose
from aorta.core.errors import UsageError
from aorta.core.failure import Failure
from aorta.core.trial import Outcome
from aorta.engine.events import Event, Listener, Reason, TrialEnded
from aorta.engine.judge import Judges, SameJudge
from aorta.engine.question import Answer, Budget, Experiment, Question
from aorta.engine.rundir import RunDir, write_atomically
from aorta.engine.session import Resume, Session
from aorta.executors import Executor
from aorta.search import Search
from aorta.search.timeline import Timeline

KnownT = TypeVar("KnownT")

MAIN = "versions"
_VERB = "bisect"
_EVIDENCE = {Outcome.REPRODUCED.value: True, Outcome.CLEAN.value: False}


@dataclass(frozen=True)
class Workplace:
    """Where and how trials run, whatever the search. All stages share one executor; each has views
    of its own.
    """

    executor: Callable[[], Executor]
    listeners: Callable[[], Sequence[Listener]] = tuple
    budget: Budget = field(default_factory=Budget)
    same_failure: bool = False
    expected: Failure | None = None  # the one that is meant, where somebody knows it already
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
        builder: Builder | None = None,
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
        place = BuildFirst(executor, builder, self._place.builds) if builder else executor
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
    def _failure(self) -> Failure | None:
        """The failure that is searched for, as the first stage that saw one saw it: a later one
        keeps to it.
        """
        seen = next((a.expected for a in self.answers.values() if a.expected), None)
        return seen or self._place.expected

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
        """Refuse to go on with another question, before anything is run; from here on the run can
        be resumed.
        """
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


# -- what earlier runs found out


def default_cache(*, knows_what_was_read: bool) -> Path | None:
    """None, unless everything that a test can read is part of the question: what a test of the host
    sources or imports is not, so that an edited helper would be answered by old outcomes.
    """
    return user_cache() / "bisect" if knows_what_was_read else None


def user_cache() -> Path:
    """Where this user keeps what programs can make again."""
    named = os.environ.get("AORTA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "aorta"


class OutcomeCache:
    """`question` is what all version sets of a run have in common."""

    def __init__(self, root: Path | None, question: Mapping[str, object]) -> None:
        self._root = root
        self._question = json.dumps(question, sort_keys=True, default=str)

    def known(self, versions: Mapping[str, str]) -> list[bool]:
        return [_EVIDENCE[line] for line in self._lines(versions) if line in _EVIDENCE]

    def known_values(self, versions: Mapping[str, str]) -> list[float]:
        """What was measured, where a number decides."""
        values = (_number(line) for line in self._lines(versions))
        return [value for value in values if value is not None]

    def add(
        self, versions: Mapping[str, str], outcome: Outcome, value: float | None = None
    ) -> None:
        if value is not None:
            self._append(versions, repr(value))
        elif outcome.value in _EVIDENCE:
            self._append(versions, outcome.value)

    def listener(self, packages: Sequence[Package]) -> Listener:
        """Keeps what the trials of a search come to."""

        def listen(event: Event) -> None:
            if isinstance(event, TrialEnded) and not event.replayed:
                versions = {name: str(value) for name, value in event.record.point.values}
                self.add(whole(packages, versions), event.record.outcome, event.record.value)

        return listen

    def _lines(self, versions: Mapping[str, str]) -> list[str]:
        try:
            path = self._file(versions) if self._root else None
            return path.read_text(encoding="utf-8").splitlines() if path else []
        except OSError:
            return []

    def _append(self, versions: Mapping[str, str], line: str) -> None:
        """A cache that cannot be written is no reason to stop."""
        if self._root is None:
            return
        path = self._file(versions)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")

    def _file(self, versions: Mapping[str, str]) -> Path:
        content = f"{self._question}\n{json.dumps(sorted(versions.items()))}"
        digest = hashlib.sha256(content.encode()).hexdigest()
        return (self._root or Path()) / digest[:2] / digest


def known_at_first(
    kept: Path,
    timeline: Timeline,
    packages: Sequence[Package],
    look_up: Callable[[Versions], list[KnownT]],
) -> dict[str, list[KnownT]]:
    """What is known by the key of its point, as it was when a stage first began: a resumed run must
    not take its own trials for those of another.
    """
    if kept.exists():
        found: dict[str, list[KnownT]] = json.loads(kept.read_text(encoding="utf-8"))
        return found
    points = {
        timeline.point(state, Purpose.PROBE, 0).config_key: timeline.versions(state)
        for state in timeline.every_state()
    }
    known = {key: look_up(whole(packages, versions)) for key, versions in points.items()}
    found = {key: answers for key, answers in known.items() if answers}
    write_atomically(kept, json.dumps(found))
    return found


def _number(line: str) -> float | None:
    try:
        return float(line)
    except ValueError:
        return None


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
