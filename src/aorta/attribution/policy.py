"""Finding and history -> RESTART, STOP or UNKNOWN, with a reason a person accepts.

A wrong STOP wakes somebody and idles a cluster until they come; a wrong RESTART costs one start-up.
So STOP needs a class that a restart cannot heal and a confidence of at least `SURE`; or the same
failure again without progress in between, however sure, of a class that is not restarted for free.
What has run for some steps was not wrong from the start: after the first step a STOP needs
`SURE_LATER`, and after `FEW_STEPS` a user error gets one restart first, as a mount or a record may
have gone bad. Neither silence nor a lone number ever stops a job.
"""

from collections.abc import Sequence
from enum import Enum

from aorta.attribution.documents import (
    USER_ERRORS,
    Action,
    Advice,
    CycleState,
    Decision,
    FailureClass,
    Finding,
    PastCycle,
)
from aorta.attribution.progress import made_progress, progress_over, reached, since_progress
from aorta.core.failure import same_failure

DEFAULT_NO_PROGRESS_LIMIT = 3
SURE = 0.8  # what a STOP at the first failure needs
SURE_LATER = 0.9  # the same once steps have been made
_STOPS_NEXT = "; the same again without progress will stop it"


class RestartPolicy(Enum):
    """What a first, clear occurrence of a class gets, and why."""

    STOP = "a restart would meet it again"
    STARTUP = "it does not fit the device memory"  # after the first step: as ONCE
    ONCE = "it may depend on the batch, the host or chance"
    RESTART = "a restart usually heals it"
    FREE = "the scheduler took the nodes and will give others"  # never counted
    UNKNOWN = "the evidence does not say what happened"


_C = FailureClass
_FROM_OUTSIDE = {_C.TIME_LIMIT, _C.CANCELLED}
_POLICIES = {
    RestartPolicy.STOP: {*USER_ERRORS, _C.DISK_FULL, *_FROM_OUTSIDE},
    RestartPolicy.STARTUP: {_C.DEVICE_OOM},
    RestartPolicy.ONCE: {
        _C.HOST_OOM, _C.DEVICE_ASSERT, _C.ILLEGAL_ACCESS, _C.SEGFAULT, _C.ABORT, _C.ASSERTION,
        _C.USER_EXCEPTION, _C.DATA_ERROR, _C.NAN,
    },
    RestartPolicy.FREE: {_C.PREEMPTED},
    RestartPolicy.UNKNOWN: {_C.UNKNOWN},
}  # fmt: skip
# A restart that the same failure survived without progress was one too many.
_STOPS_WHEN_BACK = {RestartPolicy.STOP, RestartPolicy.STARTUP, RestartPolicy.ONCE}


def policy_of(kind: FailureClass) -> RestartPolicy:
    listed = (policy for policy, kinds in _POLICIES.items() if kind in kinds)
    return next(listed, RestartPolicy.RESTART)


_NODE_MAY_DIFFER = {*USER_ERRORS, _C.DISK_FULL, _C.DEVICE_OOM}
_RANK_MAY_DIFFER = USER_ERRORS - {_C.SHAPE_MISMATCH}
FEW_STEPS = 50
_DONE_BY_EVERY_RANK = {_C.IMPORT_ERROR, _C.BAD_ARGUMENTS}


def decide(
    finding: Finding,
    history: Sequence[PastCycle] = (),
    *,
    no_progress_limit: int = DEFAULT_NO_PROGRESS_LIMIT,
) -> Decision:
    """The first rule that applies. `history`: the cycles before this one, oldest first."""
    if finding.state is not CycleState.FAILED:
        why = f"{finding.summary}; there is no failure to decide about"
        return Decision(Action.UNKNOWN, why, finding.state)
    policy = policy_of(finding.failure_class)
    advice = finding.advice
    broken = finding.failure_class in {_C.HARDWARE_FAULT, _C.LINK_FAULT}
    if finding.root.node and (broken or _is_one_node_only(finding)):
        advice = (Advice("exclude_node", f"exclude node {finding.root.node}"), *advice)
    if policy is RestartPolicy.FREE:
        return Decision(Action.RESTART, _because(finding, policy.value), "preempted", advice)
    if _is_certain_user_error(finding, policy) and not _ran_before(finding, history):
        before = " before the first step" if policy is RestartPolicy.STARTUP else ""
        why = _because(finding, policy.value + before)
        return Decision(Action.STOP, why, f"certain.{finding.failure_class}", advice)
    if recurs := _recurs(finding, policy, history, no_progress_limit):
        return Decision(Action.STOP, *recurs, advice)
    if policy is RestartPolicy.UNKNOWN:
        return Decision(Action.UNKNOWN, _because(finding, policy.value), "unknown", advice)
    name, why = _restart(finding, policy, history)
    return Decision(Action.RESTART, _because(finding, why), name, advice)


