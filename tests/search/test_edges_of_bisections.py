"""Bisections and what they rest on, where one trial more or a hair's breadth decides: what is asked
and said just there.
"""

import math
from itertools import product

import pytest

from aorta.core.axis import Point, Purpose
from aorta.core.trial import Verdict
from aorta.search.alone import AloneFirst
from aorta.search.belief import (
    Belief,
    Counts,
    MixedRates,
    Rates,
    Split,
    _concave_maximum,
    entropy,
)
from aorta.search.bisecting import USUAL_RATES, Bisection, BisectionSettings
from aorta.search.bisection import TimelineBisection
from aorta.search.contradiction import _best_blocks, _leanings, _likelihood, fixed_in_between
from aorta.search.ends import Ends, EndsVerdict
from aorta.search.gallop import GallopBack, GallopVerdict
from aorta.search.graph import GraphBelief, GraphHistory
from aorta.search.graph_bisection import GraphBisection, _sample
from aorta.search.interval import Interval, likeliest_group, shortest_interval
from aorta.search.rates import BAD_RATE, GOOD_RATE, BetaMixture
from aorta.search.timeline import History, Timeline, Vector
from support.beliefs import WrittenOut
from support.timelines import one_package

SYMMETRIC = Rates(BetaMixture(((1.0, 1.0, 4.0),)), BetaMixture(((1.0, 4.0, 1.0),)))
"""What fails on one side as often as it passes on the other: trials may be read from either end."""

CONTRADICTED: dict[int, Counts] = {0: (0, 2), 4: (1, 1), 9: (2, 1), 16: (2, 0)}


def line(changes: int, twins: tuple[int, ...] = ()) -> GraphHistory:
    """A history without merges; each of `twins` is one more state, last but one, that holds so many
    changes.
    """
    holds = [(1 << state) - 1 for state in range(changes + 1)]
    holds[-1:-1] = [(1 << held) - 1 for held in twins]
    names = tuple(f"s{number}" for number in range(len(holds)))
    after = (*range(1, changes), len(holds) - 1)
    return GraphHistory("package", names, tuple(holds), tuple(range(changes)), after)


def of_line(
    kind: str, changes: int, trials: dict[int, Counts], settings: BisectionSettings | None = None
) -> Bisection:
    search: Bisection = (
        TimelineBisection(one_package(changes + 1), settings)
        if kind == "timeline"
        else GraphBisection(line(changes), settings)
    )
    search.assume({(state,): counts for state, counts in trials.items()})
    return search


def probe(search: Bisection, state: int, replica: int = 0) -> Point:
    return search.timeline.point((state,), Purpose.PROBE, replica)


def place(search: Bisection, point: Point) -> int:
    return search.timeline.vector(point)[0]


both = pytest.mark.parametrize("kind", ["timeline", "graph"])


# -- beliefs


def test_what_is_certain_is_no_surprise_and_an_even_chance_is_the_most() -> None:
    assert [entropy(0.0), entropy(1.0), entropy(-1e-12), entropy(1 + 1e-12)] == [0.0] * 4
    assert entropy(0.5) == pytest.approx(math.log(2))
    assert (
        entropy(0.25) == entropy(0.75) == pytest.approx(0.25 * math.log(4) + 0.75 * math.log(4 / 3))
    )


@pytest.mark.parametrize(
    ("values", "first"),
    [
        ([3, 2, 1], 1),
        ([1, 2, 3], 3),
        ([1, 3, 3, 1], 2),
        ([2, 2, 2, 2, 2], 1),
        ([7], 1),
        ([1, 2, 2], 2),
    ],
)
def test_of_equal_heights_the_first_is_the_top(values: list[int], first: int) -> None:
    top = _concave_maximum(lambda n: float(values[n - 1]), len(values))
    assert top == (first, max(values))


@pytest.mark.parametrize("changes", [8, 20])
def test_of_two_states_that_say_as_much_the_earlier_one_is_chosen(changes: int) -> None:
    half = changes // 2
    told: dict[Vector, Counts] = {(0,): (0, 3), (half,): (1, 1), (changes,): (3, 0)}
    belief = Belief.after(SYMMETRIC, one_package(changes + 1), told)
    best = belief.best_position
    assert best < half
    assert belief.gain(best) == pytest.approx(belief.gain(changes - best), abs=1e-14)
    assert belief.gain(best) > belief.gain(half)


