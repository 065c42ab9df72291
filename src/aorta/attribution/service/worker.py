"""One analysis in a process of its own, so that a large log never slows the answers to agents."""

import os
import signal
from dataclasses import dataclass

from aorta.attribution.analysis import attribute
from aorta.attribution.documents import decision_document, finding_document
from aorta.attribution.jail import PathJail
from aorta.attribution.nouns import Evidence, LogTail
from aorta.attribution.opinion import Adviser, with_opinion
from aorta.attribution.service.gathering import Told, gather
from aorta.executors.process_tree import die_with_parent

_FAILURE = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nMemoryError\n'
_BEHIND_THE_ANSWERS = 10  # how nice a worker is to the process that answers agents


def prepare(parent: int) -> None:
    """Load what every analysis needs, leave Ctrl-C to the parent, and neither outlive nor outrun it."""
    if os.nice(0) < _BEHIND_THE_ANSWERS:
        os.nice(_BEHIND_THE_ANSWERS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(parent)
    attribute(Evidence(tails=(LogTail(_FAILURE),)))  # compiles the patterns, 100 ms


@dataclass(frozen=True)
class AnalysisRules:
    """What an analysis is told besides the evidence."""

    no_progress_limit: int = 3
    adviser: Adviser | None = None


def analyse(told: Told, jail: PathJail, rules: AnalysisRules) -> dict[str, object]:
    """The answer as it is stored and sent."""
    result = attribute(gather(told, jail), no_progress_limit=rules.no_progress_limit)
    result = with_opinion(result, rules.adviser)
    return {
        "finding": finding_document(result.finding),
        "decision": decision_document(result.decision),
    }
