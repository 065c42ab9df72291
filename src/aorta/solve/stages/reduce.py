"""The smallest workload that still fails, on axes that were given, or found without being told:
what the command line, its scripts and one run of it give away.
"""

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta.core.documents import dump_yaml
from aorta.core.oracle import naming
from aorta.core.sprt import HitCount
from aorta.core.trial import LOCAL
from aorta.engine.events import Event, Reason, TrialStarted
from aorta.engine.rundir import write_atomically
from aorta.reduce.proposals import proposal_for
from aorta.reduce.request import ReduceRequest, reduce
from aorta.reduce.spec import load_spec
from aorta.registry.environments import EnvironmentLayers
from aorta.solve.solution import Solution, write_summary
from aorta.solve.state import Stage, StageResult, State, Status, Stopped
from aorta.solve.subject import Command, Subject, subject_of

SPEC, PLAIN_SPEC = "aorta.yaml", "aorta.plain.yaml"


def draft(
    state: State, subject: Subject, oracle: Mapping[str, Any], *, plain: bool = False
) -> Path:
    """The reduction spec of this failure: the one that was given, or one with every axis that could
    be found.

    `plain`: only with what the command line itself says, for a command that is another one with
    anything else.
    """
    if subject.spec is not None:
        return subject.spec
    place = state.path / (PLAIN_SPEC if plain else SPEC)
    if place.is_file():
        return place
    words = _words(subject.command)
    document: dict[str, Any]
    if words is None:
        document = {"workload": {"command": subject.command}, "axes": []}
    else:
        opened = [] if plain else state.known("reproduce").get("opened", [])
        proposal = proposal_for(words, subject.cwd, opened, defaults=not plain)
        axes = [dict(axis) for axis in proposal.axes]
        document = {"workload": {"command": proposal.command}, "axes": axes}
    if subject.environment != LOCAL.name:
        document["environment"] = subject.environment
    document["workload"]["cwd"] = os.path.relpath(subject.cwd, state.path)
    if state.request.timeout is not None:
        document["workload"]["timeout"] = state.request.timeout
    document["oracle"] = dict(oracle)
    if state.request.ticket:
        document["ticket"] = state.request.ticket
    write_atomically(place, _HEADER + dump_yaml(document))
    return place


def _words(command: Command) -> list[str] | None:
    """The words of a command; None of a text that only a shell understands."""
    if not isinstance(command, str):
        return command
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    return None if set(command) & set("$`;|&<>()*?~\n") else words


_HEADER = """\
# What aorta solve found that may shrink, and what counts as the failure. By hand:
#   aorta reduce --spec THIS_FILE --output reduce/MY-TICKET
"""


@dataclass
class SummaryOfBest:
    """Writes the summary whenever the reduction has written a smaller workload that fails."""

    state: State
    folder: Path
    _seen: float = 0.0

    def __call__(self, event: Event) -> None:
        if not isinstance(event, TrialStarted):
            return
        result = self.folder / "result.json"
        written = result.stat().st_mtime if result.is_file() else 0.0
        if written > self._seen:
            self._seen = written
            write_summary(Solution(self.state, is_under_way=True))
            self.state.views.written(self.state.path)


class Reduce(Stage):
    name = "reduce"

    def __call__(self, state: State) -> StageResult:
        """With every axis that can be guessed; with the plain ones where that does not fail."""
        known = subject_of(state.request).known.get(self.name)
        if known is not None:
            answer = {**json.loads((known / "result.json").read_bytes()), "run_dir": str(known)}
            return StageResult(
                self.name, *status_of(answer, Reason.DONE), str(known), answer=answer
            )
        result = self._reduced(state, state.folder(self.name), plain=False)
        drafted = subject_of(state.request).spec is None
        if not drafted or result.answer.get("status") != "did_not_reproduce" or state.is_spent:
            return result
        folder = state.path / f"{state.folder(self.name).name}-plain"
        return self._reduced(state, folder, plain=True)

    def _reduced(self, state: State, folder: Path, *, plain: bool) -> StageResult:
        subject = subject_of(state.request)
        known = state.known("reproduce")
        oracle = naming(known["oracle"], known.get("failure"))
        spec = load_spec(draft(state, subject, oracle, plain=plain))
        if not spec.content.axes:
            why = (
                "nothing was found that may shrink: let the command take a number, a list or a "
                "file as an argument "
                f"or a variable, or name axes in a copy of {spec.file}"
            )
            return StageResult(self.name, "no_answer", why)
        rate = known.get("rate") or {}
        report = reduce(
            ReduceRequest(
                spec=Path(spec.file),
                run_dir=folder,
                ticket=state.request.ticket,
                seen=HitCount(rate.get("reproduced", 0), rate.get("of", 0)),
                layers=EnvironmentLayers(
                    subject.environment, mitigations_files=state.request.mitigations_files
                ),
                timeout=state.request.timeout,
                max_wall_clock=state.seconds_left(self.name),
                executor=state.executor(self.name),
                resume=state.resume(folder),
            ),
            lambda: [*state.views.listeners(self.name), SummaryOfBest(state, folder)],
        )
        Stopped.check(report.ending)
        answer, reason = report.to_json(), report.ending.reason
        return StageResult(
            self.name, *status_of(answer, reason), str(report.run_dir), answer=answer
        )


def status_of(answer: dict[str, Any], reason: Reason) -> tuple[Status, str]:
    if reason is Reason.INFRASTRUCTURE:
        return "failed", answer["why"]
    if reason is Reason.BUDGET:
        return "budget", answer["why"]
    if answer["status"] == "reduced":
        return "done", ""
    return "no_answer", answer["why"]