@pytest.mark.parametrize("running", [1, 5, 6, 8])
def test_however_many_trials_are_under_way_the_ways_they_may_end_make_one_whole(
    running: int,
) -> None:
    """Of very many only the likeliest are weighed."""
    told: dict[Vector, Counts] = {(0,): (0, 2), (9,): (1, 1), (16,): (2, 0)}
    along = Belief.after(USUAL_RATES, one_package(17), told)
    graph = GraphBelief.after(USUAL_RATES, line(16), told, (1 << 16) - 1)
    for state in range(3, 3 + running):
        along, graph = along.supposing(state), graph.supposing((1 << state) - 1)
    assert along.mass(0, 16) == pytest.approx(1.0)
    assert graph.mass((1 << 16) - 1) == pytest.approx(1.0)
    assert len(along._scenarios) == min(2**running, 32)
    assert len(graph._scenarios) == min(2**running, 8)


def test_nearly_all_of_the_belief_lies_between_the_plausible_states() -> None:
    told: dict[Vector, Counts] = {(0,): (0, 9), (5,): (0, 9), (8,): (9, 0), (20,): (9, 0)}
    belief = Belief.after(USUAL_RATES, one_package(21), told)
    assert belief.plausible_positions() == range(5, 9)
    assert belief.mass(5, 8) > 0.996
    assert belief.mass(5, 8) == pytest.approx(3 * belief.mass(6, 7))


def test_hundreds_of_trials_leave_a_distribution_over_a_graph_too() -> None:
    told: dict[Vector, Counts] = {
        (0,): (0, 200),
        (3,): (30, 370),
        (10,): (300, 100),
        (13,): (700, 20),
    }
    belief = GraphBelief.after(USUAL_RATES, line(13), told, (1 << 13) - 1)
    assert belief.mass((1 << 13) - 1) == pytest.approx(1.0)
    assert belief.mass(0b1111111000) == pytest.approx(1.0)
    runs = list(belief.runs(13))
    assert (runs[0][:2], runs[-1][:2]) == ((0, 3), (10, 13))
    assert (runs[0][2], runs[-1][2]) == (0.0, 0.0)
    assert runs[1][:2] == (3, 10)
    assert runs[1][2] == pytest.approx(1 / 7)


def test_only_of_a_mixture_of_kinds_one_may_be_the_noisy_one() -> None:
    one_kind, told = Rates(GOOD_RATE, BAD_RATE), (1, 3, 2, 1)
    assert one_kind.noisy(told) == 0.0
    mixed = MixedRates(((0.75, one_kind), (0.25, one_kind)))
    assert mixed.noisy(told) == pytest.approx(0.25)
    assert mixed.means(told) == pytest.approx(one_kind.means(told))
    assert mixed.log_marginal(told) == pytest.approx(one_kind.log_marginal(told))


@pytest.mark.parametrize(
    ("splits", "steady"),
    [
        ([(0, 3, 2, 0), (1, 3, 1, 0)], True),
        ([(1, 3, 2, 0), (0, 3, 1, 1)], False),
        ([(1, 3, 2, 0), (0, 0, 0, 0)], True),
        ([(1, 0, 0, 1)], False),
    ],
)
def test_other_rates_count_once_no_change_agrees_with_every_trial(
    splits: list[Split], steady: bool
) -> None:
    assert USUAL_RATES.after(splits) is (USUAL_RATES if steady else USUAL_RATES.once_flaky)


def test_what_never_was_flaky_is_believed_steady_and_one_trial_refutes_it() -> None:
    rates = Rates(SYMMETRIC.good, SYMMETRIC.bad, steady=0.5)
    flaky_good, flaky_bad = SYMMETRIC.means((0, 2, 2, 0))
    likelihood = math.exp(SYMMETRIC.log_marginal((0, 2, 2, 0)))
    steady = 0.5 / (0.5 + 0.5 * likelihood)
    assert rates.means((0, 2, 2, 0)) == pytest.approx(
        ((1 - steady) * flaky_good, steady + (1 - steady) * flaky_bad)
    )
    for refuted in ((1, 2, 2, 0), (0, 2, 2, 1)):
        assert rates.means(refuted) == SYMMETRIC.means(refuted)
        once = SYMMETRIC.log_marginal(refuted) + math.log(0.5)
        assert rates.log_marginal(refuted) == pytest.approx(once)


