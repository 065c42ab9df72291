"""What counts as the failure: a table of ends and their outcomes."""

import random
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from aorta.core.documents import StrictModel, validated
from aorta.core.errors import SpecError
from aorta.core.failure import failure_of, same_failure
from aorta.core.oracle import (
    ExitCodeOracle,
    HangOracle,
    MetricOracle,
    Oracle,
    PythonOracle,
    RegexOracle,
    classify,
)
from aorta.core.trial import Match, Outcome, Resources, StreamEnd, TrialEnd


def end(stderr: str = "", **facts: Any) -> TrialEnd:
    return TrialEnd("t", StreamEnd(Path("out")), StreamEnd(Path("err"), tail=stderr), **facts)


def saw(pattern: str, *groups: str) -> dict[str, Any]:
    return {"matches": (Match(pattern, "stdout", "the line", 0.1, groups),)}


REGEX = RegexOracle(pattern="NaN")
WITH_FAILURE = RegexOracle(pattern="NaN", with_failure=True)
HANG = HangOracle(silent_for=3.0)
METRIC = MetricOracle(pattern=r"loss (\S+)", above=2.0)
ANY, SOME = ExitCodeOracle(), ExitCodeOracle(codes=(3, -6, 137))
NEVER_BEGAN = {
    "result": {"main_work_started": False, "failure_count": 1, "predicates": {"bad": True}}
}
R, C, X, E = Outcome.REPRODUCED, Outcome.CLEAN, Outcome.OTHER, Outcome.ERROR


@pytest.mark.parametrize(
    ("oracle", "facts", "outcome"),
    [
        (ANY, {"exit_code": 0}, C),
        (ANY, {"exit_code": 1}, R),
        (ANY, {"signal": 11}, R),
        (ANY, {"signal": 6}, R),
        (ANY, {"signal": 9}, R),
        (ANY, {"signal": 9, "out_of_memory": True}, R),
        (ANY, {"signal": 15}, R),
        (ANY, {"exit_code": 137}, R),
        (ANY, {"exit_code": 126}, R),
        (ANY, {"exit_code": 127}, R),
        (ANY, {"exit_code": 126, "result": {"main_work_started": False}}, E),
        (ANY, {"timed_out": True}, E),
        (ANY, {"lost": "no such image"}, E),
        (SOME, {"exit_code": 3}, R),
        (SOME, {"exit_code": 4}, X),
        (SOME, {"signal": 6}, R),
        (SOME, {"exit_code": 137}, R),
        (SOME, {"signal": 9}, R),
        (SOME, {"exit_code": 134}, R),
        (SOME, {"exit_code": 127}, X),
        (SOME, {"exit_code": 0}, C),
        (REGEX, saw("NaN"), R),
        (REGEX, {"exit_code": 0}, C),
        (REGEX, {"exit_code": 1}, X),
        (REGEX, {"exit_code": 127}, X),
        (REGEX, {"signal": 9}, X),
        (REGEX, {"timed_out": True}, E),
        (REGEX, {"timed_out": True, **saw("NaN")}, R),
        (WITH_FAILURE, {"exit_code": 0, **saw("NaN")}, C),
        (WITH_FAILURE, {"exit_code": 1, **saw("NaN")}, R),
        (HANG, {"hung": True}, R),
        (HANG, {"exit_code": 0}, C),
        (HANG, {"exit_code": 1}, X),
        (HANG, {"timed_out": True}, E),
        (METRIC, {"exit_code": 0, **saw(METRIC.pattern or "", "2.5")}, R),
        (METRIC, {"exit_code": 0, **saw(METRIC.pattern or "", "1.5")}, C),
        (METRIC, {"exit_code": 0, **saw(METRIC.pattern or "", "nan")}, X),
        (METRIC, {"exit_code": 0, **saw(METRIC.pattern or "", "fast")}, E),
        (METRIC, {"exit_code": 0}, E),
        (METRIC, {"exit_code": 1}, X),
        (REGEX, {"signal": 15, **saw("NaN"), **NEVER_BEGAN}, E),
        (HANG, {"hung": True, **NEVER_BEGAN}, E),
        (METRIC, {"exit_code": 0, **saw(METRIC.pattern or "", "2.5"), **NEVER_BEGAN}, E),
        (SOME, {"exit_code": 3, **NEVER_BEGAN}, E),
        (PythonOracle(), {"exit_code": 1, **NEVER_BEGAN}, E),
        (PythonOracle(predicate="bad"), {"exit_code": 1, **NEVER_BEGAN}, E),
    ],
)
def test_an_end_means_one_of_four(oracle: Oracle, facts: dict[str, Any], outcome: Outcome) -> None:
    assert classify(oracle, end(**facts)).outcome is outcome


