"""The public API for one cycle on disk: everything that may be asked, and the one function
that answers it.
"""

from dataclasses import dataclass
from pathlib import Path

from aorta.attribution.analysis import attribute as attributed
from aorta.attribution.events.patterns import built_in, with_user_file
from aorta.attribution.evidence import collect
from aorta.attribution.nouns import Attribution
from aorta.attribution.opinion import Adviser, with_opinion
from aorta.attribution.policy import DEFAULT_NO_PROGRESS_LIMIT


@dataclass(frozen=True, kw_only=True)
class AttributeRequest:
    """The logs of one cycle, and what else is known of it."""

    logs: tuple[Path, ...]  # files, directories of rank_<r>.out/.err, or cycle directories
    failures: Path | None = None  # JSON: [{"rank", "exit_code", "signal"}], or a cycle_info.json
    history: Path | None = None  # a directory of the job's earlier cycle_<n> directories
    kernel_log: tuple[Path, ...] = ()
    flight_recorder: Path | None = None  # a directory of dumps
    patterns: Path | None = None  # the user's own, read before the built-in ones
    max_no_progress_cycles: int = DEFAULT_NO_PROGRESS_LIMIT
    adviser: Adviser | None = None  # a language model to ask for a second opinion


def attribute(request: AttributeRequest) -> Attribution:
    """What killed this cycle, and should it restart?"""
    evidence = collect(
        request.logs,
        request.failures,
        request.history,
        request.kernel_log,
        request.flight_recorder,
    )
    registry = with_user_file(request.patterns) if request.patterns else built_in()
    found = attributed(
        evidence, registry=registry, no_progress_limit=request.max_no_progress_cycles
    )
    return with_opinion(found, request.adviser)