# -- the answer -----------------------------------------------------------------------------------


@both
def test_a_probability_of_just_what_is_wanted_is_enough(kind: str) -> None:
    trials: dict[int, Counts] = {0: (0, 3), 5: (0, 3), 6: (3, 0), 12: (3, 0)}
    loose = of_line(kind, 12, trials, BisectionSettings(confidence=0.6)).answer
    assert loose is not None
    reached = loose.mass
    for confidence, sure in ((reached, True), (math.nextafter(reached, 1), False)):
        search = of_line(kind, 12, trials, BisectionSettings(confidence=confidence))
        assert search.is_sure is sure
        assert (search.done, bool(search.ask(1))) == (sure, not sure)
        assert search.answer is not None
        if sure:
            assert [change.rank for change in search.answer.changes] == [5]


@both
def test_of_checked_flaky_trials_more_is_wanted_than_is_stated(kind: str) -> None:
    """Seven tenths of the doubt that is allowed may be left; with merges all but .85 of the chance
    that it is noisy.
    """
    trials: dict[int, Counts] = {0: (1, 9), 5: (0, 9), 6: (7, 1), 12: (9, 0)}
    plain = of_line(kind, 12, trials, BisectionSettings(confidence=0.6))
    assert plain.answer is not None
    assert [change.rank for change in plain.answer.changes] == [5]
    left = 1 - plain.answer.mass
    allowed = 1 - 0.85 * plain._belief.noisy() if isinstance(plain, GraphBisection) else 0.7
    assert 0.1 < allowed < 0.9
    for share, sure in ((allowed - 0.01, True), (allowed + 0.01, False)):
        confidence = 1 - left / share
        for sentinels in (0, 2):
            settings = BisectionSettings(confidence=confidence, sentinels=sentinels)
            assert of_line(kind, 12, trials, settings).is_sure is (sure or not sentinels)


@both
def test_what_is_expected_is_what_is_not_known_over_what_the_best_state_tells(kind: str) -> None:
    search = of_line(kind, 16, CONTRADICTED)
    written = WrittenOut.after(
        search.prior_rates, [1.0] * 16, lambda state, change: state > change, CONTRADICTED
    )
    best = max(written.gain(state) for state in range(17))
    assert search.expected_questions() == round(written.entropy() / best)


@both
def test_while_every_trial_agrees_only_states_that_may_still_cut_are_wanted(kind: str) -> None:
    search = of_line(kind, 16, {0: (0, 1), 16: (1, 0), 7: (0, 1), 11: (1, 0)})
    wanted = [state for state in range(17) if search.wants(probe(search, state, 3))]
    assert wanted == (list(range(7, 12)) if kind == "timeline" else [8, 9, 10])
    confirm = search.timeline.point((2,), Purpose.CONFIRM, 0)
    assert search.wants(confirm)


def test_states_of_another_order_that_contradict_each_other_leave_no_sharp_boundary() -> None:
    """What holds more passed, what holds less failed."""
    timeline = Timeline([History("a", tuple("01234")), History("b", tuple("01234"))])
    search = TimelineBisection(timeline)
    path = timeline.every_state()
    ends: dict[Vector, Counts] = {path[0]: (0, 1), path[-1]: (1, 0)}
    assert timeline.position((2, 0)) is None
    assert timeline.first_with((2, 0)) == timeline.last_within((2, 1)) == 3
    search.assume({**ends, (2, 0): (1, 0), (2, 1): (0, 1)})
    assert all(search.wants(timeline.point(state, Purpose.PROBE, 5)) for state in path)
    agreeing = TimelineBisection(timeline)
    agreeing.assume({**ends, (2, 0): (1, 0), (1, 1): (0, 1)})
    wanted = [agreeing.wants(timeline.point(state, Purpose.PROBE, 5)) for state in path]
    assert wanted == [position in (2, 3) for position in range(len(path))]