TRACEBACK = """Traceback (most recent call last):
  File "/home/{user}/train.py", line {line}, in step
    loss.backward()
ValueError: bad value {value} at 0x{value}ff in /tmp/{user}/x.pt
"""


def test_the_same_bug_has_the_same_signature_whatever_the_numbers_and_paths() -> None:
    first = end(TRACEBACK.format(user="ann", line=3, value=17), exit_code=1)
    again = end(TRACEBACK.format(user="bob", line=99, value=3), exit_code=1)
    assert failure_of(first) == failure_of(again)
    assert "train.py:step" in failure_of(first).text


def test_a_failure_with_another_signature_is_other_and_says_so() -> None:
    expected = failure_of(end(TRACEBACK.format(user="ann", line=3, value=17), exit_code=1))
    other = end("ImportError: No module named foo", exit_code=1)
    found = classify(ANY, other, expected)
    assert found.outcome is Outcome.OTHER
    assert "ImportError" in found.why


def test_a_signal_is_one_failure_whoever_reports_it() -> None:
    died = failure_of(end(signal=11))
    assert same_failure(died, failure_of(end(exit_code=139)))
    assert died.text == failure_of(end(exit_code=139)).text == "SIGSEGV"
    assert failure_of(end(exit_code=200)).text == "exit 200"


def test_colours_and_rank_prefixes_do_not_change_a_signature() -> None:
    plain = end("RuntimeError: NCCL error 5", exit_code=1)
    coloured = end("\x1b[31m[rank3]: RuntimeError: NCCL error 17\x1b[0m", exit_code=1)
    assert failure_of(plain) == failure_of(coloured)


def test_the_metric_of_a_file_is_read_by_its_key() -> None:
    oracle = MetricOracle(file="m.json", key="train.loss", below=1.0)
    result = {"metrics_file": {"train": {"loss": 0.5}}}
    assert classify(oracle, end(exit_code=0, result=result)).outcome is Outcome.REPRODUCED
    assert oracle.watch().json_file == "m.json"


@pytest.mark.parametrize(
    ("numbers", "outcome"),
    [
        (["0.9", *["0.1"] * 12, *["0.2"] * 4], R),
        (["0.9", *["0.1"] * 16], C),  # the first one warms up
        (["0.1", "0.1", "0.2", "0.2"], C),  # too few to tell
        (["0.2"] * 17, C),  # slow from its first step on
    ],
)
def test_a_relative_metric_holds_late_numbers_against_early_ones(
    numbers: list[str], outcome: Outcome
) -> None:
    oracle = MetricOracle(pattern=r"step_time (\S+)", above=1.8, relative=True)
    seen = Match(oracle.pattern or "", "stdout", "the line", 0.1, (numbers[-1],), numbers)
    assert classify(oracle, end(exit_code=0, matches=(seen,))).outcome is outcome


def test_of_two_streams_the_number_that_came_last_counts_and_a_tie_is_no_number() -> None:
    pattern = METRIC.pattern or ""

    def both(out_at: float, err_at: float) -> Outcome:
        matches = (
            Match(pattern, "stdout", "", out_at, ("0.1",)),
            Match(pattern, "stderr", "", err_at, ("9",)),
        )
        return classify(METRIC, end(exit_code=0, matches=matches)).outcome

    assert both(0.1, 0.2) is Outcome.REPRODUCED
    assert both(0.2, 0.1) is Outcome.CLEAN
    assert both(0.1, 0.1) is Outcome.ERROR


