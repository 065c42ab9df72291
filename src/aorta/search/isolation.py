"""Is it a node, a link, a rank or the software? A Bayesian group test over placements.

A point is a *placement*: which nodes take part in one run of the job, in the order of their ranks.
Its verdict says whether the job failed there. Every hypothesis predicts where it must fail:

- software: on every set of nodes, at one rate, or on every set of more than so many nodes;
- a node: wherever that node takes part;
- a link: wherever both of its nodes take part;
- two nodes: wherever either of them takes part;
- a rank: wherever a run has that rank, whichever node it runs on; it can be told from the software
  where it is seen which rank fails first, or where smaller runs do not have it.

How often the guilty part fails, and how often everything fails for other reasons, are learned: each
hypothesis is weighed by its likelihood averaged over a grid of both rates. The next placement is
the one whose outcome tells most about the hypotheses. An accusation is weighed against a prior that
holds the software for the likelier cause, which bounds how often an innocent node is accused.

    >>> search = Isolation(nodes=8)
    >>> while not search.done:
    ...     placement = search.ask(1)[0]
    ...     search.tell(placement, Verdict(5 in placement["nodes"]))
    >>> search.belief.best
    Hypothesis(kind='node', members=(5,))
"""

import math
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, combinations

from aorta.core.axis import Point, as_indexes
from aorta.core.trial import Verdict
from aorta.search.belief import entropy

NODES = "nodes"
NODE, LINK, TWO_NODES, RANK, SOFTWARE = "node", "link", "several", "rank", "software"

# The software weighs most: it then accuses a node in few of a thousand draws, at the price of some
# runs more where a node is guilty (`python -m benchmarks isolate` prints both).
_PRIOR = {SOFTWARE: 0.65, NODE: 0.25, RANK: 0.04, LINK: 0.03, TWO_NODES: 0.03}
_FROM_A_SIZE = 0.04  # software that needs several nodes to fail, half of it already two
# How often it fails where the guilty part takes part, and elsewhere; with how likely that is.
_GUILTY = {1.0: 0.4, 0.9: 0.06, 0.75: 0.08, 0.5: 0.3, 0.35: 0.1, 0.2: 0.05, 0.1: 0.01}
_BACKGROUND = {0.0: 0.6, 0.02: 0.1, 0.05: 0.2, 0.12: 0.1}
# The background may strike where the guilty part takes part, too, and never more often than it.
_RATES_OF_A_PART = [
    (guilty + background - guilty * background, background, weight * share)
    for guilty, weight in _GUILTY.items()
    for background, share in _BACKGROUND.items()
    if background < guilty
]
# Of the software, which fails everywhere. Low rates weigh much: that is how a node that fails every
# second run looks, being in some of the placements.
_SOFTWARE = {1.0: 0.28, 0.9: 0.03, 0.75: 0.06, 0.5: 0.26, 0.35: 0.1, 0.25: 0.16, 0.15: 0.11}
_RATES_OF_SOFTWARE = [(rate, 0.0, weight) for rate, weight in _SOFTWARE.items()]
_FIRST_IS_GUILTY = 0.8  # the rank that fails first runs on the guilty node so often
_PAIRED = 64  # nodes, those of most failures, of which pairs are weighed
_NEGLIGIBLE = 12.0  # in nats below the likeliest: such a hypothesis is left out
_BLIND_FAILURES = 4
_NEVER_FAILED = 50  # runs; what fails in every tenth of all has by then, but in one case of 200
# Of the doubt that the user allows: the belief is a little surer than it is right, where noise
# looks like a guilty part or a node that is seldom seen to fail like the software.
_OF_THE_DOUBT, _OF_THE_DOUBT_OF_SOFTWARE = 0.7, 0.6
_WORTH_A_RUN = 0.5  # of the information of the best placement, beside runs that are under way
_NEARLY = 0.97  # of the information of the best placement: then the smaller one is taken


@dataclass(frozen=True)
class Hypothesis:
    """`members`: nodes, a rank's position, or `n` of software that only fails above `n` nodes."""

    kind: str
    members: tuple[int, ...] = ()


class _Placements:
    """Placements as bit sets: for each node and each rank, a bit per placement that has it."""

    def __init__(self, nodes: int) -> None:
        self.members: list[tuple[int, ...]] = []
        self.takes_part = [0] * nodes
        self.has_position = [0] * nodes

    def add(self, members: tuple[int, ...]) -> None:
        bit = 1 << len(self.members)
        for position, node in enumerate(members):
            self.takes_part[node] |= bit
            self.has_position[position] |= bit
        self.members.append(members)

    def involved(self, what: Hypothesis) -> int:
        """A bit for each set in which it must fail."""
        part = self.takes_part
        match what.kind, what.members:
            case "node", (node,):
                return part[node]
            case "link", (one, other):
                return part[one] & part[other]
            case "several", (one, other):
                return part[one] | part[other]
            case "rank" | "software", (position,):
                return self.has_position[position]
        return (1 << len(self.members)) - 1