@pytest.mark.parametrize(
    ("culprit", "expected"),
    [(31, [15]), (30, [14]), (29, [30, 14]), (27, [29, 28, 13])],
)
def test_beside_an_answer_at_the_bad_end_no_state_of_the_answer_is_tried_as_a_check(
    culprit: int, expected: list[int]
) -> None:
    search = TimelineBisection(one_package(32), BisectionSettings(sentinels=2))
    search.assume({(0,): (0, 8), (culprit,): (8, 0), (culprit - 1,): (0, 8), (31,): (8, 0)})
    checked = []
    while asked := search.ask(1):
        assert asked[0].purpose is Purpose.REPLAY
        state = place(search, asked[0])
        checked.append(state)
        search.tell(asked[0], Verdict(state >= culprit))
    assert checked == expected


@pytest.mark.parametrize(
    ("counts", "fails", "plain"),
    [
        ((0, 0), True, False),
        ((0, 0), False, False),
        ((1, 0), True, False),
        ((2, 0), True, True),
        ((0, 1), False, False),
        ((0, 2), False, True),
        ((1, 1), True, False),
        ((3, 2), True, True),
        ((2, 3), False, False),
        ((3, 3), False, True),
        ((3, 3), True, True),
        ((0, 2), True, False),
        ((1, 0), False, False),
        ((2, 4), False, True),
    ],
)
def test_a_state_beside_the_answer_is_plain_at_odds_of_eight_or_after_six_trials(
    counts: Counts, fails: bool, plain: bool
) -> None:
    search = TimelineBisection(one_package(16))
    search.assume({(0,): (1, 8), (15,): (8, 3), (7,): counts})
    good, bad = search.rates
    hits, misses = counts
    weight = math.log((bad / good) ** hits * ((1 - bad) / (1 - good)) ** misses)
    clear = weight > math.log(8) if fails else weight < -math.log(8)
    assert search._is_plain((7,), fails=fails) is (clear or hits + misses >= 6)
    assert search._is_plain((7,), fails=fails) is plain


@both
def test_trials_of_one_state_are_counted_up_one_by_one(kind: str) -> None:
    search = of_line(kind, 8, {})
    [first] = search.ask(1)
    search.tell(first, Verdict(False))
    asked = search.ask(4)
    assert [place(search, point) for point in asked] == [8] * 4
    assert [point.replica for point in (first, *asked)] == [0, 1, 2, 3, 4]
    assert [point.replica for point in search.ask(2, asked[:2])] == [3, 4]


# -- with merges ----------------------------------------------------------------------------------


def test_of_two_states_that_hold_the_same_the_one_that_was_tried_is_tried_again() -> None:
    """It is built already; an untried one is asked for only where it says more."""
    search = GraphBisection(line(8, twins=(4,)))
    twin = 8
    trials: dict[Vector, Counts] = {(0,): (0, 4), (9,): (4, 0), (3,): (0, 4), (5,): (4, 0)}
    search.assume({**trials, (twin,): (1, 1)})
    assert place(search, search.ask(1)[0]) == twin
    search = GraphBisection(line(8, twins=(4,)))
    search.assume({**trials, (4,): (1, 1)})
    assert place(search, search.ask(1)[0]) == 4


def test_an_end_that_was_taken_on_trust_is_no_side_to_try_again() -> None:
    search = GraphBisection(line(4))
    asked = []
    while points := search.ask(1):
        state = place(search, points[0])
        asked.append((state, points[0].purpose))
        search.tell(points[0], Verdict(None if state == 0 else True))
    assert asked[:2] == [(4, Purpose.CALIBRATE), (0, Purpose.CALIBRATE)]
    assert 0 not in [state for state, _ in asked[2:]]
    assert search.answer is not None
    assert (search.answer.good, search.answer.bad) == ((0,), (1,))


def test_where_a_trial_contradicts_another_a_state_that_may_not_run_counts_for_less() -> None:
    search = GraphBisection(line(16))
    search.assume({(state,): counts for state, counts in CONTRADICTED.items()})
    [first] = search.ask(1)
    search.tell(first, Verdict(None))
    [second] = search.ask(1)
    belief = search._belief
    worth = {
        state: belief.gain((1 << state) - 1) * search._chance_of((state,)) for state in range(17)
    }
    assert worth[place(search, first)] == 0.0
    assert worth[place(search, second)] == max(worth.values())
    assert 0 < search._chance_of((5,)) < 1


