"""Failures in the shapes of the field: what was learned stays learned, and no look ever stops a job
wrongly.
"""

import json

import pytest
from benchmarks.attribution_model import RESULTS
from benchmarks.faults.field import Excerpt
from benchmarks.faults.field.sets import SETS

from aorta.attribution import attribute

pytestmark = pytest.mark.xdist_group("corpus")  # where what was read before is remembered
LEARNED = tuple(each for name in ("first", "second", "third") for each in SETS[name])
RESTARTED_TO_BE_SAFE = {  # only plain words tell, or a log that may have been cut off
    "sagemaker_user",
    "bnb_no_cuda",
    "llamafactory_dataset",
    "json_lines",
}
ONLY_WORDS_ABOVE = {"bnb_no_cuda"}  # an exception that says nothing: user_exception
LATER = [(name, SETS[name]) for name in ("fifth", "sixth", "seventh", "eighth")]
RIGHT_AT_FIRST = 54  # of the last set


def test_a_failure_of_the_field_gets_its_class_its_root_and_its_decision() -> None:
    for excerpt in LEARNED:
        result = attribute(excerpt.evidence())
        finding, decision = result.finding, result.decision
        assert decision.action != "STOP" or excerpt.decision == "STOP", excerpt.name
        told = finding.failure_class == excerpt.failure_class or excerpt.name in ONLY_WORDS_ABOVE
        assert told, (excerpt.name, finding.summary)
        assert not excerpt.root_ranks or finding.root.rank in excerpt.root_ranks, excerpt.name
        if excerpt.name not in RESTARTED_TO_BE_SAFE:
            assert decision.action == excerpt.decision, (excerpt.name, decision.reason)


def test_the_last_set_is_read_no_worse_than_at_the_first_look() -> None:
    results = [(excerpt, attribute(excerpt.evidence())) for excerpt in SETS["last"]]
    right = [e.name for e, result in results if result.finding.failure_class == e.failure_class]
    stops = [e.name for e, r in results if r.decision.action == "STOP" and e.decision != "STOP"]
    assert len(right) >= RIGHT_AT_FIRST
    assert not stops


def test_the_last_set_holds_at_least_sixty_and_each_was_looked_at() -> None:
    names = {excerpt.name for excerpt in SETS["last"]}
    assert len(names) == len(SETS["last"]) >= 60
    looked_at = {row["job"] for row in json.loads((RESULTS / "field_last_look.json").read_text())}
    assert looked_at == names


@pytest.mark.parametrize(("name", "excerpts"), LATER, ids=[name for name, _ in LATER])
def test_a_later_set_is_read_no_worse_than_at_its_first_look_and_stops_nothing_wrongly(
    name: str, excerpts: tuple[Excerpt, ...]
) -> None:
    looked_at = json.loads((RESULTS / f"field_{name}_look.json").read_text())
    truth = {excerpt.name: excerpt for excerpt in excerpts}
    assert len(truth) == len(excerpts) >= 60
    assert {row["job"] for row in looked_at} == set(truth)
    right_then = sum(row["class"] == truth[row["job"]].failure_class for row in looked_at)
    results = [(excerpt, attribute(excerpt.evidence())) for excerpt in excerpts]
    right = [e.name for e, result in results if result.finding.failure_class == e.failure_class]
    stops = [e.name for e, r in results if r.decision.action == "STOP" and e.decision != "STOP"]
    assert len(right) >= right_then
    assert not stops
