"""Attribution: evidence -> finding -> decision. What killed this cycle, and should it restart?

`attribute(evidence)` is the whole of it. Evidence is what a launcher or a person has: logs, exits,
kernel messages, flight recorder dumps, earlier cycles. A finding says what failed, who began it and
how sure that is. A decision says RESTART, STOP or UNKNOWN, and why. The command, the service and
the MCP server only carry these three around.
"""

from aorta.attribution.analysis import attribute
from aorta.attribution.nouns import (
    Action,
    Advice,
    Attribution,
    Cascade,
    Decision,
    Evidence,
    EvidenceLine,
    FailureClass,
    Finding,
    LogSource,
    LogTail,
    PastCycle,
    RankEnd,
    Root,
)
from aorta.attribution.progress import JobProgress

__all__ = [
    "Action",
    "Advice",
    "Attribution",
    "Cascade",
    "Decision",
    "Evidence",
    "EvidenceLine",
    "FailureClass",
    "Finding",
    "JobProgress",
    "LogSource",
    "LogTail",
    "PastCycle",
    "RankEnd",
    "Root",
    "attribute",
]