def test_changes_that_no_state_tells_apart_are_one_answer() -> None:
    together = GraphHistory("p", ("a", "b", "c"), (0, 0b011, 0b111), (0, 0, 1), (1, 1, 2))
    search = GraphBisection(together)
    search.assume({(0,): (0, 9), (1,): (9, 0), (2,): (9, 0)})
    assert search.is_sure
    assert search.done
    assert search.answer is not None
    assert [change.rank for change in search.answer.changes] == [0, 1]
    search = GraphBisection(line(3))
    search.assume({(0,): (0, 9), (2,): (9, 0), (3,): (9, 0)})
    assert not search.is_sure
    search.tell(probe(search, 1), Verdict(None))
    assert search.is_sure


def test_where_no_state_is_left_to_look_at_nothing_is_looked_at_beside_the_answer() -> None:
    search = GraphBisection(line(2), BisectionSettings(sentinels=2))
    search.assume({(0,): (1, 40), (1,): (40, 1), (2,): (40, 1)})
    assert search.is_sure
    assert search.ask(1) == []


def test_a_check_is_made_where_it_is_as_unlike_what_was_tried_as_can_be() -> None:
    search = GraphBisection(line(20), BisectionSettings(sentinels=1))
    search.assume({(0,): (1, 60), (9,): (1, 60), (10,): (60, 1), (20,): (60, 1)})
    asked = []
    while points := search.ask(1):
        state = place(search, points[0])
        asked.append((state, points[0].purpose))
        search.tell(points[0], Verdict(state >= 10))
    assert asked == [(15, Purpose.REPLAY), (4, Purpose.REPLAY)]


@pytest.mark.parametrize(
    ("trials", "sides"),
    [
        ({}, (0, 18)),
        ({5: (0, 1), 7: (0, 1), 12: (1, 0), 10: (1, 0)}, (7, 10)),
        ({7: (0, 1), 5: (0, 1), 10: (1, 0), 12: (1, 0)}, (7, 10)),
        ({5: (0, 1), 7: (1, 1), 10: (1, 1), 12: (2, 1)}, (7, 12)),
        ({3: (2, 1), 5: (0, 1), 12: (2, 0)}, (5, 12)),
        ({5: (0, 1), 8: (0, 3), 9: (3, 0), 11: (0, 1), 12: (2, 0)}, (8, 12)),
        ({7: (0, 1), 16: (0, 1), 12: (1, 0), 17: (1, 0)}, (7, 12)),
        ({16: (0, 1), 7: (0, 1), 17: (1, 0), 12: (1, 0)}, (16, 17)),
    ],
)
def test_several_changes_lie_between_the_nearest_states_that_were_tested(
    trials: dict[int, Counts], sides: tuple[int, int]
) -> None:
    """Changes 8 and 9, of sixteen; states 16 and 17 hold what 7 and 12 do, and of equals the first
    tried is named.
    """
    search = GraphBisection(line(16, twins=(7, 12)))
    search.assume({(0,): (0, 1), (18,): (1, 0), **{(s,): seen for s, seen in trials.items()}})
    good, bad = search._sides(0b11 << 8)
    assert (good[0], bad[0]) == sides


@both
def test_what_is_believed_is_told_in_the_order_of_the_changes(kind: str) -> None:
    search = of_line(kind, 16, CONTRADICTED)
    written = WrittenOut.after(
        search.prior_rates, [1.0] * 16, lambda state, change: state > change, CONTRADICTED
    )
    atoms = search.atoms()
    assert [(start, stop) for start, stop, _ in atoms] == [(0, 4), (4, 9), (9, 16)]
    weights = [weight for start, stop, weight in atoms for _ in range(start, stop)]
    assert weights == pytest.approx(written.weights(), abs=1e-6)


@both
def test_an_answer_that_only_a_check_is_missing_from_is_one_question_away(kind: str) -> None:
    trials: dict[int, Counts] = {0: (1, 90), 9: (1, 90), 10: (90, 1), 20: (90, 1)}
    search = of_line(kind, 20, trials, BisectionSettings(sentinels=1))
    assert search.is_sure
    assert [point.purpose for point in search.ask(1)] == [Purpose.REPLAY]
    assert search.expected_questions() == 1


def test_of_very_many_states_a_sample_along_the_history_is_weighed() -> None:
    for count, step in ((0, 1), (3, 1), (1499, 1), (1500, 2), (2999, 2), (3000, 3)):
        assert _sample(range(count)) == range(0, count, step)


