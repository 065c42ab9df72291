"""`aorta isolate`, simulated: runs to an answer, and how often the answer is wrong or accuses.

A job that fails because of one node, two nodes, a link or the software is drawn again and again.
Nothing but pass and fail is seen of a run, but where a row says that the first rank is seen: then
the node of the rank that fails first is the guilty one four times of five. Every placement counts
as a run. `ISOLATE_DRAWS` sets the number of draws.

`least` is what no design can undercut on average, if it is to be right 95 % of the time and to
accuse a node in at most 2 % of draws of a software bug, whatever that bug's rate: a run tells a
guilty node from software of the likeliest other rate by no more than the capacity of the channel
from "the node takes part" to "it fails", and an accusation needs `d(0.95, 0.02 / nodes)` bits.
"""

import math
import multiprocessing
import os
import random
import statistics
from dataclasses import dataclass
from functools import partial

from aorta.core.axis import as_indexes
from aorta.core.trial import Verdict
from aorta.search.isolation import LINK, NODE, NODES, SOFTWARE, TWO_NODES, Hypothesis, Isolation

_DRAWS = int(os.environ.get("ISOLATE_DRAWS", "40"))
_RIGHT, _MAY_ACCUSE = 0.95, 0.02
_FIRST_IS_GUILTY = 0.8


@dataclass(frozen=True)
class Story:
    """What is true: how many nodes, which kind of fault, and how often it and all else fail."""

    nodes: int
    kind: str
    rate: float
    background: float = 0.0
    share: float = 1.0  # of the draws: the long ones are drawn less often
    first_seen: bool = False

    @property
    def words(self) -> str:
        noise = f" + {self.background:.0%} noise" if self.background else ""
        first = ", first rank seen" if self.first_seen else ""
        return f"{self.nodes:>3} nodes, {self.kind:<8} fails {self.rate:.0%}{noise}{first}"

    @property
    def least(self) -> float | None:
        """Runs on average; None where the bound does not hold."""
        if self.kind != NODE or self.first_seen:
            return None
        accused = _MAY_ACCUSE / self.nodes
        bits = _RIGHT * math.log2(_RIGHT / accused)
        bits += (1 - _RIGHT) * math.log2((1 - _RIGHT) / (1 - accused))
        inside = self.rate + self.background - self.rate * self.background
        return bits / max(_tells(at / 1000, inside, self.background) for at in range(1, 1000))


def _tells(share: float, inside: float, outside: float) -> float:
    """Bits that a run tells where so large a share of the runs has the guilty node."""

    def entropy(chance: float) -> float:
        return -sum(p * math.log2(p) for p in (chance, 1 - chance) if p > 0)

    fails = share * inside + (1 - share) * outside
    return entropy(fails) - share * entropy(inside) - (1 - share) * entropy(outside)


STORIES = (
    Story(64, NODE, 1.0),
    Story(64, NODE, 0.5),
    Story(64, NODE, 0.5, 0.05),
    Story(512, NODE, 1.0, share=0.1),
    Story(512, NODE, 0.5, share=0.1),
    Story(64, SOFTWARE, 1.0),
    Story(64, SOFTWARE, 0.5),
    Story(64, SOFTWARE, 0.25),
    Story(64, SOFTWARE, 0.15, share=0.5),
    Story(64, TWO_NODES, 1.0, share=0.3),
    Story(64, TWO_NODES, 0.5, share=0.3),
    Story(64, LINK, 1.0, share=0.3),
    Story(64, LINK, 0.5, share=0.3),
    Story(64, NODE, 1.0, share=0.3, first_seen=True),
    Story(64, NODE, 0.5, share=0.3, first_seen=True),
    Story(64, NODE, 0.5, 0.05, share=0.3, first_seen=True),
    Story(64, SOFTWARE, 0.5, share=0.3, first_seen=True),
)


def draw(story: Story, seed: int) -> tuple[int, str]:
    """Runs to the end of one search, and `right`, `wrong`, `accused` or `unknown`."""
    rng = random.Random(seed)
    guilty_nodes = {NODE: 1, LINK: 2, TWO_NODES: 2, SOFTWARE: 0}[story.kind]
    truth = Hypothesis(story.kind, tuple(sorted(rng.sample(range(story.nodes), guilty_nodes))))
    search = Isolation(story.nodes)
    while not search.done:
        point = search.ask(1)[0]
        members = as_indexes(point[NODES])
        guilty = _involved(truth, frozenset(members)) and rng.random() < story.rate
        fails = guilty or rng.random() < story.background
        if fails and story.first_seen:
            by_guilty = guilty and truth.members and rng.random() < _FIRST_IS_GUILTY
            first = truth.members[0] if by_guilty else rng.choice(members)
            search.note_first(point, members.index(first))
        search.tell(point, Verdict(fails))
    return search.runs, _called(truth, search.answer)


def _involved(truth: Hypothesis, placement: frozenset[int]) -> bool:
    chosen = placement.intersection(truth.members)
    if truth.kind == LINK:
        return len(chosen) == len(truth.members)
    return bool(chosen) or truth.kind == SOFTWARE


def _called(truth: Hypothesis, answer: Hypothesis | None) -> str:
    if answer is None:
        return "unknown"
    if answer == truth or (answer.kind == truth.kind == TWO_NODES):
        return "right"
    return "wrong" if answer.kind == SOFTWARE else "accused"


def main() -> None:
    print(f"{'':52} runs: least median mean  90 %   right  software  accused  not known")
    print(f"{'':52}{'':37} wrongly  wrongly")
    with multiprocessing.Pool() as pool:
        for story in STORIES:
            draws = max(8, int(_DRAWS * story.share))
            found = pool.map(partial(draw, story), range(draws), chunksize=1)
            runs = sorted(count for count, _ in found)
            said = [called for _, called in found]
            shares = [
                f"{said.count(word) / draws:.1%}"
                for word in ("right", "wrong", "accused", "unknown")
            ]
            least = "" if story.least is None else f"{story.least:.1f}"
            print(
                f"{story.words:<52} {least:>11} {statistics.median(runs):>6.4g} "
                f"{statistics.mean(runs):>4.1f} {runs[int(0.9 * (draws - 1))]:>5} {shares[0]:>8} "
                f"{shares[1]:>8} {shares[2]:>8} {shares[3]:>10}   of {draws}",
                flush=True,
            )


if __name__ == "__main__":
    main()