@dataclass(frozen=True)
class Guilt:
    """How likely every hypothesis is after what was seen, likeliest first."""

    weights: Mapping[Hypothesis, float]

    @property
    def best(self) -> Hypothesis:
        return max(self.weights, key=self.weights.__getitem__)

    def of_kind(self, kind: str) -> float:
        return sum(weight for what, weight in self.weights.items() if what.kind == kind)

    def share(self, what: Hypothesis) -> float:
        """How likely it is; which two nodes or how many ranks it takes does not matter."""
        one_of = what.kind in {NODE, LINK, RANK}
        return self.weights[what] if one_of else self.of_kind(what.kind)

    def node_suspicion(self, nodes: int) -> list[float]:
        """How likely each node is guilty, alone, in a link or beside another one."""
        suspicion = [0.0] * nodes
        for what, weight in self.weights.items():
            if what.kind in {NODE, LINK, TWO_NODES}:
                for member in what.members:
                    suspicion[member] += weight
        return suspicion


class Isolation:
    """Over `nodes` nodes, placements of `smallest` to `largest` of them.

    `suspicion` multiplies the prior weight of each node, such as 20 for the host of an Xid.
    """

    def __init__(
        self,
        nodes: int,
        smallest: int = 1,
        largest: int | None = None,
        confidence: float = 0.95,
        suspicion: Sequence[float] | None = None,
    ) -> None:
        self.nodes, self.smallest = nodes, smallest
        self.largest = min(nodes, largest or nodes)
        self.confidence = confidence
        self.most_runs = 60 + 15 * math.ceil(math.log2(nodes))
        weights = list(suspicion or [1.0] * nodes)
        total = sum(weights)
        self._suspicion = [weight / total for weight in weights]
        self._ran = _Placements(nodes)
        self._failed = 0  # a bit for each run
        self._first: dict[int, tuple[int, int]] = {}  # run -> node and position that failed first
        self._noted: dict[Point, int] = {}
        self._untestable = 0
        self._lost = [0] * nodes  # placements of each node that could not be tried
        self._belief: Guilt | None = None

    # -- what was seen -----------------------------------------------------------------------------

    def note_first(self, placement: Point, position: int) -> None:
        """Which node, by its place among the ranks, failed first in this placement's run."""
        self._noted[placement] = position

    def tell(self, point: Point, verdict: Verdict) -> None:
        members = as_indexes(point[NODES])
        if verdict.reproduces is None:
            self._untestable += 1
            for node in members:
                self._lost[node] += 1
            return
        if verdict.reproduces:
            self._failed |= 1 << self.runs
            if point in self._noted:
                position = self._noted[point]
                self._first[self.runs] = (members[position], position)
        self._ran.add(members)
        self._belief = None

    @property
    def runs(self) -> int:
        return len(self._ran.members)

    def lost_nodes(self, times: int = 1) -> list[int]:
        """Nodes of which every placement could not be tried, so many at least."""
        lost = enumerate(self._lost)
        return [n for n, often in lost if often >= times and not self._ran.takes_part[n]]

    # -- what it means -----------------------------------------------------------------------------

    @property
    def belief(self) -> Guilt:
        if self._belief is None:
            self._belief = self._weighed()
        return self._belief

    def counts(self, what: Hypothesis) -> tuple[int, int, int, int]:
        """Failed and passed runs where it takes part, failed and passed ones where it does not."""
        involved = self._ran.involved(what)
        failed = (involved & self._failed).bit_count()
        passed = involved.bit_count() - failed
        all_failed = self._failed.bit_count()
        return failed, passed, all_failed - failed, self.runs - all_failed - passed

    def _weighed(self) -> Guilt:
        logs = {
            what: math.log(prior)
            + _log_likelihood(*self.counts(what), what.kind == SOFTWARE)
            + self._log_first(what)
            for what, prior in self._hypotheses()
        }
        least = max(logs.values()) - _NEGLIGIBLE
        weights = {what: math.exp(log - least) for what, log in logs.items() if log > least}
        total = sum(weights.values())
        ranked = sorted(weights.items(), key=lambda item: -item[1])
        return Guilt({what: weight / total for what, weight in ranked})

    def _hypotheses(self) -> Iterator[tuple[Hypothesis, float]]:
        """Each with its prior."""
        yield Hypothesis(SOFTWARE), _PRIOR[SOFTWARE]
        sizes = range(max(1, self.smallest), self.largest)
        for size in sizes:
            share = 0.5 if size == sizes[0] else 0.5 / (len(sizes) - 1)
            yield Hypothesis(SOFTWARE, (size,)), _FROM_A_SIZE * share
        for at, share in enumerate(self._suspicion):
            yield Hypothesis(NODE, (at,)), _PRIOR[NODE] * share
            if self._first:  # else a rank looks like the software
                yield Hypothesis(RANK, (at,)), _PRIOR[RANK] / self.nodes
        # Where every run has one of any two nodes, two guilty ones look like the software.
        kinds = (LINK, TWO_NODES) if self.smallest < self.nodes - 1 else (LINK,)
        for i, j in combinations(self._worth_pairing(), 2):
            share = 2 * self._suspicion[i] * self._suspicion[j]
            for kind in kinds:
                yield Hypothesis(kind, (i, j)), _PRIOR[kind] * share

    def _worth_pairing(self) -> Sequence[int]:
        """Of a node that could never be tried nothing is known, in a pair no more than alone."""

        def excess(node: int) -> int:
            failed, passed, _, _ = self.counts(Hypothesis(NODE, (node,)))
            return 2 * failed - passed

        nodes = set(range(self.nodes)).difference(self.lost_nodes())
        return sorted(sorted(nodes, key=excess, reverse=True)[:_PAIRED])

    def _log_first(self, what: Hypothesis) -> float:
        """How much likelier the ranks that failed first are than if any rank were as likely."""
        if what.kind == SOFTWARE or not self._first:
            return 0.0
        involved, log = self._ran.involved(what), 0.0
        for run, (node, position) in self._first.items():
            if not involved >> run & 1:
                continue
            size = len(self._ran.members[run])
            here = position if what.kind == RANK else node
            guilty = len(what.members) if what.kind != TWO_NODES else 1
            if here in what.members:
                log += math.log(_FIRST_IS_GUILTY * size / guilty)
            else:
                log += math.log((1 - _FIRST_IS_GUILTY) * size / max(1, size - guilty))
        return log

    # -- what to run next --------------------------------------------------------------------------

    def ask(self, n: int, pending: Collection[Point] = ()) -> list[Point]:
        """Placements with no node in common. Free nodes wait if all nodes would tell much more."""
        if self.done:
            return []
        left_out, top = self._left_out(), 0.0
        if pending:
            _, top = self._best_placement(left_out) or ((), 0.0)
        busy = {node for point in pending for node in as_indexes(point[NODES])} | left_out
        queried: list[Point] = []
        while len(queried) < n:
            found = self._best_placement(busy)
            if found is None or found[1] < _WORTH_A_RUN * top:
                break
            members, information = found
            top = max(top, information)
            before = self._ran.members.count(members) + self._untestable
            point = Point.of({NODES: members}, replica=before)
            queried.append(point.fresh([*pending, *queried]))
            busy.update(members)
        return queried

    def _left_out(self) -> set[int]:
        """Alternating halves of the nodes that never ran: one is broken, the others may work."""
        doubtful = _shuffled(self.lost_nodes(), self._untestable // 2)
        half = set(doubtful[self._untestable % 2 :: 2])
        return half if self.nodes - len(half) >= self.smallest else set()

    def wants(self, point: Point) -> bool:
        return not self.done

    @property
    def done(self) -> bool:
        spent = self.runs + self._untestable >= self.most_runs
        return self.answer is not None or spent or self._tells_nothing()

    def _tells_nothing(self) -> bool:
        """The job does not fail, or only runs whole without showing which rank began."""
        if not self._failed:
            return self.runs >= _NEVER_FAILED
        whole = self.smallest == self.nodes
        return whole and not self._first and self._failed.bit_count() >= _BLIND_FAILURES

    @property
    def answer(self) -> Hypothesis | None:
        """The hypothesis that is sure enough, if one is."""
        best, doubt = self.belief.best, 1 - self.confidence
        if self.software >= 1 - _OF_THE_DOUBT_OF_SOFTWARE * doubt:
            likeliest = next(what for what in self.belief.weights if what.kind == SOFTWARE)
            return likeliest if self._failed_apart() else None
        is_sure = self.belief.share(best) >= 1 - _OF_THE_DOUBT * doubt
        return best if is_sure and best.kind != SOFTWARE else None

    def _failed_apart(self) -> bool:
        """Whether no node took part in every run that failed, where the job can leave one out. Of
        runs that pass, too, one more may have failed for another reason than its node.
        """
        passes = self._failed.bit_count() < self.runs
        spare = 1 if passes and 2 * self.smallest <= self.nodes else 0
        parts = self._ran.takes_part
        shared = any((self._failed & ~part).bit_count() <= spare for part in parts)
        return self._failed > 0 and (not shared or self.smallest == self.nodes)

    @property
    def software(self) -> float:
        """How likely the software is; a rank that was never seen to fail first is a part of it."""
        return self.belief.of_kind(SOFTWARE)

    @property
    def best(self) -> Point | None:
        what = self.belief.best
        return Point.of({NODES: what.members}) if what.kind in {NODE, LINK, TWO_NODES} else None

    def _best_placement(self, busy: Collection[int]) -> tuple[tuple[int, ...], float] | None:
        """Of the other nodes, and the nats it tells; None where the job needs more of them."""
        free = [node for node in range(self.nodes) if node not in busy]
        if len(free) < self.smallest:
            return None
        candidates = _Placements(self.nodes)
        for part in map(sorted, self._candidates(free)):
            turn = self.runs % len(part)  # hardware stays with the node, software with the rank
            candidates.add((*part[turn:], *part[:turn]))
        scored = list(zip(candidates.members, self._information(candidates), strict=True))
        top = max(information for _, information in scored)
        near = [row for row in scored if row[1] >= min(top, _NEARLY * top)]
        return max(near, key=lambda row: (-len(row[0]), row[1]))

    def _candidates(self, free: Sequence[int]) -> list[frozenset[int]]:
        """Sets worth weighing: those that hold part of the suspicion, and those that hold none."""
        suspicion = self.belief.node_suspicion(self.nodes)
        shuffled = _shuffled(free, self.runs)
        ranked = sorted(shuffled, key=lambda node: -suspicion[node])
        half = max(1, len(ranked) // 2)
        chosen = [ranked, ranked[1:], ranked[2:], ranked[:1], ranked[:2]]
        chosen += [shuffled[:half], ranked[half:]]
        held = list(accumulate(suspicion[node] for node in ranked))
        for share in (0.15, 0.25, 0.35, 0.45, 0.5, 0.55, 0.65, 0.8):
            count = bisect_left(held, share * held[-1]) + 1
            chosen += [ranked[:count], ranked[count:]]
        return [part for part in {self._sized(part, ranked) for part in chosen} if part]

    def _sized(self, part: Sequence[int], ranked: Sequence[int]) -> frozenset[int]:
        """Filled up with the least suspected nodes, or cut to its most suspected ones."""
        spare = [node for node in reversed(ranked) if node not in part]
        return frozenset([*part[: self.largest], *spare[: max(0, self.smallest - len(part))]])

    def _information(self, candidates: _Placements) -> list[float]:
        """In nats: what the outcome of each is expected to tell of the hypotheses."""
        count = len(candidates.members)
        fails, noise = [0.0] * count, [0.0] * count
        for what, weight in self.belief.weights.items():
            involved = candidates.involved(what)
            rates = _next_fails(self.counts(what), what.kind == SOFTWARE)
            terms = [(weight * rate, weight * entropy(rate)) for rate in rates]
            for at in range(count):
                failing, noisy = terms[involved >> at & 1]
                fails[at] += failing
                noise[at] += noisy
        return [entropy(f) - n for f, n in zip(fails, noise, strict=True)]


def _shuffled(nodes: Sequence[int], turn: int) -> list[int]:
    """In another order every turn, and always the same one."""
    return sorted(nodes, key=lambda node: (node * 2654435761 + turn * 40503) % 65537)


@lru_cache(maxsize=65536)
def _log_likelihood(
    failed: int, passed: int, failed_without: int, passed_without: int, is_software: bool = False
) -> float:
    """Of such counts, averaged over both rates."""
    total = 0.0
    for inside, outside, weight in _RATES_OF_SOFTWARE if is_software else _RATES_OF_A_PART:
        likelihood = inside**failed * (1 - inside) ** passed
        likelihood *= outside**failed_without * (1 - outside) ** passed_without
        total += weight * likelihood
    return math.log(total) if total > 0 else -1e9


def _next_fails(counts: tuple[int, int, int, int], is_software: bool) -> tuple[float, float]:
    """How likely the next run fails without the guilty part, and with it."""
    failed, passed, failed_without, passed_without = counts
    now = _log_likelihood(*counts, is_software)
    outside = _log_likelihood(failed, passed, failed_without + 1, passed_without, is_software)
    inside = _log_likelihood(failed + 1, passed, failed_without, passed_without, is_software)
    return math.exp(outside - now), math.exp(inside - now)