def test_weighed_are_the_tested_states_and_each_other_way_to_cut_what_is_believed_once() -> None:
    search = GraphBisection(line(8, twins=(4, 6)))
    told: dict[Vector, Counts] = {(0,): (0, 40), (10,): (40, 0), (3,): (0, 40), (7,): (40, 1)}
    search.assume(told)
    assert list(search._worth_weighing()) == [*told, (4,), (5,), (6,)]
    search.assume({(5,): (1, 1)})
    assert list(search._worth_weighing()) == [*told, (5,), (4,), (6,)]


@both
def test_of_flaky_trials_one_on_each_side_of_the_answer_is_enough(kind: str) -> None:
    trials: dict[int, Counts] = {0: (1, 90), 8: (0, 60), 9: (0, 1), 10: (1, 0), 11: (60, 0)}
    search = of_line(kind, 20, {**trials, 20: (90, 1)}, BisectionSettings(confidence=0.9))
    assert search.is_sure
    assert search.answer is not None
    assert [change.rank for change in search.answer.changes] == [9]
    assert search.done


@both
def test_in_place_of_a_bad_end_no_state_is_tried_that_a_later_one_has_cleared(kind: str) -> None:
    """Steps back from the end are of one, two and four states; 30 and 29 cannot be tested
    either.
    """
    for cleared, first in ((28, None), (26, 27)):
        search = of_line(kind, 31, {})
        for end, told in ((31, None), (0, False)):
            search.tell(search.timeline.point((end,), Purpose.CALIBRATE, 0), Verdict(told))
        assert search.taken_on_trust == {(31,)}
        for state, told in ((30, None), (29, None), (cleared, False)):
            search.tell(probe(search, state), Verdict(told))
        asked = [place(search, point) for point in search.ask(1)]
        assert asked == [first] if first else 27 not in asked


@both
@pytest.mark.parametrize(("changes", "most"), [(1, 240), (7, 400), (1023, 960)])
def test_a_search_may_take_eighty_trials_for_each_halving_and_for_two_more(
    kind: str, changes: int, most: int
) -> None:
    assert of_line(kind, changes, {}).most_trials == most


# -- ends, repairs, groups ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("good", "bad", "verdict"),
    [
        (None, None, EndsVerdict.OPEN),
        ((0, 1), None, EndsVerdict.OPEN),
        (None, (1, 0), EndsVerdict.OPEN),
        ((0, 1), (1, 0), EndsVerdict.DIFFER),
        (None, (0, 15), EndsVerdict.OPEN),
        (None, (0, 16), EndsVerdict.BAD_DOES_NOT_FAIL),
        ((0, 1), (0, 1), EndsVerdict.OPEN),
        ((1, 0), (1, 0), EndsVerdict.OPEN),
        ((2, 0), (1, 0), EndsVerdict.GOOD_FAILS_TOO),
        ((2, 0), None, EndsVerdict.GOOD_FAILS_TOO),
        ((1, 4), (1, 0), EndsVerdict.OPEN),
        ((1, 5), (5, 0), EndsVerdict.DIFFER),
    ],
)
def test_an_end_that_was_never_tried_is_as_open_as_one_that_told_nothing(
    good: Counts | None, bad: Counts | None, verdict: EndsVerdict
) -> None:
    trials: dict[Vector, Counts] = {} if good is None else {(0,): good}
    trials |= {} if bad is None else {(4,): bad}
    ends = Ends(one_package(5), USUAL_RATES)
    assert ends.verdict(trials, ()) is verdict


def test_ends_are_alike_where_one_rate_is_twenty_times_as_likely_as_two() -> None:
    """Looked at once the good end failed twice and nothing else, or was tried six times."""
    ends, rates = Ends(one_package(5), USUAL_RATES), USUAL_RATES
    seen = set()
    for good, bad in product(product(range(5), range(7)), product(range(5), range(4))):
        hits, misses = good[0] + bad[0], good[1] + bad[1]
        one_rate = 1 / ((hits + misses + 1) * math.comb(hits + misses, hits))
        two = math.exp(rates.good.log_marginal(*good) + rates.bad.log_marginal(*bad))
        enough = sum(good) >= (6 if good[1] else 2) and good[0] > 0
        alike = enough and one_rate > 20 * two
        assert ends.are_alike({(0,): good, (4,): bad}) is alike
        seen.add(alike)
    assert seen == {True, False}