def test_an_end_by_the_kernels_hand_says_so() -> None:
    found = classify(ANY, end(signal=9, out_of_memory=True))
    assert found.why == "signal 9 (SIGKILL, out of memory)"
    assert classify(ANY, end(exit_code=137)).why == "exit 137 (SIGKILL)"
    assert "cannot find" in classify(ANY, end(exit_code=127)).why


@pytest.mark.parametrize(
    ("value", "outcome"),
    [(10.1, Outcome.CLEAN), (12.1, Outcome.REPRODUCED), (11.0, Outcome.ERROR)],
)
def test_a_number_between_good_and_bad_samples_is_not_guessed(
    value: float, outcome: Outcome
) -> None:
    oracle = MetricOracle(file="m", key="x", good=(10.0, 10.2, 9.8), bad=(12.0, 12.2, 11.8))
    assert classify(oracle, end(exit_code=0, result=measured(value))).outcome is outcome


def test_samples_that_are_all_alike_tell_nothing() -> None:
    oracle = MetricOracle(file="m", key="x", good=(5.0, 5.0), bad=(5.0, 5.0))
    assert classify(oracle, end(exit_code=0, result=measured(5.0))).outcome is Outcome.ERROR


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("gap", [3.5, 5.0, 8.0])
def test_a_number_that_is_called_good_or_bad_is_one_at_odds_of_twenty_to_one(
    samples: int, gap: float
) -> None:
    """The levels are so many units of noise apart; nearer ones cannot be told by one sample
    each.
    """
    rng, wrong, decided = random.Random(7), 0, 0
    for _ in range(2000):
        good, bad = (tuple(rng.gauss(at, 1) for _ in range(samples)) for at in (0.0, gap))
        is_bad = rng.random() < 0.5
        value = rng.gauss(gap if is_bad else 0.0, 1)
        oracle = MetricOracle(file="m", key="x", good=good, bad=bad)
        found = classify(oracle, end(exit_code=0, result=measured(value))).outcome
        wrong += found is (Outcome.CLEAN if is_bad else Outcome.REPRODUCED)
        decided += found is not Outcome.ERROR
    assert wrong / decided <= 1 / 20


def measured(value: float) -> dict[str, Any]:
    return {"metrics_file": {"x": value}}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("bad value at step451703", "bad value at step7"),
        ("cannot load iter_159684.pt", "cannot load iter_20.pt"),
        ("no such file: tmp.X7f3kQabcd", "no such file: tmp.00aPq1Zzrt"),
        ("no such file: tmpk3j2h4ab", "no such file: tmp_xq81mz0"),
        ("commit 3f9a8c1d differs", "commit 0b1e22ff90 differs"),
        ("request x7Gk2pQ9 expired", "request 9aB3kL0z expired"),
        ("size (3x4) is wrong", "size (15x6x2) is wrong"),
    ],
)
def test_numbers_temporary_names_hashes_and_ids_are_accidents(one: str, other: str) -> None:
    first, second = (end(f"ValueError: {words}", exit_code=1) for words in (one, other))
    assert failure_of(first) == failure_of(second)


@pytest.mark.parametrize(
    ("one", "other"),
    [("expected float32", "expected float16"), ("in conv2d", "in conv3d"), ("int8", "int4")],
)
def test_the_digits_of_a_name_are_no_accident(one: str, other: str) -> None:
    first, second = (end(f"ValueError: {words}", exit_code=1) for words in (one, other))
    assert failure_of(first) != failure_of(second)


class _Holder(StrictModel):
    oracle: Oracle


