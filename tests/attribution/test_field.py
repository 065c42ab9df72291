"""Failures in the shapes of the field: what was learned stays learned, and no look ever stops a job wrongly."""

import json
from pathlib import Path

import pytest
from benchmarks.faults.field import Excerpt, first, last, second, third

from aorta.attribution import attribute
from aorta.attribution.causes import UNEXPLAINED
from aorta.attribution.finding import CONFIDENCE
from aorta.attribution.taxonomy import Certainty

RESULTS = Path(first.__file__).parents[2] / "results"
LEARNED = (*first.EXCERPTS, *second.EXCERPTS, *third.EXCERPTS)
NOT_UNDERSTOOD = {"bnb_no_cuda", "dask_worker"}  # their words say something else
RESTARTED_TO_BE_SAFE = {  # only plain words tell, or a log that may have been cut off
    "sagemaker_user",
    "llamafactory_dataset",
    "json_lines",
}
RIGHT_AT_FIRST = 54  # of the last set


@pytest.mark.parametrize("excerpt", LEARNED, ids=lambda excerpt: excerpt.name)
def test_a_failure_of_the_field_gets_its_class_its_root_and_its_decision(excerpt: Excerpt) -> None:
    result = attribute(excerpt.evidence())
    assert result.decision.action != "STOP" or excerpt.decision == "STOP"
    if excerpt.name in NOT_UNDERSTOOD:
        assert result.finding.confidence < 0.5
        return
    assert result.finding.failure_class == excerpt.failure_class, result.finding.summary
    assert not excerpt.root_ranks or result.finding.root.rank in excerpt.root_ranks
    if excerpt.name not in RESTARTED_TO_BE_SAFE:
        assert result.decision.action == excerpt.decision, result.decision.reason


def test_the_last_set_is_read_no_worse_than_at_the_first_look() -> None:
    results = [(excerpt, attribute(excerpt.evidence())) for excerpt in last.EXCERPTS]
    right = [e.name for e, result in results if result.finding.failure_class == e.failure_class]
    stops = [e.name for e, r in results if r.decision.action == "STOP" and e.decision != "STOP"]
    assert len(right) >= RIGHT_AT_FIRST
    assert not stops


def test_the_last_set_holds_at_least_sixty_and_each_was_looked_at() -> None:
    names = {excerpt.name for excerpt in last.EXCERPTS}
    assert len(names) == len(last.EXCERPTS) >= 60
    looked_at = {row["job"] for row in json.loads((RESULTS / "field_last_look.json").read_text())}
    assert looked_at == names


def test_confidence_at_first_looks_was_right_about_as_often_as_it_says_today() -> None:
    bands: dict[float, list[bool]] = {}
    for name, module in (("first", first), ("second", second), ("third", third), ("last", last)):
        truth = {excerpt.name: excerpt.failure_class for excerpt in module.EXCERPTS}
        for row in json.loads((RESULTS / f"field_{name}_look.json").read_text()):
            band = next(low for low in (0.7, 0.3, 0.0) if row["confidence"] >= low)
            bands.setdefault(band, []).append(row["class"] == truth[row["job"]])
    share = {band: sum(right) / len(right) for band, right in bands.items()}
    assert share[0.7] >= 0.86
    assert abs(share[0.3] - CONFIDENCE[Certainty.WEAK]) < 0.1
    assert abs(share[0.0] - UNEXPLAINED) < 0.1
