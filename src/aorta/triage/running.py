"""`triage`: from a recipe to an answer, from a file or from flags, in either mode."""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from aorta.core.errors import UsageError
from aorta.core.names import slug
from aorta.core.oracle import known_failure
from aorta.core.trial import Environment, Outcome, TrialEnd
from aorta.engine.events import Event, Listener, PointDecided, TrialRecord
from aorta.engine.question import Budget, Question
from aorta.engine.rundir import RunDir, find_resumable, write_atomically, write_json
from aorta.engine.session import Session
from aorta.engine.snapshots import host_snapshot, is_captured, snapshot_of
from aorta.executors import Executor
from aorta.registry.sidecars import RESOLVED_RECIPE, SIDECARS
from aorta.scrub.secrets import safe_value
from aorta.triage.matrix import MatrixReport, MatrixRun
from aorta.triage.optimize import StackReport, StackRun
from aorta.triage.plan import Plan, PlannedCell, build_plan
from aorta.triage.recipe import Recipe, resolved_yaml
from aorta.triage.request import TriageRequest, recipe_of
from aorta.workloads.results import trial_document
from aorta.workloads.trial import check_command

VERB = "triage"

Run = MatrixRun | StackRun
SnapshotFor = Callable[[PlannedCell], dict[str, object]]


def triage(
    request: TriageRequest,
    listeners: Callable[[], Sequence[Listener]] = tuple,
    say: Callable[[str], None] = lambda _words: None,
) -> MatrixReport | StackReport:
    """Which mitigation, in which environment, makes it stop? Every trial that the mode asks for,
    then its answer on disk; also of a run that is stopped before its end. `say` is called with the
    run that is resumed, where the request names none.

    >>> triage(TriageRequest(recipe=Path("r.yaml"))).run_dir  # doctest: +SKIP
    """
    request = _resumed(request, say)
    run = _checked(request)
    recipe, session = run.plan.recipe, _session(run.plan, request)
    chosen = replace(request.executor, warm=True) if recipe.content.warm else request.executor
    with session, closing(chosen.open()) as executor:
        run = _run(build_plan(_adopted(recipe, session.path)), request)
        snapshots, warnings = _snapshots(session.run, run.plan, executor)
        question = Question(
            search=run.search,
            judges=run.judges,
            experiment=run,
            fingerprint=run.fingerprint,
            expected=known_failure(run.plan.baseline.experiment.oracle),
            keep=partial(_keep, run, session.path, snapshots),
            warm=True,
            **run.rules(Budget(max_seconds=request.max_wall_clock)),
        )
        wrapped = [partial(_tell, run, listener) for listener in listeners()]
        answer = session.answer(question, executor, wrapped)
        report = run.report(answer, session.path, session.run.about()["created"], warnings)
        write_json(session.path / f"{report.NAME}.json", report.SCHEMA, report.content())
        write_atomically(report.page, report.markdown())
        return report


def dry_run(request: TriageRequest) -> dict[str, Any]:
    """The cells (none for a stack) and lines for people of what would run; nothing is written."""
    run = _checked(_resumed(request, lambda _words: None))
    cells = [
        {"name": one.name, "mitigations": list(one.cell.mitigations), "trials": one.trials}
        for one in (run.plan.cells if isinstance(run, MatrixRun) else ())
    ]
    results = f"results would go below {request.output_dir / run.plan.parent}"
    return {"cells": cells, "lines": [*run.describe(), results]}


def _checked(request: TriageRequest) -> Run:
    """Refuses what can be known to be wrong before anything is run or written."""
    plan = check_recipe(recipe_of(request))
    check_command(plan.baseline.experiment, request.executor.name)
    return _run(plan, request)


def _run(plan: Plan, request: TriageRequest) -> Run:
    return StackRun(plan, request.seen) if request.mode == "optimize" else MatrixRun(plan)


def check_recipe(recipe: Recipe) -> Plan:
    """Every check that leaves no trace: what a dry run says is what a run would say."""
    if os.environ.get("WORLD_SIZE", "1") not in {"", "1"}:
        raise UsageError(
            "a matrix starts the ranks of each trial itself; put the launcher behind --, such as: "
            "aorta triage run --recipe r.yaml -- torchrun ..."
        )
    return build_plan(recipe)


