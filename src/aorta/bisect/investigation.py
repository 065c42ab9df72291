"""A bisection from packages to findings: the main search, then what the answer itself asks for.

Main search -> the commit inside a merge -> the partner without which the culprit does no harm. Each is a search of its
own over other histories; all of them run the same command in the same way.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from aorta.bisect.building import Workshop
from aorta.bisect.cache import OutcomeCache
from aorta.bisect.experiment import Assigns, ProbedCommand, VersionsExperiment
from aorta.bisect.histories import Line, merged_line
from aorta.bisect.metric import MeasuredEnds, Metric
from aorta.bisect.package import Package, moving, whole
from aorta.bisect.stages import MAIN, Stages
from aorta.core.outcome import Verdict
from aorta.core.point import Point, Purpose
from aorta.engine import events
from aorta.engine.events import Event, Listener
from aorta.engine.judge import Judges
from aorta.engine.question import Answer
from aorta.engine.rundir import PRIVATE, write_atomically
from aorta.search import Search
from aorta.search.bisection import Settings, TimelineBisection
from aorta.search.ends import EndsVerdict
from aorta.search.interval import Interval
from aorta.search.remembered import Remembered
from aorta.search.timeline import Timeline

KnownT = TypeVar("KnownT")

_SENTINELS = 2
_SURELY_SILENT = 0.02


class Workshops(Workshop, Assigns, Protocol):
    """Makes version sets, and is told which trial is of which."""


MakeWorkshop = Callable[[Sequence[Package]], Workshops]


@dataclass(frozen=True)
class Setting:
    """Everything the searches share."""

    stages: Stages
    command: ProbedCommand
    workshop: MakeWorkshop
    cache: OutcomeCache
    confidence: float
    check_ends: bool = True
    checks: bool = True
    into_merges: bool = True
    on_search: Callable[[TimelineBisection], Sequence[Listener]] = lambda _: ()
    metric: Metric | None = None
    say: Callable[[str], None] = lambda _: None


@dataclass(frozen=True)
class Found:
    """One finished search: what it knows, and the packages its versions are of."""

    search: TimelineBisection
    packages: Sequence[Package]
    answer: Answer
    cached: int = 0
    alike: str | None = None  # why its two ends cannot be told apart
    undecided: Mapping[str, str] = field(default_factory=dict)  # why, by the key of a configuration

    @property
    def interval(self) -> Interval | None:
        return self.search.answer

    @property
    def is_sure(self) -> bool:
        return self.search.is_sure

    @property
    def single(self) -> tuple[Package, int] | None:
        """The package and the rank of the one change that did it."""
        interval = self.interval
        if interval is None or self.alike or not self.is_sure or len(interval.changes) != 1:
            return None
        change = interval.changes[0]
        return moving(self.packages)[change.package], change.rank

    def version_set(self, point: Point) -> frozenset[tuple[str, str]]:
        """What a point of this search is made of, packages that stand still included."""
        named = {name: str(value) for name, value in point.values}
        return frozenset(whole(self.packages, named).items())

    def versions(self, vector: Sequence[int]) -> dict[str, str]:
        return whole(self.packages, self.search.timeline.versions(tuple(vector)))


@dataclass
class Outcome:
    """What the searches brought. `inner` is the search inside a merge, `partner` the one for a needed commit."""

    main: Found
    inner: Found | None = None
    merge: str | None = None
    partner: Found | None = None
    partner_search: Found | None = None  # also where it found that there is none
    searched: list[Found] = field(default_factory=list)  # the main search and those inside merges
    warnings: list[str] = field(default_factory=list)


def investigate(setting: Setting, packages: Sequence[Package]) -> Outcome:
    setting.say(_between_words(packages))
    main = _search(setting, MAIN, packages, sentinels=True)
    outcome = Outcome(main, searched=[main])
    if setting.stages.interrupted or main.single is None:
        return outcome
    if setting.into_merges:
        _look_into_merge(setting, outcome)
    if setting.checks and not setting.stages.interrupted:
        _look_for_partner(setting, outcome)
    return outcome


def _between_words(packages: Sequence[Package]) -> str:
    spans = (
        f"{p.name} {p.versions[0][:12]}..{p.versions[-1][:12]} ({len(p.versions) - 1})"
        for p in moving(packages)
    )
    return f"bisecting the changes of {', '.join(spans)}"


def _search(
    setting: Setting,
    name: str,
    packages: Sequence[Package],
    *,
    sentinels: bool = False,
    silent: int | None = None,
    assume: Mapping[tuple[int, ...], tuple[int, int]] | None = None,
) -> Found:
    buildless = not any(package.spec.build for package in packages)
    base = Settings()
    settings = Settings(
        confidence=setting.confidence,
        check_ends=setting.check_ends or name != MAIN,
        sentinels=_SENTINELS if sentinels and setting.checks and buildless else 0,
        silent=silent or base.silent,
    )
    timeline = Timeline([package.history for package in moving(packages)])
    search = TimelineBisection(timeline, settings)
    for vector, counts in (assume or {}).items():
        search.assume(vector, counts)
    _skip(search, packages)
    workshop = setting.workshop(packages)
    experiment = VersionsExperiment(setting.command, packages, workshop)
    listeners = [*setting.on_search(search), _cache_listener(setting.cache, packages)]

    def drive(asked: Search, judges: Judges | None = None) -> Answer:
        return setting.stages.drive(name, asked, experiment, workshop, listeners, judges)

    if setting.metric:
        listeners.append(setting.metric.listen)
        ends = _measured_ends(setting.metric, setting, name, search, packages)
        before = setting.metric.cached
        answer = drive(ends or search, setting.metric)
        used = setting.metric.cached - before
        undecided = dict(setting.metric.undecided)
        return Found(search, packages, answer, used, ends.alike if ends else None, undecided)
    known = _known(setting, name, timeline, packages, setting.cache.known)
    remembered = Remembered(search, lambda point: known.get(point.config_key, ()))
    answer = drive(remembered)
    return Found(search, packages, answer, remembered.used)


def _skip(search: TimelineBisection, packages: Sequence[Package]) -> None:
    """States that the user says cannot be tested; an end must be, whatever is said of it."""
    names = {package.name: package.skipped for package in packages if package.skipped}
    for position in range(1, search.timeline.changes) if names else ():
        vector = search.timeline.state(position)
        versions = search.timeline.versions(vector)
        if any(version in names.get(name, ()) for name, version in versions.items()):
            point = search.timeline.point(vector, Purpose.PROBE, 0)
            search.remember(point, Verdict(None, why="skipped as asked"))


def _measured_ends(
    metric: Metric,
    setting: Setting,
    name: str,
    search: TimelineBisection,
    packages: Sequence[Package],
) -> MeasuredEnds | None:
    """The main search measures its ends first; the searches after it know the two levels already."""
    cached = setting.cache.known_values
    metric.begin_stage(_known(setting, name, search.timeline, packages, cached))
    if name == MAIN and setting.check_ends:
        return MeasuredEnds(search, metric)
    if metric.levels is None:
        metric.take_samples()
    return None


def _look_into_merge(setting: Setting, outcome: Outcome) -> None:
    """A merge brings a branch at once; the commit that did it is on that branch, or it is the merge itself."""
    found, depth = outcome.main, 0
    while (single := found.single) and (package := _package_of_merge(single)):
        depth += 1
        interval = found.interval
        assert interval is not None
        setting.say(
            f"{single[0].versions[single[1] + 1][:12]} is a merge: looking into what it merged"
        )
        others = {p.name: v for p, v in _at(found, interval.bad)}
        packages = [
            package if p.name == package.name else p.fixed_at(others[p.name])
            for p in found.packages
        ]
        inner = _search(setting, f"merge-{depth}", packages, silent=_silent(found))
        outcome.searched.append(inner)
        if inner.single is None:
            outcome.warnings.append(_about_merge(inner, single))
            return
        outcome.merge = single[0].versions[single[1] + 1]
        outcome.inner = found = inner


def _package_of_merge(single: tuple[Package, int]) -> Package | None:
    """The package with the line inside the merge that one change is; None if it is no merge."""
    package, rank = single
    if package.line is None or package.repository is None:
        return None
    line, repository = package.line, package.repository
    merge = line.changed_by(rank)
    back = line.takes_away(rank)
    main = line.commits[rank + 1 if back else rank].sha
    if len(merge.parents) < 2 or main not in merge.parents:
        return None
    branch = merged_line(repository, merge, main)
    if not branch:
        return None
    base = repository.commit(branch[0]).parents[0]
    commits = repository.commits([base, *branch])
    inner = Line(tuple(reversed(commits)), len(branch)) if back else Line(tuple(commits), 0)
    return Package(package.spec, tuple(commit.sha for commit in inner.commits), inner, repository)


def _about_merge(inner: Found, single: tuple[Package, int]) -> str:
    package, rank = single
    merge = package.versions[rank + 1][:12]
    if inner.search.ends is EndsVerdict.BAD_DOES_NOT_FAIL:
        return f"neither side of merge {merge} fails alone: the merge itself brings the failure"
    return f"merge {merge} could not be looked into: {inner.search.ends.value}"


def _look_for_partner(setting: Setting, outcome: Outcome) -> None:
    """The culprit over the oldest of everything else: if that passes, it takes another commit to fail."""
    found = outcome.main
    interval, single = found.interval, found.single
    if interval is None or single is None or outcome.inner is not None:
        return
    culprit = single[0]
    moved = moving(found.packages)
    reached = dict(zip((p.name for p in moved), interval.bad, strict=True))
    others = [p for p in moved if p.name != culprit.name and reached[p.name]]
    if not others:
        return
    packages = [_until(p, culprit, reached) for p in found.packages]
    tried = found.search.trials.get(interval.bad, (1, 0))
    vector = tuple(reached[p.name] for p in moving(packages))
    setting.say(
        f"does {culprit.name} {_short(found, culprit)} fail alone, over the oldest of the rest?"
    )
    partner = _search(setting, "partner", packages, assume={vector: tried})
    outcome.partner_search = partner
    if partner.search.ends is EndsVerdict.DIFFER:
        outcome.partner = partner


def _short(found: Found, package: Package) -> str:
    single = found.single
    return package.versions[single[1] + 1][:12] if single else ""


def _until(package: Package, culprit: Package, reached: Mapping[str, int]) -> Package:
    if package.name not in reached:
        return package
    end = reached[package.name]
    if package.name == culprit.name or end == 0:
        return package.fixed_at(package.versions[end])
    line = package.line
    cut = Line(line.commits[: end + 1], min(line.turn, end)) if line else None
    return Package(package.spec, package.versions[: end + 1], cut, package.repository)


def _at(found: Found, vector: Sequence[int]) -> list[tuple[Package, str]]:
    versions = found.versions(vector)
    return [(package, versions[package.name]) for package in found.packages]


def _silent(found: Found) -> int:
    """How many silent trials rule the failure out, at the rate it has shown."""
    _, bad = found.search.rates
    return max(2, math.ceil(math.log(_SURELY_SILENT) / math.log(1 - min(bad, 0.99))))


def _known(
    setting: Setting,
    name: str,
    timeline: Timeline,
    packages: Sequence[Package],
    look_up: Callable[[Mapping[str, str]], list[KnownT]],
) -> dict[str, list[KnownT]]:
    """What is cached by the key of its point, as it was when this stage first began: a resumed run must not take its
    own trials for those of another.
    """
    kept = setting.stages.stage_path(name) / PRIVATE / "known.json"
    if kept.exists():
        found: dict[str, list[KnownT]] = json.loads(kept.read_text(encoding="utf-8"))
        return found
    states = (timeline.state(position) for position in range(timeline.changes + 1))
    points = {timeline.point(s, Purpose.PROBE, 0).config_key: timeline.versions(s) for s in states}
    known = {key: look_up(whole(packages, versions)) for key, versions in points.items()}
    found = {key: answers for key, answers in known.items() if answers}
    write_atomically(kept, json.dumps(found))
    return found


def _cache_listener(cache: OutcomeCache, packages: Sequence[Package]) -> Listener:
    def listen(event: Event) -> None:
        if isinstance(event, events.TrialEnded) and not event.replayed:
            versions = {name: str(value) for name, value in event.record.point.values}
            cache.add(whole(packages, versions), event.record.outcome, event.record.value)

    return listen
