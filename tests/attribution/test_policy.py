"""The rules from a finding to a decision: the table of the contracts, and promises for every
history.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta.attribution import Action, FailureClass, Finding, PastCycle
from aorta.attribution.documents import Root
from aorta.attribution.policy import SURE, RestartPolicy, decide, policy_of

CLASSES = st.sampled_from(list(FailureClass))
STEPS = st.one_of(st.none(), st.integers(0, 100))
PAST = st.builds(PastCycle, st.sampled_from(["a", "b"]), CLASSES, STEPS)


def finding(
    kind: FailureClass,
    *,
    confidence: float = 0.95,
    last_step: int | None = 10,
    fingerprint: str = "a",
    node: str | None = None,
    one_node_of: int | None = None,
) -> Finding:
    root = Root(rank=0, node=node)
    return Finding(
        kind, confidence, root, (0,), fingerprint, "summary", last_step=last_step, one_node_of=one_node_of
    )  # fmt: skip


STOPPED_AT_FIRST = {kind for kind in FailureClass if policy_of(kind) is RestartPolicy.STOP}


@pytest.mark.parametrize("kind", list(FailureClass))
def test_a_first_clear_occurrence_gets_what_the_contracts_say(kind: FailureClass) -> None:
    action = decide(finding(kind)).action
    if kind in STOPPED_AT_FIRST:
        assert action is Action.STOP
    else:
        assert action is (Action.UNKNOWN if kind is FailureClass.UNKNOWN else Action.RESTART)


def test_the_contracts_name_these_and_no_others_as_stopping_at_once() -> None:
    named = (
        "import_error syntax_error bad_arguments bad_config shape_mismatch "
        "checkpoint_mismatch missing_file"
    )
    named += " permission_denied disk_full checkpoint_corrupt time_limit cancelled"
    assert set(named.split()) == STOPPED_AT_FIRST


def test_silence_about_steps_is_not_before_the_first_of_them() -> None:
    silent = finding(FailureClass.DEVICE_OOM, last_step=None)
    assert decide(silent).action is Action.RESTART


def test_device_memory_stops_where_no_step_is_seen_to_be_made_and_restarts_after_one() -> None:
    before = replace(finding(FailureClass.DEVICE_OOM, last_step=None), before_first_step=True)
    assert decide(before).action is Action.STOP
    assert decide(finding(FailureClass.DEVICE_OOM, last_step=5)).action is Action.RESTART


def test_a_mistake_that_shows_after_thousands_of_steps_gets_one_restart() -> None:
    late = finding(FailureClass.MISSING_FILE, last_step=20_020)
    assert (decide(late).action, decide(late).rule) == (Action.RESTART, "ran_before")
    again = PastCycle("a", FailureClass.MISSING_FILE, 20_020)
    assert decide(late, [again]).rule == "repeated"
    uncounted = replace(finding(FailureClass.MISSING_FILE, last_step=None), made_steps=True)
    assert decide(uncounted).action is Action.RESTART


HEALED_BY_A_RESTART = [
    FailureClass.MISSING_FILE,
    FailureClass.PERMISSION_DENIED,
    FailureClass.IMPORT_ERROR,
    FailureClass.BAD_CONFIG,
    FailureClass.DEVICE_OOM,
    FailureClass.DISK_FULL,
]


@pytest.mark.parametrize("kind", HEALED_BY_A_RESTART)
@pytest.mark.parametrize("told", [{"last_step": 50_000}, {"lived_sec": 86_400.0}])
def test_after_a_cycle_that_made_progress_a_user_error_is_restarted_first(
    kind: FailureClass, told: dict[str, Any]
) -> None:
    """A late mount, a process left over, a lost node."""
    ran = PastCycle("x", FailureClass.HARDWARE_FAULT, **told)
    now = replace(finding(kind, last_step=None), before_first_step=True)
    assert decide(now, [ran]).rule == "ran_before"
    again = PastCycle("a", kind)
    assert decide(now, [ran, again]).rule == "repeated"
    short = replace(now, lived_sec=9.0)
    assert decide(short, [ran, replace(again, lived_sec=9.0)]).rule == "repeated"


def test_what_ends_a_job_from_outside_stops_it_whatever_it_did_before() -> None:
    ran = PastCycle("x", FailureClass.HARDWARE_FAULT, 50_000)
    assert decide(finding(FailureClass.CANCELLED), [ran]).action is Action.STOP


@given(CLASSES, st.lists(st.builds(PastCycle, st.just("a"), CLASSES), max_size=8))
def test_silence_never_stops_what_would_not_stop_at_first(
    kind: FailureClass, silent: list[PastCycle]
) -> None:
    """Neither a step, nor a heartbeat, nor a lifetime is known of any cycle."""
    now = finding(kind, last_step=None)
    if decide(now).action is not Action.STOP:
        assert decide(now, silent).action is not Action.STOP


@given(CLASSES, st.floats(0, SURE - 0.01), STEPS)
def test_an_unsure_finding_never_stops_at_the_first_failure(
    kind: FailureClass, confidence: float, step: int | None
) -> None:
    unsure = finding(kind, confidence=confidence, last_step=step)
    assert decide(unsure).action is not Action.STOP


@given(CLASSES, st.lists(PAST, max_size=6))
def test_preemption_always_restarts(kind: FailureClass, history: list[PastCycle]) -> None:
    preempted = finding(FailureClass.PREEMPTED)
    assert decide(preempted, history).action is Action.RESTART


@given(CLASSES.filter(lambda kind: kind not in STOPPED_AT_FIRST), st.lists(PAST, max_size=8))
def test_progress_always_resets_the_count(kind: FailureClass, history: list[PastCycle]) -> None:
    further = finding(kind, last_step=101)
    assert decide(further, history).action is not Action.STOP


@given(st.lists(PAST, max_size=8), CLASSES, STEPS)
def test_a_limit_of_nothing_leaves_only_the_repeated_failure_to_stop_for(
    history: list[PastCycle], kind: FailureClass, step: int | None
) -> None:
    decision = decide(finding(kind, last_step=step), history, no_progress_limit=0)
    assert decision.rule != "no_progress"


def test_the_same_bug_at_the_same_step_stops_the_second_time() -> None:
    once = PastCycle("a", FailureClass.SEGFAULT, 10)
    assert decide(finding(FailureClass.SEGFAULT), [once]).rule == "repeated"
    other = PastCycle("b", FailureClass.SEGFAULT, 10)
    assert decide(finding(FailureClass.SEGFAULT), [other]).action is Action.RESTART


# ---- the table of the contracts, for every class and every history

NOW: dict[str, Any] = {
    "last_step": 10,
    "lived_sec": 9.0,
}  # of this cycle, and of one that came as far
AT_STEP_0: dict[str, Any] = {"last_step": None, "lived_sec": 9.0}
BEFORE_THE_FIRST_STEP: dict[str, Any] = {**AT_STEP_0, "before_first_step": True}
ONCE = {
    "host_oom", "device_assert", "illegal_access", "segfault", "abort", "assertion",
    "user_exception", "data_error", "nan",
}  # fmt: skip
FROM_OUTSIDE = {"time_limit", "cancelled"}
STOPS_WHEN_BACK = STOPPED_AT_FIRST | ONCE | {FailureClass.DEVICE_OOM}


def past(kind: FailureClass, fingerprint: str = "a", **told: Any) -> PastCycle:
    return PastCycle(fingerprint, kind, **{**NOW, **told})


def stops(
    kind: FailureClass, told: dict[str, Any], *history: PastCycle, confidence: float = 0.95
) -> bool:
    """Whatever the limit of cycles without progress would say."""
    now = replace(finding(kind, confidence=confidence), **told)
    return decide(now, history, no_progress_limit=0).action is Action.STOP


@pytest.mark.parametrize("kind", list(FailureClass))
def test_every_class_gets_what_the_contracts_say_in_every_history(kind: FailureClass) -> None:
    lost = past(FailureClass.NETWORK_LOSS, "lost")
    mistake, once = kind in STOPPED_AT_FIRST, kind in STOPS_WHEN_BACK
    told = {
        "at step 0": stops(kind, BEFORE_THE_FIRST_STEP),
        "after some steps": stops(kind, NOW),
        "the same at the same step": stops(kind, NOW, past(kind)),
        "the same at step 0": stops(kind, AT_STEP_0, past(kind, **AT_STEP_0)),
        "the same, another between": stops(kind, NOW, past(kind), lost),
        "the same, preempted between": stops(
            kind, NOW, past(kind), past(FailureClass.PREEMPTED, "p")
        ),
        "the same after progress": stops(kind, NOW, past(kind, last_step=5)),
        "the same, another made progress": stops(
            kind, NOW, past(kind, last_step=5), past(FailureClass.HANG, "h")
        ),
        "another where it never ran": stops(kind, AT_STEP_0, past(kind, "b", **AT_STEP_0)),
        "another after it ran": stops(kind, BEFORE_THE_FIRST_STEP, past(kind, "b")),
    }
    assert told == {
        "at step 0": mistake or kind is FailureClass.DEVICE_OOM,
        "after some steps": mistake,
        "the same at the same step": once,
        "the same at step 0": once,
        "the same, another between": once,
        "the same, preempted between": once,
        "the same after progress": kind in FROM_OUTSIDE,
        "the same, another made progress": kind in FROM_OUTSIDE,
        "another where it never ran": mistake,
        "another after it ran": kind in FROM_OUTSIDE,
    }


@pytest.mark.parametrize("kind", sorted(STOPS_WHEN_BACK))
@pytest.mark.parametrize("sure", [0.4, 0.79, 0.89])
@pytest.mark.parametrize("where", [NOW, AT_STEP_0])
def test_what_is_not_clear_enough_to_stop_for_is_when_it_comes_back_without_progress(
    kind: str, sure: float, where: dict[str, Any]
) -> None:
    failure = FailureClass(kind)
    same = past(failure, **where)
    assert stops(failure, where, same, confidence=sure)
    if kind not in FROM_OUTSIDE:
        assert not stops(failure, where, replace(same, fingerprint="b"), confidence=min(sure, 0.79))
        assert not stops(failure, {**NOW, "last_step": 11}, past(failure), confidence=sure)


def test_infrastructure_restarts_until_the_limit_of_cycles_without_progress() -> None:
    lost = PastCycle("a", FailureClass.NETWORK_LOSS, 10)
    now = finding(FailureClass.NETWORK_LOSS)
    assert decide(now, [lost]).action is Action.RESTART
    assert decide(now, [lost, lost]).rule == "no_progress"
    assert decide(now, [lost, lost], no_progress_limit=5).action is Action.RESTART


def test_what_one_node_alone_shows_restarts_without_that_node_once() -> None:
    odd = finding(FailureClass.MISSING_FILE, node="n7", one_node_of=4)
    decision = decide(odd)
    assert (decision.action, decision.rule) == (Action.RESTART, "one_node_only")
    assert decision.advice[0].text == "exclude node n7"
    again = PastCycle("a", FailureClass.MISSING_FILE, 10)
    assert decide(odd, [again]).action is Action.STOP


def test_hardware_names_the_node_to_leave_out() -> None:
    decision = decide(finding(FailureClass.HARDWARE_FAULT, node="n3"))
    assert decision.advice[0].kind == "exclude_node"