@pytest.mark.parametrize(
    ("evidence", "starts"),
    [
        ([-5.0, 5.0, -5.0, 5.0], [0, 1, 2, 3]),
        ([-5.0, 0.5, 5.0, -5.0, 5.0], [0, 1, 3, 4]),
        ([-5.0, -0.5, 5.0, -5.0, 5.0], [0, 2, 3, 4]),
        ([-5.0, 0.0, 5.0, -5.0, 5.0], [0, 1, 3, 4]),
        ([-5.0, 5.0, 0.0, -5.0, 5.0], [0, 1, 2, 4]),
        ([5.0, 5.0, -5.0, -5.0, 5.0, 5.0], [0, 0, 2, 4]),
    ],
)
def test_blocks_are_cut_where_the_evidence_turns(evidence: list[float], starts: list[int]) -> None:
    assert _best_blocks(evidence, 4) == starts


def test_blocks_are_as_likely_as_all_good_and_all_bad_trials_taken_together() -> None:
    seen: list[Counts] = [(0, 3), (2, 0), (1, 4), (5, 1)]
    good, bad = USUAL_RATES.good.log_marginal, USUAL_RATES.bad.log_marginal
    assert _likelihood(seen, [0, 1, 2, 3], USUAL_RATES) == good(1, 7) + bad(7, 1)
    assert _likelihood(seen, [0, 3], USUAL_RATES) == good(3, 7) + bad(5, 1)
    assert _likelihood(seen, [0, 0], USUAL_RATES) == good(0, 0) + bad(8, 8)


def test_a_state_leans_to_bad_by_what_its_trials_say_at_the_rates_of_the_two_ends() -> None:
    seen: list[Counts] = [(0, 3), (2, 0), (1, 4), (5, 1)]
    flakes, fails = USUAL_RATES.good.mean(0, 3), USUAL_RATES.bad.mean(5, 1)
    ratios = [(fails / flakes) ** h * ((1 - fails) / (1 - flakes)) ** m for h, m in seen]
    assert _leanings(seen, USUAL_RATES) == pytest.approx([math.log(ratio) for ratio in ratios])


def test_a_repair_is_looked_for_from_the_floor_on() -> None:
    trials: dict[Vector, Counts] = {(0,): (0, 6), (5,): (6, 0), (9,): (0, 6), (15,): (6, 0)}
    timeline = one_package(16)
    repaired = fixed_in_between(timeline, trials, 0, USUAL_RATES)
    assert repaired is not None
    assert (repaired.broken, repaired.repaired) == (5, 9)
    assert fixed_in_between(timeline, trials, 1, USUAL_RATES) is None


def test_the_shortest_stretch_holds_just_what_is_wanted() -> None:
    """Of ten changes that are alike seven hold seven tenths, the first seven."""
    timeline = one_package(11)
    belief = Belief.after(USUAL_RATES, timeline, {})
    for confidence, stop in ((0.7, 7), (0.71, 8), (0.05, 1), (1.0, 10)):
        found = shortest_interval(timeline, belief, confidence)
        assert (found.start, found.stop) == (0, stop)
        assert found.mass == pytest.approx(stop / 10)


def test_a_run_that_nothing_tells_apart_is_one_group_and_the_first_of_equals_is_named() -> None:
    timeline = one_package(11)
    belief = Belief.after(USUAL_RATES, timeline, {})
    for testable, group in (
        ({3, 7}, (3, 7)),
        ({4, 6}, (0, 4)),
        ({2, 8, 9}, (2, 8)),
        (set(), (0, 10)),
    ):
        found = likeliest_group(timeline, belief, testable.__contains__)
        assert (found.start, found.stop) == group
    alone = likeliest_group(timeline, belief, lambda _: True)
    assert (alone.start, alone.stop) == (0, 1)
    assert alone.mass == pytest.approx(0.1)


def test_three_trials_that_went_astray_give_up_a_state_that_told_two_times_and_not_three() -> None:
    for told, given_up in ((2, True), (3, False)):
        search = TimelineBisection(one_package(9))
        search.assume({(0,): (0, 1), (8,): (1, 0), (4,): (0, told)})
        for number in range(3):
            search.tell(probe(search, 4, number), Verdict(None))
        assert search.is_exhausted((4,)) is given_up


