"""What no row knows is read by its words: the weights are what the trainer fits, and what was held
back shows what they are worth.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks import attribution_words

from aorta.attribution import Evidence, LogTail, attribute
from aorta.attribution.finding import FITTED
from aorta.attribution.policy import SURE
from aorta.attribution.word_model import SCALE

pytestmark = pytest.mark.xdist_group("corpus")  # where what was read before is remembered
LOOKS = json.loads(attribution_words.LOOKS.read_text())
FRAMES = 'Traceback (most recent call last):\n  File "/srv/train.py", line 9, in main\n    run()\n'


def told(log: str) -> tuple[str, str, str]:
    result = attribute(Evidence(tails=(LogTail(log, name="job.log"),)))
    return result.finding.failure_class, result.decision.action, result.finding.basis


def entries(text: str) -> tuple[list[str], dict[str, dict[str, int]]]:
    head, *lines = text.splitlines()
    rows = {}
    for line in lines:
        word, _, weights = line.partition("\t")
        rows[word] = {k: int(v) for k, _, v in (each.partition(":") for each in weights.split())}
    return head.split(), rows


def test_the_weights_in_the_package_are_what_the_trainer_fits_to_what_is_committed() -> None:
    columns, fitted = entries(attribution_words.written(list(attribution_words.examples())))
    stated_columns, stated = entries(attribution_words.MODEL.read_text())
    assert columns == stated_columns
    for word in {*fitted, *stated}:
        one, other = fitted.get(word, {}), stated.get(word, {})
        for column in {*one, *other}:
            # What is nearly nothing is left out, and machines round in their own ways.
            apart = abs(one.get(column, 0) - other.get(column, 0))
            assert apart <= 1 or max(abs(one.get(column, 0)), abs(other.get(column, 0))) <= 6, word
    assert SCALE == 100


def test_no_failure_that_was_held_back_from_the_fit_is_stopped_wrongly_by_its_words() -> None:
    by_words = [row for row in LOOKS if attribution_words.is_asked(row)]
    stopped = [row for row in by_words if attribution_words.verdict(row)[1] == "STOP"]
    assert len(stopped) >= 10
    assert [row["job"] for row in stopped if row["met_again"] is False] == []


def test_words_name_more_of_what_was_held_back_than_rows_alone_do() -> None:
    asked = [row for row in LOOKS if attribution_words.is_asked(row)]
    rows = sum(row["rows"] == row["truth"] for row in asked)
    both = sum(attribution_words.verdict(row)[0] == row["truth"] for row in asked)
    assert both > 1.25 * rows


def _bands(looks: list[dict[str, Any]]) -> Iterator[tuple[float, float]]:
    """What was stated in each band, and how often that was right."""
    bands: dict[float, list[tuple[float, bool]]] = {}
    for row in looks:
        named, _, confidence = attribution_words.verdict(row)
        band = next(low for low in (0.9, 0.8, 0.7, 0.5, 0.3, 0.0) if confidence >= low)
        bands.setdefault(band, []).append((confidence, named == row["truth"]))
    for told in bands.values():
        stated, right = (sum(column) / len(told) for column in zip(*told, strict=True))
        yield stated, right


def in_group(group: str) -> list[dict[str, Any]]:
    return [row for row in LOOKS if attribution_words.group_of(row["fold"]) == group]


@pytest.mark.parametrize("held_back_by", ["reports", "collectors"])
def test_in_every_band_reports_held_back_were_named_right_about_as_often_as_is_stated(
    held_back_by: str,
) -> None:
    assert all(abs(stated - right) < 0.08 for stated, right in _bands(in_group(held_back_by)))


def test_what_imitates_reports_was_never_named_right_less_often_than_is_stated() -> None:
    assert all(right > stated - 0.05 for stated, right in _bands(in_group("field")))


def test_a_mistake_may_be_plain_where_its_class_is_not() -> None:
    by_words = [row for row in LOOKS if attribution_words.is_asked(row)]
    stopped = [row for row in by_words if attribution_words.verdict(row)[1] == "STOP"]
    other = [row for row in stopped if attribution_words.verdict(row)[0] != row["truth"]]
    assert other
    assert all(row["met_again"] is not False for row in other)


def test_the_surest_reading_of_an_accident_is_far_from_what_stops() -> None:
    may = [row for row in LOOKS if attribution_words.is_asked(row) and row["may_stop"]]
    stops = {
        share: [int(band[1:]) / 100 for band, told in FITTED[share].items() if told >= SURE]
        for share in ("mistake", "mistakes")
    }
    assert any(stops.values())
    for share, from_here in stops.items():
        surest = max(row[share] for row in may if row["met_again"] is False)
        assert min(from_here, default=1.0) - surest >= 0.4 * (1 - surest)


def test_no_repository_is_on_both_sides_of_a_fold() -> None:
    sources = [json.loads(line) for line in attribution_words.REPORTS.read_text().splitlines()]
    repository = {row["name"]: row["source"].partition("#")[0].lower() for row in sources}
    folds: dict[str, set[str]] = {}
    for example in attribution_words.reports():
        folds.setdefault(repository[example.name], set()).add(example.fold)
    assert all(len(found) == 1 for found in folds.values())
    assert len(repository) == len(sources) >= 500


def test_a_message_that_no_row_knows_is_named_by_its_words() -> None:
    said = "acme.PlannerError: tensor parallel degree 6 does not go with 32 attention heads"
    failure_class, action, basis = told(f"{FRAMES}{said}\n")
    assert failure_class == "bad_config"
    assert action == "RESTART"
    assert basis.split(".")[1] == "words"


HANGUP = """\
WARNING:torch.distributed.elastic.agent.server.api:Received 1 death signal, shutting down workers
WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 41 closing signal SIGHUP
Traceback (most recent call last):
  File "/opt/run.py", line 8, in run
