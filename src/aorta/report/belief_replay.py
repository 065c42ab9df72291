"""What was believed about the culprit after each trial of a bisection, replayed from its timeline and its journal."""

from collections.abc import Sequence
from dataclasses import dataclass

from aorta.core.trial import Outcome
from aorta.report.charts.timeline import Atoms, Probe, Strip
from aorta.report.documents import Document, items, rows, words
from aorta.report.run_reader import Trial
from aorta.search.belief import Belief, Counts
from aorta.search.bisecting import USUAL_RATES
from aorta.search.graph import GraphBelief, GraphHistory, GraphTimeline
from aorta.search.timeline import History, Timeline, Vector

_MOST_BELIEFS = 400


@dataclass(frozen=True)
class BeliefReplay:
    strip: Strip
    probes: Sequence[Probe]
    beliefs: Sequence[Atoms]


def replayed_beliefs(timeline: Timeline, trials: Sequence[Trial]) -> BeliefReplay:
    """Trials that are not on the timeline (other orders, other stages) are no part of the picture."""
    counts: dict[Vector, Counts] = {}
    probes: list[Probe] = []
    beliefs: list[Atoms] = []
    for number, trial in enumerate(trials, 1):
        vector = _vector(timeline, trial)
        position = _position(timeline, vector) if vector is not None else None
        if vector is None or position is None:
            continue
        probes.append(Probe(position, trial.outcome, _says(number, position, trial)))
        if trial.outcome is Outcome.ERROR:
            continue
        hits, misses = counts.get(vector, (0, 0))
        hit = trial.outcome is Outcome.REPRODUCED
        counts[vector] = (hits + hit, misses + (not hit))
        if len(beliefs) < _MOST_BELIEFS:
            beliefs.append(_believed(timeline, counts))
    names = [history.package for history in timeline.histories]
    return BeliefReplay(Strip(names, timeline.order, _likeliest(beliefs)), probes, beliefs)


def _believed(timeline: Timeline, counts: dict[Vector, Counts]) -> Atoms:
    if isinstance(timeline, GraphTimeline):
        every = (1 << timeline.changes) - 1
        belief = GraphBelief.after(USUAL_RATES, timeline.graph, counts, every)
        return list(belief.runs(timeline.changes))
    return list(Belief.after(USUAL_RATES, timeline, counts, prior=timeline.prior).atoms())


def _position(timeline: Timeline, vector: Vector) -> int | None:
    """How many of the changes a state contains."""
    if isinstance(timeline, GraphTimeline):
        return timeline.graph.holds[vector[0]].bit_count()
    return timeline.position(vector)


def timeline_of(document: Document) -> Timeline | None:
    """From `timeline.json`; None where it is not whole."""
    histories = [
        History(words(row, "package"), tuple(str(version) for version in items(row, "versions")))
        for row in rows(document, "histories")
    ]
    order = [index for index in items(document, "order") if isinstance(index, int)]
    holds = tuple(int(str(held), 16) for held in items(document, "holds"))
    if len(histories) == 1 and len(holds) == len(histories[0].versions):
        [history], none = histories, (0,) * len(order)
        return GraphTimeline(GraphHistory(history.package, history.versions, holds, none, none))
    changes = [history.changes for history in histories]
    if not histories or [order.count(i) for i in range(len(histories))] != changes:
        return None
    return Timeline(histories, order)


def _vector(timeline: Timeline, trial: Trial) -> Vector | None:
    ranks: list[int] = []
    for history in timeline.histories:
        version = str(trial.values.get(history.package, ""))
        if version not in history.versions:
            return None
        ranks.append(history.versions.index(version))
    return tuple(ranks)


def _says(number: int, position: int, trial: Trial) -> str:
    return f"trial {number}, after {position} changes: {trial.outcome.value} ({trial.why})"


def _likeliest(beliefs: Sequence[Atoms]) -> tuple[int, int] | None:
    """The group of candidates that is believed in most, in the end."""
    if not beliefs:
        return None
    start, stop, _ = max(beliefs[-1], key=lambda atom: atom[2])
    return start, stop
