"""What is written into pages and paths cannot break out of them."""

from dataclasses import replace
from pathlib import Path

import pytest

from aorta.core.names import slug
from aorta.triage.matrix import aligned, escaped
from aorta.triage.plan import build_plan
from support.triage_runs import BASELINE, cell, loaded


def test_a_table_cell_stays_one_cell() -> None:
    assert escaped("a|b\\c\nd") == "a\\|b\\\\c d"
    lines = aligned([["x", "y"], ["a|b", "c"]])
    assert len({len(line) for line in lines}) == 1


@pytest.mark.parametrize("text", ["", ".", "..", "../x", "a/b", "/etc", "a\0b"])
def test_whatever_a_cell_is_called_its_files_stay_in_the_run_directory(
    tmp_path: Path, text: str
) -> None:
    plan = build_plan(loaded(tmp_path, BASELINE), "cpu")
    forced = plan.baseline.cell.model_copy(update={"name": text})
    path = replace(plan.baseline, cell=forced).trial_file(0)
    assert (tmp_path / path).resolve().is_relative_to(tmp_path / "cells")
    assert "/" not in slug(text)


def test_the_baseline_is_found_by_name_then_by_what_it_is(tmp_path: Path) -> None:
    one, two = cell("a", "xnack"), cell("b")
    named = {"confound": {"baseline_cell": "a"}}
    assert build_plan(loaded(tmp_path, one, two, **named), "cpu").baseline.name == "a"
    assert build_plan(loaded(tmp_path, two, cell("baseline-x", "xnack")), "cpu").baseline.name == (
        "baseline-x"
    )
    assert build_plan(loaded(tmp_path, one, two), "cpu").baseline.name == "b"
    assert build_plan(loaded(tmp_path, one), "cpu").baseline.name == "a"
