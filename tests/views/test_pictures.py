"""Pictures in characters: they say what is known, and never leave their width."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta.core.axis import Point, Purpose, Value
from aorta.core.trial import Outcome, Tally, Verdict
from aorta.engine import events
from aorta.engine.events import Event
from aorta.views.pictures import AxesPicture, BeliefPicture, CellsPicture, Picture, TrialsPicture
from support.report_runs import trial

REPRODUCES, DOES_NOT = Verdict(True, Tally(reproduced=1)), Verdict(False, Tally(clean=1))


def ended(values: dict[str, Value], outcome: str) -> Event:
    return events.TrialEnded(trial(0, values, outcome, "", 1.0), replayed=False)


def shown(
    picture: Picture, seen: list[Event], width: int = 60, *, ascii_only: bool = False
) -> list[str]:
    for event in seen:
        picture(event)
    return picture.lines(width, ascii_only=ascii_only)


def settled(values: dict[str, Value], best: dict[str, Value], purpose: str = "probe") -> Event:
    verdict = REPRODUCES if values == best else DOES_NOT
    return events.PointSettled(Point.of(values, Purpose(purpose)), verdict, Point.of(best))


def test_trials_are_marks_and_a_rate() -> None:
    lines = shown(
        TrialsPicture(), [ended({}, o) for o in ("reproduced", "clean", "other", "error")]
    )
    assert lines[0] == "●○◇✕"
    assert lines[1].startswith("1/3 failed, 6-79 %")


def test_axes_shrink_from_the_original_to_the_best() -> None:
    steps: list[Event] = [
        settled({"N": 5000, "F": (1, 2, 3)}, {"N": 5000, "F": (1, 2, 3)}, "calibrate")
    ]
    steps += [settled({"N": n, "F": (1, 2, 3)}, {"N": n, "F": (1, 2, 3)}) for n in (500, 50)]
    steps.append(settled({"N": 5, "F": (1, 2, 3)}, {"N": 50, "F": (1, 2, 3)}))
    steps.append(settled({"N": 50, "F": (2,)}, {"N": 50, "F": (2,)}))
    lines = shown(AxesPicture(), steps)
    assert lines == ["F 3 items → 1 items █▁", "N 5000 → 50 █▄▁"]
    assert shown(AxesPicture(), steps, ascii_only=True)[1] == "N 5000 -> 50 #=_"


def test_a_matrix_fills_cell_by_cell() -> None:
    seen = [
        ended({"cell": c}, o) for c, o in (("a", "clean"), ("b", "reproduced"), ("a", "reproduced"))
    ]
    assert shown(CellsPicture(), seen) == ["a 1/2 ○●", "b 1/1 ●"]


def test_a_belief_narrows_to_the_plausible_changes() -> None:
    picture = BeliefPicture(lambda: [(0, 40, 0.0), (40, 41, 0.9), (41, 100, 0.1 / 59)])
    lines = shown(picture, [settled({"p": "v"}, {"p": "v"})], width=50)
    assert lines[0].index("█") == 20
    assert lines[2] == "1 of 100 changes are plausible"
    assert BeliefPicture().lines(50, ascii_only=False) == []


NAMES = st.text(min_size=1, max_size=40)


@pytest.mark.parametrize("kind", [TrialsPicture, AxesPicture, CellsPicture, BeliefPicture])
@given(
    names=st.lists(NAMES, min_size=1, max_size=20),
    outcomes=st.lists(st.sampled_from(list(Outcome)), min_size=1, max_size=80),
    width=st.integers(1, 120),
    ascii_only=st.booleans(),
)
def test_no_line_leaves_its_width_or_moves_the_cursor(
    kind: type[Picture], names: list[str], outcomes: list[Outcome], width: int, ascii_only: bool
) -> None:
    picture = kind()
    if isinstance(picture, BeliefPicture):
        picture.follow(lambda: [(n, n + 1, 1 / len(outcomes)) for n in range(len(outcomes))])
    picture(events.RunStarted(Path()))
    for number, outcome in enumerate(outcomes):
        name = names[number % len(names)]
        values: dict[str, Value] = {"cell": name, name: number}
        picture(ended(values, outcome.value))
        picture(settled(values, values, "probe" if number else "calibrate"))
    lines = picture.lines(width, ascii_only=ascii_only)
    assert all(len(line) <= width for line in lines)
    assert all(line.isprintable() for line in lines)