"""
INDENTED = """\
    evaluating
    free(): double free detected in tcache 2
    Aborted (core dumped)
"""
FORBIDDEN = """\
Unsuccessful TensorSliceReader constructor: Failed to get matching files: Error executing an HTTP request: HTTP response code 403 with body '{
 "error": {
  "code": 403,
  "message": "the account does not have storage.objects.list access to the bucket."
 }
}
'
\t when reading gs://bucket/output
"""


@pytest.mark.parametrize(
    ("log", "failure_class"),
    [(INDENTED, "abort"), (HANGUP, "killed"), (FORBIDDEN, "permission_denied")],
    ids=["indented", "logged", "with brackets behind it"],
)
def test_what_no_row_reads_is_named_by_its_last_lines_however_they_are_indented_or_logged(
    log: str, failure_class: str
) -> None:
    named, action, basis = told(log)
    assert (named, action, basis.split(".")[1]) == (failure_class, "RESTART", "last_lines")


def test_words_stop_a_job_for_what_ended_it_and_never_for_what_it_only_logged() -> None:
    refused = (
        f"{FRAMES}ValueError: Target modules {{'q'}} not found in the base model. Please "
        "check the target modules and try again.\n"
    )
    logged = f"2026-11-15 05:35:21,123 ERROR trainer.py:9 - not adapted\n{refused}"
    assert told(refused)[:2] == ("bad_config", "STOP")
    assert told(logged)[:2] == ("bad_config", "RESTART")


def test_words_never_stop_a_job_for_what_another_node_may_not_show() -> None:
    refused = (
        "acme.StartError: no visible GPU device, set the number of devices in the configuration"
    )
    assert told(f"{FRAMES}{refused}\n")[:2] == ("bad_config", "RESTART")


def test_a_model_without_words_leaves_what_rows_say() -> None:
    log = (
        f"{FRAMES}acme.PlannerError: tensor parallel degree 6 does not go with 32 attention heads\n"
    )
    evidence = Evidence(tails=(LogTail(log),))
    assert attribute(evidence, words=attribution_words.ROWS_ALONE).finding.basis == "python.weak"


def test_a_job_that_says_nothing_of_a_failure_stays_unknown() -> None:
    steps = "".join(f"step {n} loss 0.5 tokens/s 1200\n" for n in range(40))
    assert told(steps)[:2] == ("unknown", "UNKNOWN")
