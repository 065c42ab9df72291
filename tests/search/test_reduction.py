"""What a reduction says of its axes, and what is left of it once some of them turn out not to be
read.
"""

from aorta.core.axis import Point, number, subset
from aorta.search.reduction import AxisFacts, Reduction, Status

LAYERS, FILES = number("layers", 12, 2), subset("files", ("a", "b", "c"), floor=1)
ORIGINAL = Point.of({"layers": 12, "files": (0, 1, 2)})
BEST = Point.of({"layers": 2, "files": (1, 2)})


def reduction() -> Reduction:
    facts = (AxisFacts(LAYERS, 2), AxisFacts(FILES, (1, 2)))
    accepted = (ORIGINAL, BEST)
    return Reduction(
        Status.REDUCED, "it held", ORIGINAL, BEST, accepted, facts, None, None, 9, 5, 0
    )


def test_an_axis_says_whether_it_moved_and_whether_it_is_as_small_as_it_gets() -> None:
    def facts(value: int) -> tuple[bool, bool]:
        one = AxisFacts(LAYERS, value)
        return one.moved, one.at_floor

    assert [facts(12), facts(3), facts(2)] == [(False, False), (True, False), (True, True)]
    assert not AxisFacts(FILES, (1, 2)).at_floor
    assert AxisFacts(FILES, (2,)).at_floor
    assert (AxisFacts(LAYERS, 2).trials, AxisFacts(LAYERS, 2).unresolved) == (0, 0)


def test_an_axis_that_takes_nonsense_stays_small_and_is_marked() -> None:
    found = reduction().with_ignored({"layers"})
    assert found.best == reduction().best
    assert [facts.ignored for facts in found.axes] == [True, False]
    assert (found.status, found.why) == (Status.REDUCED, "it held")


def test_where_no_axis_is_read_nothing_was_reduced() -> None:
    found = reduction().with_ignored(["layers", "files"])
    assert found.best == ORIGINAL
    assert found.status is Status.NOT_REDUCED
    assert "nonsense in the place of files, layers" in found.why
    assert reduction().with_ignored(()) == reduction()
