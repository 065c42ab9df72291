"""Findings and decisions as the JSON of the contracts, and back where another program hands them
in; and in words for a terminal.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from aorta.attribution.nouns import (
    Attribution,
    CycleState,
    Decision,
    FailureClass,
    Finding,
    PastCycle,
    Root,
)
from aorta.core.failure import Failure, failure_from_json, failure_to_json
from aorta.core.templates import shortened

SCHEMA = "aorta.attribution/1"
# What `past_cycle` reads of a finding: all that later cycles are compared with.
REMEMBERED = ("fingerprint", "class", "last_step", "heartbeat_step", "lived_sec", "failure")


def finding_document(finding: Finding) -> dict[str, Any]:
    return {
        "state": finding.state.value,
        "class": finding.failure_class.value,
        "confidence": finding.confidence,
        "basis": finding.basis,
        "root": asdict(finding.root),
        "suspect_ranks": list(finding.suspect_ranks),
        "first_step": finding.first_step,
        "last_step": finding.last_step,
        "heartbeat_step": finding.heartbeat_step,
        "lived_sec": finding.lived_sec,
        "fingerprint": finding.fingerprint,
        "failure": failure_to_json(finding.failure),
        "summary": finding.summary,
        "evidence": [asdict(line) for line in finding.evidence],
        "cascade": [
            {"class": follower.failure_class.value, "ranks": list(follower.ranks)}
            for follower in finding.cascade
        ],
    }


def decision_document(decision: Decision) -> dict[str, Any]:
    return {
        "action": decision.action.value,
        "reason": decision.reason,
        "rule": decision.rule,
        "advice": [asdict(advice) for advice in decision.advice],
    }


def attribution_document(attribution: Attribution) -> dict[str, Any]:
    """All of `aorta attribute --json` but its schema."""
    return {
        "finding": finding_document(attribution.finding),
        "decision": decision_document(attribution.decision),
        "elapsed_ms": attribution.elapsed_ms,
    }


def past_cycle(document: Mapping[str, Any], name: str = "") -> PastCycle | None:
    """What a saved finding says about a past cycle; None where it is not one."""
    fingerprint, kind = document.get("fingerprint"), document.get("class")
    if not isinstance(fingerprint, str) or kind not in set(FailureClass):
        return None
    steps = (document.get(key) for key in ("last_step", "heartbeat_step"))
    last_step, heartbeat_step = (step if isinstance(step, int) else None for step in steps)
    lived = document.get("lived_sec")
    return PastCycle(
        fingerprint,
        FailureClass(kind),
        last_step,
        name,
        heartbeat_step,
        float(lived) if isinstance(lived, (int, float)) else None,
        _failure(document.get("failure")),
    )


def _failure(content: object) -> Failure | None:
    """What failed; None where nobody recorded it, or not in our form."""
    try:
        return failure_from_json(content)
    except (LookupError, TypeError, ValueError, AttributeError):
        return None


_NO_FAILURE = {CycleState.ENDED_WELL: "ENDED WELL", CycleState.STILL_RUNNING: "NO FAILURE SEEN"}
_LONGEST_LINE = 160


def described(attribution: Attribution) -> str:
    """The answer for a terminal, the action first."""
    finding, decision = attribution.finding, attribution.decision
    if finding.state is not CycleState.FAILED:
        return f"{_NO_FAILURE[finding.state]}  {finding.summary}\n  steps     {_steps(finding)}"
    rows = [
        f"{decision.action}  {decision.reason}",
        f"  class     {finding.failure_class} (confidence {finding.confidence:.2f})",
        f"  root      {_place(finding.root)}",
        f"  steps     {_steps(finding)}",
        f"  bug       {finding.fingerprint}",
        f"  rule      {decision.rule}",
    ]
    rows += [f"  advice    {advice.text}" for advice in decision.advice]
    rows += [
        f"  followed  rank {', '.join(map(str, cascade.ranks))}: {cascade.failure_class}"
        for cascade in finding.cascade
    ]
    rows += [
        f"  {line.file}:{line.line}: {shortened(line.text, _LONGEST_LINE)}"
        for line in finding.evidence
    ]
    return "\n".join(rows)


def _place(root: Root) -> str:
    parts = [
        f"rank {root.rank}" if root.rank is not None else "",
        f"node {root.node}" if root.node else "",
        f"device {root.device}" if root.device else "",
    ]
    return ", ".join(part for part in parts if part) or "nobody in particular"


def _steps(finding: Finding) -> str:
    if finding.last_step is None:
        return "none reported"
    return f"{finding.first_step} to {finding.last_step}"
