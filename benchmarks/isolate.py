"""`aorta isolate`, simulated: runs to an answer, and how often the answer is wrong or accuses.

A job that fails because of one node, two nodes, a link or the software is drawn again and again;
nothing but pass and fail is seen of a run. `ISOLATE_DRAWS` sets the number of draws.
"""

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


@dataclass(frozen=True)
class Story:
    """What is true: how many nodes, which kind of fault, and how often it and all else fail."""

    nodes: int
    kind: str
    rate: float
    background: float = 0.0
    share: float = 1.0  # of the draws: the long ones are drawn less often

    @property
    def words(self) -> str:
        noise = f" + {self.background:.0%} noise" if self.background else ""
        return f"{self.nodes:>3} nodes, {self.kind:<8} fails {self.rate:.0%}{noise}"


STORIES = (
    Story(64, NODE, 1.0),
    Story(64, NODE, 0.5),
    Story(64, NODE, 0.5, 0.05),
    Story(512, NODE, 1.0, share=0.1),
    Story(512, NODE, 0.5, share=0.1),
    Story(64, SOFTWARE, 1.0),
    Story(64, SOFTWARE, 0.5),
    Story(64, SOFTWARE, 0.25, share=0.3),
    Story(64, TWO_NODES, 1.0, share=0.3),
    Story(64, TWO_NODES, 0.5, share=0.3),
    Story(64, LINK, 1.0, share=0.3),
    Story(64, LINK, 0.5, share=0.3),
)


def draw(story: Story, seed: int) -> tuple[int, str]:
    """Runs to the end of one search, and `right`, `wrong`, `accused` or `unknown`."""
    rng = random.Random(seed)
    members = {NODE: 1, LINK: 2, TWO_NODES: 2, SOFTWARE: 0}[story.kind]
    truth = Hypothesis(story.kind, tuple(sorted(rng.sample(range(story.nodes), members))))
    search = Isolation(story.nodes)
    while not search.done:
        point = search.ask(1)[0]
        involved = _involved(truth, frozenset(as_indexes(point[NODES])))
        fails = (involved and rng.random() < story.rate) or rng.random() < story.background
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
    print(f"{'':44} runs: median mean  90 %   right  software wrongly  accused wrongly  not known")
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
            print(
                f"{story.words:<44} {statistics.median(runs):>11.4g} {statistics.mean(runs):>5.1f} "
                f"{runs[int(0.9 * (draws - 1))]:>5}  {shares[0]:>6} {shares[1]:>17} "
                f"{shares[2]:>16} {shares[3]:>10}   of {draws}",
                flush=True,
            )


if __name__ == "__main__":
    main()