@pytest.mark.parametrize(
    ("oracle", "where", "words"),
    [
        ({"kind": "regexp"}, "oracle", "expected exit_code, regex, hang, python or metric"),
        ({}, "oracle", "expected exit_code, regex, hang, python or metric"),
        ("regex", "oracle", "expected exit_code, regex"),
        ({"kind": "regex"}, "oracle.pattern", "required"),
        ({"kind": "regex", "pattern": "("}, "oracle.pattern", "is not a regular expression"),
        ({"kind": "regex", "pattern": "x*"}, "oracle.pattern", "matches empty output"),
        ({"kind": "regex", "pattern": "x", "streem": "both"}, "oracle.streem", "unknown key"),
        ({"kind": "regex", "pattern": "x", "stream": "out"}, "oracle.stream", "expected 'stdout'"),
        ({"kind": "hang"}, "oracle", "needs silent_for or longer_than"),
        ({"kind": "hang", "silent_for": "soon"}, "oracle.silent_for", "is not a duration"),
        ({"kind": "hang", "silent_for": -1}, "oracle.silent_for", "is not a duration"),
        ({"kind": "exit_code", "codes": "1"}, "oracle.codes", "found '1'"),
        ({"kind": "metric", "pattern": "x", "above": 1}, "oracle.pattern", "exactly one group"),
        ({"kind": "metric", "file": "f", "above": 1}, "oracle", "needs key"),
        ({"kind": "metric", "pattern": "(x)"}, "oracle", "one of above, below"),
        (
            {"kind": "metric", "file": "f", "key": "k", "above": 2, "relative": True},
            "oracle",
            "relative needs a pattern",
        ),
    ],
)
def test_a_wrong_oracle_is_one_line_that_names_its_place(
    oracle: object, where: str, words: str
) -> None:
    with pytest.raises(SpecError) as wrong:
        validated(_Holder, {"oracle": oracle}, file="aorta.yaml")
    assert wrong.value.where == f"aorta.yaml: {where}"
    assert words in wrong.value.message
    assert "\n" not in str(wrong.value)


def test_every_kind_can_be_written_as_the_seed_writes_it() -> None:
    read = TypeAdapter[Oracle](Oracle).validate_python
    assert read({"kind": "regex", "pattern": "(?m)NaN", "stream": "stdout"}).kind == "regex"
    assert read({"kind": "exit_code", "codes": [1, 2]}) == ExitCodeOracle(codes=(1, 2))
    assert read({"kind": "exit_code", "codes": 3}) == ExitCodeOracle(codes=(3,))
    assert read({"kind": "hang", "silent_for": "1m30s"}) == HangOracle(silent_for=90.0)
    assert read({"kind": "python", "predicate": "diverged"}).kind == "python"


def test_a_match_ends_a_trial_at_once_unless_its_exit_still_counts() -> None:
    def stops(oracle: RegexOracle) -> bool:
        return oracle.watch().patterns[0].stop

    assert stops(RegexOracle(pattern="nan")) is True
    assert stops(RegexOracle(pattern="nan", with_failure=True)) is False
    assert stops(RegexOracle(pattern="nan", stop_on_match=False)) is False


def test_a_number_from_a_file_that_cannot_be_told_is_an_error_that_says_why() -> None:
    oracle = MetricOracle(file="m.json", key="loss", above=2.0)
    two = end(exit_code=0, result={"metrics_problem": "two trials wrote m.json"})
    one = end(exit_code=0, result={"metrics_file": {"loss": 3.0}})
    assert (classify(oracle, two).outcome, classify(oracle, two).why) == (
        Outcome.ERROR,
        "two trials wrote m.json",
    )
    assert classify(oracle, one).outcome is Outcome.REPRODUCED


def test_a_traceback_is_the_same_under_the_colours_and_ranks_of_a_launcher() -> None:
    plain = TRACEBACK.format(user="ann", line=3, value=17)
    under_a_rank = "".join(f"\x1b[31m[rank3]: {line}\x1b[0m\n" for line in plain.splitlines())
    first = failure_of(end(plain, exit_code=1))
    assert same_failure(failure_of(end(under_a_rank, exit_code=1)), first)


def test_a_trial_needs_one_task_on_one_node_and_no_device_unless_it_says_so() -> None:
    one = Resources()
    assert (one.gpus, one.cpus, one.nodes, one.tasks_per_node, one.tasks) == (0, 1, 1, 1, 1)
    assert Resources(nodes=2, tasks_per_node=4).tasks == 8