def _session(plan: Plan, request: TriageRequest) -> Session:
    parent, place, name = request.output_dir / plan.parent, request.run_dir, None
    if request.resume is not None:
        return Session.resuming(parent, VERB, request.resume)
    if place is not None:
        parent, name = place.parent, place.name
    content = plan.recipe.content
    about: dict[str, Any] = {"ticket": content.ticket, "workload": content.workload}
    return Session.fresh(parent, VERB, name=name, mode=request.mode, **about)


def _resumed(request: TriageRequest, say: Callable[[str], None]) -> TriageRequest:
    """With the run to go on with and its mode, where nothing else says what runs."""
    resume = request.resume
    if resume is None or request.recipe or request.command or request.workload:
        return request
    run = find_resumable(request.output_dir, VERB, resume.run, below="*/*/*/")
    if resume.run is None:
        say(f"resuming {run.path}")
    mode = run.about().get("mode", request.mode)
    return replace(request, mode=mode, resume=replace(resume, run=run.path))


def _keep(
    run: Run, run_dir: Path, snapshots: SnapshotFor, record: TrialRecord, end: TrialEnd
) -> None:
    cell, request, label, path = run.place(record)
    document = trial_document(label, request, end, record, env=snapshots(cell))
    write_atomically(run_dir / path, document.to_json())
    if record.outcome is Outcome.CLEAN and not run.plan.recipe.content.save_logs:
        shutil.rmtree(run_dir / record.path, ignore_errors=True)


def _tell(run: Run, listener: Listener, event: Event) -> None:
    if passed_on := run.decided(event) if isinstance(event, PointDecided) else event:
        listener(passed_on)


# -- the files of a run directory around its trials


def _adopted(recipe: Recipe, run_dir: Path) -> Recipe:
    """The recipe resolved from copies of its sidecars; those of a resumed run stay."""
    copies = [run_dir / SIDECARS / sidecar.name for sidecar in recipe.sidecars]
    for sidecar, copy in zip(recipe.sidecars, copies, strict=True):
        if not copy.exists():
            write_atomically(copy, sidecar.read_bytes())
    write_atomically(run_dir / RESOLVED_RECIPE, resolved_yaml(recipe))
    return replace(recipe, sidecars=tuple(copies))


def _snapshots(run: RunDir, plan: Plan, executor: Executor) -> tuple[SnapshotFor, list[str]]:
    """The host's once and each environment's once, before any trial; returns warnings."""
    host = _once(run.path / "host_env.json", host_snapshot)
    taken = {
        name: _once(
            run.path / "environments" / slug(name) / "env.json",
            partial(_inside, run, environment, executor),
        )
        for name, environment in plan.environments.items()
    }
    named = {"host": host, **{f"environment:{name}": one for name, one in taken.items()}}
    warnings = []
    for scope, snapshot in named.items():
        if not is_captured(snapshot):
            warnings.append(f"{scope}: no snapshot: {snapshot['skip_reason']}")
        elif snapshot.get("partial"):
            reasons = "; ".join(map(str, snapshot.get("partial_reasons") or []))
            warnings.append(f"{scope}: the snapshot is partial: {reasons}")
    return lambda cell: _as_seen_by(cell, taken[cell.environment.name]), warnings


def _inside(run: RunDir, environment: Environment, executor: Executor) -> dict[str, Any]:
    scratch = run.private / "snapshots" / slug(environment.name)
    scratch.mkdir(parents=True, exist_ok=True)
    return snapshot_of(environment, environment.env, executor, scratch, run.path.resolve())


def _once(path: Path, take: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        earlier = json.loads(path.read_bytes())
        if isinstance(earlier, dict) and is_captured(earlier):
            return earlier
    snapshot = take()
    write_atomically(path, json.dumps(snapshot, indent=2, ensure_ascii=False) + "\n")
    return snapshot


def _as_seen_by(cell: PlannedCell, snapshot: Mapping[str, Any]) -> dict[str, object]:
    """The environment's snapshot, with the cell's variables that a snapshot records."""
    seen = dict(snapshot)
    known = snapshot.get("env_vars")
    if isinstance(known, dict):
        mine = {name: safe_value(name, value) for name, value in cell.env.items() if name in known}
        seen["env_vars"] = {**known, **mine}
    return seen
