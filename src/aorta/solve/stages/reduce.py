"""The smallest workload that still fails; and one short script out of the program itself."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aorta.core.documents import dump_yaml
from aorta.core.errors import UsageError
from aorta.core.trial import LOCAL
from aorta.engine.rundir import write_atomically
from aorta.reduce.proposals import proposal_for
from aorta.reduce.request import ReduceRequest, reduce
from aorta.reduce.source.repair import fixes_of_patch
from aorta.reduce.spec import SpecFile, load_spec
from aorta.runtimes.git import git_on_host
from aorta.solve.stages.reproduce import opened_names
from aorta.solve.state import Stage, StageResult, State, Stopped, status_of
from aorta.solve.subject import Subject, layers_of, original, reduced_spec, subject_of

SPEC, PLAIN_SPEC = "aorta.yaml", "aorta.plain.yaml"


def draft(
    state: State, subject: Subject, oracle: Mapping[str, Any], *, plain: bool = False
) -> Path:
    """The spec given, or one with every axis found; `plain`: those of the command line alone."""
    if subject.spec is not None:
        return subject.spec
    place = state.path / (PLAIN_SPEC if plain else SPEC)
    if place.is_file():
        return place
    command, names = subject.command, opened_names(state)
    opened = json.loads(names.read_bytes()) if names.is_file() and not plain else []
    words = ("bash", "-c", command) if isinstance(command, str) else command
    proposal = proposal_for(words, subject.cwd, opened, defaults=not plain)
    document: dict[str, Any] = {
        "workload": {"command": proposal.command},
        "axes": [dict(axis) for axis in proposal.axes],
    }
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


_HEADER = """\
# What aorta solve found that may shrink, and what counts as the failure. By hand:
#   aorta reduce --spec THIS_FILE --output reduce/MY-TICKET
"""


class Reduce(Stage):
    name = "reduce"

    def __call__(self, state: State) -> StageResult:
        """With every axis that can be guessed; with the plain ones where that does not fail."""
        result = self._reduced(state, state.folder(self.name), plain=False)
        drafted = subject_of(state.request).spec is None
        if not drafted or result.answer.get("status") != "did_not_reproduce":
            return result
        folder = state.path / f"{state.folder(self.name).name}-plain"
        if state.is_spent and not folder.is_dir():
            return result
        return self._reduced(state, folder, plain=True)

    def _reduced(self, state: State, folder: Path, *, plain: bool) -> StageResult:
        first = original(state)
        spec = load_spec(draft(state, first, first.oracle or {}, plain=plain))
        if not spec.content.axes:
            why = (
                "nothing was found that may shrink: let the command take a number, a list or a "
                f"file as an argument or a variable, or name axes in a copy of {spec.file}"
            )
            return StageResult(self.name, "no_answer", why)
        return _ran(state, self.name, folder, spec=Path(spec.file), seen=first.seen)


def _ran(state: State, stage: str, folder: Path, **more: Any) -> StageResult:
    """What `aorta reduce` finds; the summary is written whenever it has found something smaller."""
    layers, ticket = layers_of(state.request, {}, mitigations=None), state.request.ticket
    request = ReduceRequest(
        run_dir=folder, ticket=ticket, layers=layers, **state.how(stage, folder), **more
    )
    report = reduce(request, state.listeners(stage), written=state.best_so_far)
    Stopped.check(report.ending.reason)
    answer = report.to_json()
    status = status_of(report.ending, answer["status"] == "reduced", answer["why"])
    return StageResult(stage, *status, str(report.run_dir), answer=answer)


class Source(Stage):
    name = "source"

    def __call__(self, state: State) -> StageResult:
        subject, oracle = subject_of(state.request), state.known("reproduce")["oracle"]
        spec = reduced_spec(state) or draft(state, subject, oracle)
        folder, fix = state.folder(self.name), _fix(state, load_spec(spec))
        return _ran(state, self.name, folder, spec=spec, source=True, fixed_by=fix)


def _fix(state: State, spec: SpecFile) -> Path | None:
    """What undoes the named commit, as a patch that fits the program's directory; else None."""
    culprits = state.known("bisect").get("culprits") or []
    root, place = spec.base / spec.content.workload.cwd, state.path / "fix.patch"
    if not state.is_done("bisect") or len(culprits) != 1:
        return None
    git = git_on_host(subject_of(state.request).cwd)
    revisions = (str(culprits[0]["bad"]), str(culprits[0]["good"]), "--")
    modified = git(("diff", "--relative", "--name-only", "--diff-filter=M", *revisions, "*.py"))
    names = [name for name in modified.out.splitlines() if (root / name).is_file()]
    write_atomically(place, git(("diff", "--relative", "--no-ext-diff", *revisions, *names)).out)
    try:
        return place if names and fixes_of_patch(place, root) else None
    except UsageError:
        return None