def _is_certain_user_error(finding: Finding, policy: RestartPolicy) -> bool:
    """Whether the class, how sure it is, and who shows it would stop a job at its first failure."""
    at_startup = policy is RestartPolicy.STARTUP and finding.before_first_step
    stops = policy is RestartPolicy.STOP or at_startup
    of_all = not (_is_one_node_only(finding) or _is_of_some_ranks_only(finding))
    return stops and of_all and finding.confidence >= _needed(finding)


def _ran_before(finding: Finding, history: Sequence[PastCycle]) -> bool:
    """Whether the job came past this place before: a mount or a node may have changed since."""
    if finding.failure_class in _FROM_OUTSIDE:
        return False
    # Whether it ran so long that a user error would have shown before.
    far = finding.made_steps if finding.last_step is None else finding.last_step > FEW_STEPS
    came_far = far and finding.failure_class in USER_ERRORS
    return came_far or any(made_progress(cycle) for cycle in history)


def _needed(finding: Finding) -> float:
    """How sure a STOP at the first failure must be."""
    has_run = finding.last_step is not None or finding.made_steps
    return SURE_LATER if has_run and finding.failure_class not in _FROM_OUTSIDE else SURE


def _is_one_node_only(finding: Finding) -> bool:
    return finding.one_node_of is not None and finding.failure_class in _NODE_MAY_DIFFER


def _is_of_some_ranks_only(finding: Finding) -> bool:
    """Not all show what all would if the program were wrong. Rank 0 has duties of its own."""
    if finding.some_ranks_of is None or finding.failure_class not in _RANK_MAY_DIFFER:
        return False
    return finding.suspect_ranks != (0,) or finding.failure_class in _DONE_BY_EVERY_RANK


def _recurs(
    finding: Finding, policy: RestartPolicy, history: Sequence[PastCycle], limit: int
) -> tuple[str, str] | None:
    """Why repeating it is pointless by now, and by which rule; None where it is not."""
    now = progress_over([*history, finding])
    # Preempted cycles say nothing about a failure.
    lately = since_progress(history)
    tried = (cycle for cycle in lately if cycle.failure_class is not _C.PREEMPTED)
    # A certain user error needs no word on progress: the restart it was given did not heal it.
    silent = reached(finding) is None and finding.lived_sec is None
    idle = now.idle or (silent and _is_certain_user_error(finding, policy))
    again = policy in _STOPS_WHEN_BACK and any(is_same_failure(cycle, finding) for cycle in tried)
    if again and idle:
        return _because(finding, "it came back without progress, so it is not chance"), "repeated"
    if 0 < limit <= now.idle:
        times = f"{now.idle} cycles in a row ended without progress"
        return _because(finding, f"{times} (limit {limit})"), "no_progress"
    return None


def is_same_failure(cycle: PastCycle, finding: Finding) -> bool:
    """By the one rule of `core`; a cycle whose failure was not recorded, by its fingerprint."""
    if cycle.failure is None or finding.failure is None:
        return bool(cycle.fingerprint) and cycle.fingerprint == finding.fingerprint
    return bool(same_failure(cycle.failure, finding.failure))


def _restart(
    finding: Finding, policy: RestartPolicy, history: Sequence[PastCycle]
) -> tuple[str, str]:
    """The name of the rule by which it restarts, and why."""
    next_time = _STOPS_NEXT if policy in _STOPS_WHEN_BACK else ""
    if _is_one_node_only(finding):
        return "one_node_only", f"one of {finding.one_node_of} nodes shows it; leave that out"
    if _is_of_some_ranks_only(finding):
        alone = f"not all of the {finding.some_ranks_of} ranks show it"
        return "some_ranks_only", alone + next_time
    stops = policy in {RestartPolicy.STOP, RestartPolicy.STARTUP}
    if stops and _ran_before(finding, history):
        return "ran_before", "it had run well before" + next_time
    if stops and finding.confidence < _needed(finding):
        name = "uncertain" if policy is RestartPolicy.STOP else "restart_once"
        return name, "the evidence is not clear enough to stop for" + next_time
    if policy is RestartPolicy.RESTART:
        return "transient", policy.value
    return "restart_once", policy.value + next_time


def _because(finding: Finding, why: str) -> str:
    return f"{finding.summary.rstrip('.')}; {why}"
