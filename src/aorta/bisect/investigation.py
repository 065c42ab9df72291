"""A bisection from packages to findings: the main search, then one for a partner of the culprit."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from aorta.bisect.metric import MeasuredEnds, Metric
from aorta.bisect.package import Package, Versions, moving, whole
from aorta.bisect.run import MAIN, BisectRun
from aorta.bisect.spec import BisectSpec
from aorta.bisect.trials import VersionSets
from aorta.bisect.watching import StepsLeft
from aorta.core.axis import Point, Purpose
from aorta.core.trial import Verdict
from aorta.engine.events import Listener
from aorta.engine.question import Answer
from aorta.engine.rundir import write_json
from aorta.search.belief import Counts
from aorta.search.bisection import Bisection, BisectionSettings, Candidates
from aorta.search.ends import EndsVerdict, SeenRates
from aorta.search.timeline import GraphTimeline, Timeline, Vector

_SANITY_PROBES = 2
_NEARLY_SURE = 0.9995  # no search is asked for more than this


CannotBe = Callable[[Versions], str | None]


@dataclass(frozen=True)
class SearchSetup:
    """Everything the searches share."""

    run: BisectRun
    version_sets: Callable[[Sequence[Package]], VersionSets]

    @property
    def spec(self) -> BisectSpec:
        return self.run.request.spec


@dataclass(frozen=True)
class FinishedSearch:
    """What a search knows. `before` is the probability of what led to it."""

    stage: str
    search: Bisection
    packages: Sequence[Package]
    answer: Answer
    before: float = 1.0
    alike: str | None = None  # why its two ends cannot be told apart
    undecided: Mapping[str, str] = field(default_factory=dict)  # why, by the key of a configuration
    fails_alone: bool = False  # of a search for a partner: there is none

    @property
    def interval(self) -> Candidates | None:
        return self.search.answer

    @property
    def mass(self) -> float:
        """The probability of the whole answer. A flaky failure may look steady by luck: while no
        trial contradicted another, no more is said than was asked for, or than the passes of the
        good side allow for a test that fails every second time.
        """
        if self.interval is None:
            return 0.0
        mass = self.interval.mass
        if self.search.agrees:
            passes = self.search.trials.get(self.interval.good, (0, 0))[1]
            mass = min(mass, max(self.search.settings.confidence, 1 - 0.5**passes))
        return self.before * mass

    @property
    def is_sure(self) -> bool:
        return self.search.is_sure

    @property
    def single(self) -> tuple[Package, int] | None:
        """Package and rank of the one change that did it, which may be a merge of many commits."""
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


@dataclass(frozen=True)
class Investigation:
    """The main search, the one for the release, and the `partner` search, also if it found none."""

    searched: Sequence[FinishedSearch]
    partner: FinishedSearch | None = None
    beside: Sequence[FinishedSearch] = ()  # searches for what else it takes, between environments
    needed: Sequence[str] = ()  # of two environments: the changed names that it takes

    @property
    def main(self) -> FinishedSearch:
        return self.searched[0]

    @property
    def last(self) -> FinishedSearch:
        """The search that has the answer."""
        return self.searched[-1]


def investigate(setting: SearchSetup, packages: Sequence[Package]) -> Investigation:
    packages = with_merges(packages)
    spans = (
        f"{p.name} {p.versions[0][:12]}..{p.versions[-1][:12]} ({p.candidates})"
        for p in moving(packages)
    )
    setting.run.say(f"bisecting the changes of {', '.join(spans)}")
    main = search_versions(setting, MAIN, packages)
    # A request that says how often to confirm the answer asks for nothing else.
    looks_further = setting.run.request.checks and setting.spec.confirmations is None
    partner = partner_of(setting, main) if looks_further and not setting.run.interrupted else None
    return Investigation([main], partner)


def with_merges(packages: Sequence[Package]) -> Sequence[Package]:
    """One package moves: all of its commits at once; several go along lines first."""
    moved = moving(packages)
    graph = moved[0].as_graph if len(moved) == 1 else None
    return [graph if graph and p.name == graph.name else p for p in packages]


def most_states(packages: Sequence[Package], *, checks: bool) -> int:
    """So many states at most, one trial at a time, for one change that always fails."""
    changes = sum(package.candidates for package in packages)
    most = math.ceil(math.log2(changes)) + 2  # halving, and both ends
    merges = any(package.graph is not None for package in packages)
    if merges or (checks and _is_buildless(packages)):
        most += _SANITY_PROBES + 1  # and a history with merges is not always cut in halves
    alone = checks and len(moving(packages)) > 1
    return min(most, changes + 1) + alone


def _is_buildless(packages: Sequence[Package]) -> bool:
    return not any(package.spec.build for package in packages)


def search_versions(
    setting: SearchSetup,
    name: str,
    packages: Sequence[Package],
    *,
    assume: Mapping[Vector, Counts] | None = None,
    before: float = 1.0,
    more_follows: bool = False,
    cannot_be: CannotBe | None = None,
    partner_of: FinishedSearch | None = None,
) -> FinishedSearch:
    """`cannot_be`: why a state is not tried. `partner_of`: whose culprit is tried alone first."""
    alone = None
    if partner_of is not None and setting.run.metric is None:
        alone = SeenRates(*partner_of.search.good_and_bad(), setting.spec.confidence)
    search = _bisection(setting, name, packages, before, more_follows=more_follows, alone=alone)
    if assume:
        search.assume(assume)
    impossible = _skip(search, packages, cannot_be) if cannot_be else {}
    experiment = setting.version_sets(packages)
    run, metric = setting.run, setting.run.metric
    place = run.path / "timeline.json"
    if not place.exists():  # the first search is over all changes, later ones over a part of them
        write_json(place, "aorta.timeline/1", search.timeline.to_json())
    listeners: list[Listener] = [StepsLeft(search, run.say)]
    ends = None
    if metric:
        listeners.append(metric.listen)
        ends = _measured_ends(metric, setting, name, search)
    answer = run.drive(name, ends or search, experiment, listeners, metric)
    return FinishedSearch(
        name,
        search,
        packages,
        answer,
        before,
        alike=ends.alike if ends else None,
        undecided={**impossible, **metric.undecided} if metric else impossible,
        fails_alone=alone is not None and search.ends is EndsVerdict.GOOD_FAILS_TOO,
    )


def _bisection(
    setting: SearchSetup,
    name: str,
    packages: Sequence[Package],
    before: float,
    *,
    more_follows: bool,
    alone: SeenRates | None,
) -> Bisection:
    moved = moving(packages)
    graph = moved[0].graph
    wanted = setting.spec.confidence / before
    if more_follows:  # a later search takes its own share of the doubt
        wanted = 1 - (1 - wanted) / 2
    settings = BisectionSettings(
        confidence=min(wanted, _NEARLY_SURE),
        trust_bad=name == MAIN and setting.spec.skip_precondition_checks,
        trust_ends=setting.run.metric is None,
        confirm=setting.run.request.checks,
        confirmations=setting.spec.confirmations if name == MAIN else None,
        sanity_probes=_SANITY_PROBES if name == MAIN and setting.run.request.checks else 0,
        probe_steady=_is_buildless(packages),
        alone=alone,
    )
    if graph is not None:
        return Bisection(GraphTimeline(graph.history), settings)
    return Bisection(Timeline([package.history for package in moved]), settings)


def _skip(search: Bisection, packages: Sequence[Package], cannot_be: CannotBe) -> dict[str, str]:
    """States that cannot be: why each is not tried, by the key of its configuration."""
    whys: dict[str, str] = {}
    for vector in search.timeline.every_state()[1:-1]:
        if why := cannot_be(whole(packages, search.timeline.versions(vector))):
            point = search.timeline.point(vector, Purpose.PROBE, 0)
            search.remember(point, Verdict(None, why=why))
            whys[point.config_key] = why
    return whys


def _measured_ends(
    metric: Metric, setting: SearchSetup, name: str, search: Bisection
) -> MeasuredEnds | None:
    """The main search measures its ends first; searches after it know the two levels."""
    if name == MAIN and not setting.spec.skip_precondition_checks:
        return MeasuredEnds(search, metric)
    metric.begin_stage(measures=False)
    if metric.levels is None:
        metric.take_samples()
    return None


def partner_of(setting: SearchSetup, found: FinishedSearch) -> FinishedSearch | None:
    """The culprit on the oldest of everything else: if that passes, it needs a partner."""
    if found.single is None:
        return None
    culprit, rank = found.single
    question = f"does {culprit.name} {culprit.versions[rank + 1][:12]} fail alone"
    return partner_search(setting, "partner", found, {culprit.name}, question)


def partner_search(
    setting: SearchSetup,
    stage: str,
    found: FinishedSearch,
    needed: Collection[str],
    question: str,
    cannot_be: CannotBe | None = None,
) -> FinishedSearch | None:
    """`needed` stay at the failure, all else moves from its oldest to there; None if none moved."""
    interval = found.interval
    assert interval is not None
    reached = dict(zip((p.name for p in moving(found.packages)), interval.bad, strict=True))
    packages = []
    for package in found.packages:
        rank = reached.get(package.name)
        if rank is None:
            packages.append(package)
        elif package.name in needed:
            packages.append(package.fixed_at(package.versions[rank]))
        elif rank == 0:
            packages.append(package.fixed_at(package.versions[0], firm=False))
        else:
            packages.append(package.until(rank))
    if not moving(packages):
        return None
    setting.run.say(f"{question}, over the oldest of the rest?")
    tried = found.search.trials.get(interval.bad, (1, 0))
    vector = tuple(reached[p.name] for p in moving(packages))
    return search_versions(
        setting, stage, packages, assume={vector: tried}, cannot_be=cannot_be, partner_of=found
    )