# -- alone, and back in time ----------------------------------------------------------------------


def predicted(counts: Counts, seen: Counts, prior: tuple[float, float]) -> float:
    """The probability of these trials one after the other, hits first."""
    (a, b), whole = (seen[0] + prior[0], seen[1] + prior[1]), 1.0
    for hit in [True] * counts[0] + [False] * counts[1]:
        whole *= (a if hit else b) / (a + b)
        a, b = a + hit, b + (not hit)
    return whole


@pytest.mark.parametrize("good", [(0, 3), (0, 20), (1, 9)])
@pytest.mark.parametrize("bad", [(2, 0), (5, 3), (9, 1)])
@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95])
def test_alone_it_passes_at_five_times_the_odds_at_which_it_fails(
    good: Counts, bad: Counts, confidence: float
) -> None:
    timeline = one_package(4)
    for hits in (0, 1, 2):
        search = AloneFirst(TimelineBisection(timeline), timeline, good, bad, confidence)
        for misses in range(12):
            number = hits + misses
            odds = predicted((hits, misses), bad, (1.0, 1.0)) / predicted(
                (hits, misses), good, (0.05, 1.0)
            )
            search._counts = (hits, misses)
            fails = odds >= 1 / (1 - confidence)
            passes = odds <= (1 - confidence) / 5
            assert search.fails is (True if fails else False if passes else None), number


def test_a_series_is_near_enough_from_its_oldest_day_on() -> None:
    def near(interval: Interval) -> bool:
        return interval.stop - interval.start <= 7

    days = range(40)
    search = GallopBack(
        "day",
        [str(day) for day in days],
        [float(day) for day in days],
        settings=BisectionSettings(close_enough=near),
        known_bad=True,
    )
    asked = []
    while points := search.ask(1):
        day = int(str(points[0]["day"]))
        asked.append(day)
        search.tell(points[0], Verdict(day >= 3))
    assert asked == [38, 37, 35, 31, 23, 7, 0]
    assert search.bisection is not None
    assert search.bisection.answer is not None
    assert (search.bisection.answer.start, search.bisection.answer.stop) == (1, 8)


def test_no_day_is_taken_for_good_before_the_newest_is_known_to_fail() -> None:
    days = range(8)
    search = GallopBack("day", [str(day) for day in days], [float(day) for day in days])
    [newest] = search.ask(1)
    search.tell(newest, Verdict(True))
    for number in range(5):
        search.tell(Point.of({"day": "6"}, replica=number), Verdict(False))
    assert not search.done
    for point in search.ask(3):
        assert (point["day"], point.purpose) == ("7", Purpose.CALIBRATE)
        search.tell(point, Verdict(True))
    assert search.verdict is GallopVerdict.BRACKETED


@pytest.mark.parametrize("newest", [(4, 0), (2, 2), (1, 3)])
@pytest.mark.parametrize("day", [2, 5, 6])
def test_a_day_is_quiet_often_enough_once_the_change_more_likely_came_after_it(
    newest: Counts, day: int
) -> None:
    """Eight days: older than all, four to seven days back (three of them), two or three, yesterday
    and today.
    """
    search = GallopBack("day", [str(n) for n in range(8)], [float(n) for n in range(8)])
    search._search.assume({(8,): newest})
    prior = [1.0, *[1 / 3] * 3, 1 / 2, 1 / 2, 1.0, 1.0]
    misses = 0
    likely = False
    while not likely:
        misses += 1
        told = {8: newest, day + 1: (0, misses)}
        written = WrittenOut.after(USUAL_RATES, prior, lambda state, change: state > change, told)
        likely = math.fsum(written.weights()[day + 1 :]) >= 0.5
    assert search._silence_wanted(day) == misses


def test_on_the_way_back_a_day_that_was_quiet_often_enough_is_not_asked_again() -> None:
    search = GallopBack(
        "day", [str(n) for n in range(8)], [float(n) for n in range(8)], known_bad=True
    )
    assert [point["day"] for point in search.ask(3)] == ["6", "5", "3"]
    for number in range(3):
        search.tell(Point.of({"day": "5"}, replica=number), Verdict(False))
    assert [point["day"] for point in search.ask(2)] == ["6", "3"]
