"""Finding and history -> RESTART, STOP or UNKNOWN, with a reason a person accepts.

A wrong STOP wakes somebody and idles a cluster until they come; a wrong RESTART costs one start-up.
So STOP needs a class that a restart cannot heal and a confidence of at least `SURE`, or the same
failure again without progress in between. What has run for some steps was not wrong from the start:
after the first step a STOP needs `SURE_LATER`, and after `FEW_STEPS` a mistake gets one restart
first, as a mount or a record may have gone bad. Neither silence nor a lone number ever stops a job.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from aorta.attribution.nouns import Advice, Decision, Finding, PastCycle
from aorta.attribution.taxonomy import Action, FailureClass

DEFAULT_NO_PROGRESS_LIMIT = 3
SURE = 0.8  # what a STOP at the first failure needs
SURE_LATER = 0.9  # the same once steps have been made


class RestartPolicy(Enum):
    """What a first, clear occurrence of a class gets."""

    STOP = "stop"
    ONCE = "restart once"
    RESTART = "restart"
    FREE = "restart, never counted"
    STARTUP = "stop before the first step, restart once after it"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Rule:
    policy: RestartPolicy
    why: str


_C = FailureClass
RULES: dict[FailureClass, Rule] = {
    _C.IMPORT_ERROR: Rule(RestartPolicy.STOP, "the same code will fail to import again"),
    _C.SYNTAX_ERROR: Rule(RestartPolicy.STOP, "the same source will fail to parse again"),
    _C.BAD_ARGUMENTS: Rule(RestartPolicy.STOP, "the same command line will be refused again"),
    _C.BAD_CONFIG: Rule(RestartPolicy.STOP, "the same configuration will be refused again"),
    _C.SHAPE_MISMATCH: Rule(RestartPolicy.STOP, "the same tensors will not fit again"),
    _C.CHECKPOINT_MISMATCH: Rule(
        RestartPolicy.STOP, "the same checkpoint will not fit the model again"
    ),
    _C.CHECKPOINT_CORRUPT: Rule(RestartPolicy.STOP, "the same checkpoint will be unreadable again"),
    _C.MISSING_FILE: Rule(RestartPolicy.STOP, "the file will be missing again"),
    _C.PERMISSION_DENIED: Rule(RestartPolicy.STOP, "permission will be denied again"),
    _C.DISK_FULL: Rule(RestartPolicy.STOP, "the disk will be full again"),
    _C.STORAGE_FAULT: Rule(RestartPolicy.RESTART, "storage usually comes back"),
    _C.TIME_LIMIT: Rule(RestartPolicy.STOP, "the allocation is used up"),
    _C.CANCELLED: Rule(RestartPolicy.STOP, "a person cancelled it"),
    _C.DEVICE_OOM: Rule(RestartPolicy.STARTUP, "it does not fit the device memory"),
    _C.HOST_OOM: Rule(RestartPolicy.ONCE, "host memory may have been taken by a neighbour"),
    _C.DEVICE_ASSERT: Rule(RestartPolicy.ONCE, "it may depend on the batch"),
    _C.ILLEGAL_ACCESS: Rule(RestartPolicy.ONCE, "it may be a faulty device or a race"),
    _C.SEGFAULT: Rule(RestartPolicy.ONCE, "it may be a faulty host or a race"),
    _C.ABORT: Rule(RestartPolicy.ONCE, "it may be a faulty host or a race"),
    _C.ASSERTION: Rule(RestartPolicy.ONCE, "it may depend on the batch"),
    _C.USER_EXCEPTION: Rule(RestartPolicy.ONCE, "it may depend on the batch"),
    _C.DATA_ERROR: Rule(RestartPolicy.ONCE, "it may depend on the order of the data"),
    _C.NAN: Rule(RestartPolicy.ONCE, "numbers may diverge by chance"),
    _C.HARDWARE_FAULT: Rule(RestartPolicy.RESTART, "another node can take over"),
    _C.LINK_FAULT: Rule(RestartPolicy.RESTART, "another node or port can take over"),
    _C.COLLECTIVE_TIMEOUT: Rule(
        RestartPolicy.RESTART, "stragglers and lost messages are usually transient"
    ),
    _C.HANG: Rule(RestartPolicy.RESTART, "hangs are usually transient"),
    _C.RENDEZVOUS_ERROR: Rule(RestartPolicy.RESTART, "the ranks may meet at the next attempt"),
    _C.PORT_IN_USE: Rule(RestartPolicy.RESTART, "the port is usually free at the next attempt"),
    _C.NETWORK_LOSS: Rule(RestartPolicy.RESTART, "the network usually comes back"),
    _C.KILLED: Rule(RestartPolicy.RESTART, "it was ended from outside"),
    _C.PREEMPTED: Rule(RestartPolicy.FREE, "the scheduler took the nodes and will give others"),
    _C.UNKNOWN: Rule(RestartPolicy.UNKNOWN, "the evidence does not say what happened"),
}


def stops_at_first(failure_class: FailureClass) -> bool:
    """Whether a first, clear occurrence stops the job, at least before its first step."""
    return RULES[failure_class].policy in {RestartPolicy.STOP, RestartPolicy.STARTUP}


MISTAKES = {
    _C.IMPORT_ERROR, _C.MISSING_FILE, _C.PERMISSION_DENIED, _C.BAD_CONFIG, _C.CHECKPOINT_CORRUPT,
    _C.CHECKPOINT_MISMATCH, _C.BAD_ARGUMENTS, _C.SYNTAX_ERROR, _C.SHAPE_MISMATCH,
}  # fmt: skip
_NODE_MAY_DIFFER = {*MISTAKES, _C.DISK_FULL, _C.DEVICE_OOM}
_RANK_MAY_DIFFER = MISTAKES - {_C.SHAPE_MISMATCH}
FEW_STEPS = 50
LONG_CYCLE = (
    300.0  # seconds: where no step is ever told, a cycle that lived this long counts as progress
)
_DONE_BY_EVERY_RANK = {_C.IMPORT_ERROR, _C.BAD_ARGUMENTS}


@dataclass(frozen=True)
class JobStanding:
    """How far a job has come, and how many failed cycles since then brought it no further: the one
    rule of progress.

    Preempted cycles are not held against it: they say nothing about the program.
    """

    best_step: int | None = None
    idle: int = 0

    def after(
        self, reached: int | None, failure_class: str | None, lived: float | None = None
    ) -> "JobStanding":
        """With one more failed cycle, which came to step `reached` and lived so many seconds, as
        far as that is known.
        """
        if reached is None and self.best_step is None:
            moved = lived is not None and lived >= LONG_CYCLE
        else:
            moved = reached is not None and (self.best_step is None or reached > self.best_step)
        if moved:
            return JobStanding(reached, 0)
        if failure_class == FailureClass.PREEMPTED:
            return self
        return JobStanding(self.best_step, self.idle + 1)

    @property
    def in_a_row(self) -> int:
        """Cycles that ended at the same point. The one that first came there is the first of
        them.
        """
        return self.idle + 1 if self.idle and self.best_step is not None else self.idle


def decide(
    finding: Finding,
    history: Sequence[PastCycle] = (),
    *,
    no_progress_limit: int = DEFAULT_NO_PROGRESS_LIMIT,
) -> Decision:
    """The first rule that applies. `history` is oldest first and does not hold the cycle just
    found.
    """
    rule = RULES[finding.failure_class]
    advice = _advice(finding)
    if rule.policy is RestartPolicy.FREE:
        return Decision(Action.RESTART, _because(finding, rule.why), "preempted", advice)
    stop = _stop_at_first(finding, rule)
    if stop is not None:
        return Decision(Action.STOP, stop, f"certain.{finding.failure_class}", advice)
    repeated = _repeats(finding, rule, history, no_progress_limit)
    if repeated is not None:
        reason, name = repeated
        return Decision(Action.STOP, reason, name, advice)
    if rule.policy is RestartPolicy.UNKNOWN:
        return Decision(Action.UNKNOWN, _because(finding, rule.why), "unknown", advice)
    return Decision(
        Action.RESTART, _restart_reason(finding, rule), _restart_rule(finding, rule), advice
    )


def _stop_at_first(finding: Finding, rule: Rule) -> str | None:
    before_first_step = rule.policy is RestartPolicy.STARTUP and finding.before_first_step
    if rule.policy is not RestartPolicy.STOP and not before_first_step:
        return None
    if _sureness(finding) < _needed(finding) or _is_odd_one_out(finding) or _came_far(finding):
        return None
    more = " before the first step" if before_first_step else ""
    return _because(finding, rule.why + more)


def _came_far(finding: Finding) -> bool:
    """Whether it ran so long that a mistake would have shown before: something around it has
    changed.
    """
    if finding.failure_class not in MISTAKES:
        return False
    if finding.last_step is None:
        return finding.made_steps
    return finding.last_step > FEW_STEPS


def _sureness(finding: Finding) -> float:
    """How sure it is that a restart meets it again."""
    return finding.confidence if finding.mistake is None else finding.mistake


def _needed(finding: Finding) -> float:
    """How sure a STOP at the first failure must be."""
    told_from_outside = finding.failure_class in {_C.TIME_LIMIT, _C.CANCELLED}
    has_run = finding.last_step is not None or finding.made_steps
    return SURE_LATER if has_run and not told_from_outside else SURE


def _is_one_node_only(finding: Finding) -> bool:
    """One of several nodes shows what the program alone would show on all: that node is the
    suspect.
    """
    return finding.one_node_of is not None and finding.failure_class in _NODE_MAY_DIFFER


def _is_of_some_ranks_only(finding: Finding) -> bool:
    """Some ranks alone show what all would show if the program, its files or its configuration were
    wrong.

    Rank 0 has duties of its own (it writes, loads and reports for all), so that what it alone shows
    may well be the program's mistake; but every rank imports modules and reads its command line.
    """
    if finding.some_ranks_of is None or finding.failure_class not in _RANK_MAY_DIFFER:
        return False
    return finding.suspect_ranks != (0,) or finding.failure_class in _DONE_BY_EVERY_RANK


def _is_odd_one_out(finding: Finding) -> bool:
    return _is_one_node_only(finding) or _is_of_some_ranks_only(finding)


def _repeats(
    finding: Finding, rule: Rule, history: Sequence[PastCycle], limit: int
) -> tuple[str, str] | None:
    """Why repeating it is pointless by now, or None."""
    streak = without_progress(finding, history)
    same = 0
    for cycle in reversed(streak):
        if cycle.fingerprint != finding.fingerprint:
            break
        same += 1
    progress_is_told = finding.last_step is not None
    once = (
        rule.policy in {RestartPolicy.ONCE, RestartPolicy.STARTUP}
        or _is_odd_one_out(finding)
        or (rule.policy is RestartPolicy.STOP and _came_far(finding))
    )
    if once and progress_is_told and same >= 1:
        return _because(finding, "it came back without progress, so it is not chance"), "repeated"
    at_the_same_point = len(streak) + 1 if streak else 0
    in_a_row = at_the_same_point if progress_is_told else same + 1  # silence alone stops nothing
    if 0 < limit <= in_a_row:
        times = f"{in_a_row} cycles in a row ended without progress"
        return _because(finding, f"{times} (limit {limit})"), "no_progress"
    return None


def without_progress(finding: Finding, history: Sequence[PastCycle]) -> list[PastCycle]:
    """The latest cycles, oldest first, since the job last came further than ever before, if this
    one brought it no further.
    """
    standing = JobStanding()
    since: list[PastCycle] = []
    for cycle in history:
        after = standing.after(cycle.last_step, cycle.failure_class)
        if after.best_step != standing.best_step:
            since = [cycle]
        elif after.idle > standing.idle:
            since.append(cycle)
        standing = after
    now = standing.after(finding.last_step, finding.failure_class)
    return [] if now.best_step != standing.best_step else since


def _restart_reason(finding: Finding, rule: Rule) -> str:
    if _is_one_node_only(finding):
        return _because(
            finding, f"only one of {finding.one_node_of} nodes shows it; leave that node out"
        )
    if _is_of_some_ranks_only(finding):
        alone = f"not all of the {finding.some_ranks_of} ranks show it"
        return _because(finding, f"{alone}; the same again will stop it")
    if rule.policy is RestartPolicy.STOP and _came_far(finding):
        return _because(finding, "it had run well before; the same again will stop it")
    if rule.policy in {RestartPolicy.STOP, RestartPolicy.STARTUP} and _sureness(finding) < _needed(
        finding
    ):
        return _because(finding, "the evidence is not clear enough to stop for")
    again = (
        "; the same again without progress will stop it"
        if rule.policy is RestartPolicy.ONCE
        else ""
    )
    return _because(finding, rule.why + again)


def _restart_rule(finding: Finding, rule: Rule) -> str:
    if _is_one_node_only(finding):
        return "one_node_only"
    if _is_of_some_ranks_only(finding):
        return "some_ranks_only"
    if rule.policy is RestartPolicy.STOP:
        return "ran_before" if _came_far(finding) else "uncertain"
    return "restart_once" if rule.policy is not RestartPolicy.RESTART else "transient"


def _because(finding: Finding, why: str) -> str:
    return f"{finding.summary}; {why}"


def _advice(finding: Finding) -> tuple[Advice, ...]:
    advice = finding.advice
    suspicious = _is_one_node_only(finding) or finding.failure_class in {
        _C.HARDWARE_FAULT,
        _C.LINK_FAULT,
    }
    if suspicious and finding.root.node:
        advice = (Advice("exclude_node", f"exclude node {finding.root.node}"), *advice)
    return advice
