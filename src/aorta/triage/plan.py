"""From a recipe to cells, with every check that needs no trial. Runs nothing."""

import os
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from aorta.core.errors import Exit, SpecError
from aorta.core.failure import Failure, failure_to_json
from aorta.core.names import slug
from aorta.core.trial import Environment
from aorta.engine.events import Ending, Reason
from aorta.probe.gpus import platform_here
from aorta.registry.environments import NO_MITIGATION
from aorta.registry.mitigation import Platform, why_inert
from aorta.triage.recipe import SCHEMA_VERSION, Cell, Recipe
from aorta.workloads.base import COMMAND
from aorta.workloads.results import TrialLabel
from aorta.workloads.trial import (
    WorkloadExperiment,
    WorkloadRequest,
    script_digests,
    workload_experiment,
)

NO_TICKET = "_no_ticket_"


@dataclass(frozen=True)
class PlannedCell:
    """One cell, resolved: what it runs, how often at most, why it may equal the baseline."""

    index: int
    cell: Cell
    experiment: WorkloadExperiment
    trials: int
    inert: str | None = None

    @property
    def name(self) -> str:
        return self.cell.name

    @property
    def request(self) -> WorkloadRequest:
        return self.experiment.request

    @property
    def environment(self) -> Environment:
        return self.request.environment

    @cached_property
    def env(self) -> Mapping[str, str]:
        return self.request.resolved_env()

    @property
    def variables(self) -> Mapping[str, str]:
        """All that a trial of it sees, as far as that is known here."""
        return {**({} if self.environment.isolated else os.environ), **self.env}

    def label(self, number: int) -> TrialLabel:
        return TrialLabel(self.request.workload, number, mitigation=self.index)

    def trial_file(self, number: int) -> Path:
        """Where the record of a trial lies, relative to the run directory."""
        return Path("cells", slug(self.name)) / self.label(number).relative_path


@dataclass(frozen=True)
class Plan:
    recipe: Recipe
    cells: tuple[PlannedCell, ...]
    baseline: PlannedCell

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(cell.name for cell in self.cells)

    @cached_property
    def by_name(self) -> Mapping[str, PlannedCell]:
        return {cell.name: cell for cell in self.cells}

    @property
    def inert(self) -> dict[str, str]:
        return {cell.name: cell.inert for cell in self.cells if cell.inert is not None}

    @property
    def environments(self) -> dict[str, Environment]:
        """Each environment once, in the order of the cells."""
        return {cell.environment.name: cell.environment for cell in self.cells}

    @property
    def parent(self) -> Path:
        """Where runs of this ticket and workload lie, inside the output directory."""
        content = self.recipe.content
        return Path(slug(content.ticket) if content.ticket else NO_TICKET) / slug(content.workload)

    @property
    def fingerprint(self) -> Mapping[str, object]:
        content = self.recipe.content
        settings = content.model_dump(
            exclude={"cells", "workload", "workload_config", "ticket"}, mode="json"
        )
        return {
            "workload": [content.workload, repr(self.baseline.experiment.deciding)],
            "cells": [_fingerprint_of(cell) for cell in self.cells],
            "recipe": settings,
            **script_digests(self.baseline.experiment),
        }


def build_plan(recipe: Recipe, platform: Platform | None = None) -> Plan:
    """Every check that a run makes before its first trial; a dry run makes the same ones."""
    environments = [recipe.environment_of(cell) for cell in recipe.content.cells]
    # What a workload's name means may differ from cell to cell; one that nobody here knows is wrong
    # where none can differ.
    elsewhere = any(environment.isolated for environment in environments) or any(
        "PYTHONPATH" in {**recipe.content.extra_env, **cell.extra_env}
        for cell in recipe.content.cells
    )
    cells = [
        _planned(recipe, index, environment, known_elsewhere=elsewhere)
        for index, environment in enumerate(environments)
    ]
    _check_directories(recipe, [cell.environment.name for cell in cells])
    _check_one_failure(recipe, cells)
    baseline = cells[baseline_index(recipe)]
    here = platform or platform_here()
    marked = tuple(
        replace(cell, inert=_why_inert(cell, baseline, recipe, here))
        if cell is not baseline
        else cell
        for cell in cells
    )
    return Plan(recipe, marked, marked[baseline.index])


def _planned(
    recipe: Recipe, index: int, environment: Environment, *, known_elsewhere: bool
) -> PlannedCell:
    content = recipe.content
    cell = content.cells[index]
    request = WorkloadRequest(
        workload=content.workload,
        config={**content.workload_config, **cell.workload_config},
        environment=environment,
        mitigations=[(name, recipe.mitigations.get(name).env) for name in cell.mitigations],
        extra_env=[content.extra_env, cell.extra_env],
        steps=cell.steps or content.steps,
        timeout=content.timeout,
        base=recipe.base if content.workload == COMMAND else None,
        file=recipe.file,
        at=f"cells[{index}].workload_config" if cell.workload_config else "workload_config",
        known_elsewhere=known_elsewhere,
    )
    trials = cell.trials or content.trials
    return PlannedCell(index, cell, workload_experiment(request), trials)


def baseline_index(recipe: Recipe) -> int:
    """The one named; the first called baseline-*; the first without mitigations; the only one."""
    cells = recipe.content.cells
    wanted = recipe.content.confound.baseline_cell
    rules = (
        lambda cell: cell.name == wanted,
        lambda cell: cell.name.startswith("baseline-"),
        lambda cell: cell.mitigations == (NO_MITIGATION,),
        lambda _: len(cells) == 1,
    )
    for rule in rules:
        found = next((index for index, cell in enumerate(cells) if rule(cell)), None)
        if found is not None:
            return found
    raise SpecError(
        "no cell can be the baseline; name one with confound.baseline_cell (--baseline-cell), call "
        "one baseline-..., or add a cell with mitigations: [none]",
        where=f"{recipe.file}: cells",
    )


def _check_directories(recipe: Recipe, names: Sequence[str]) -> None:
    """Two names must not share a directory, or one would overwrite the other."""
    seen: dict[str, str] = {}
    for name in names:
        first = seen.setdefault(slug(name), name)
        if first != name:
            raise SpecError(
                f"{first!r} and {name!r} would share the directory environments/{slug(name)}; "
                "rename one of them",
                where=recipe.file,
            )


def _check_one_failure(recipe: Recipe, cells: Sequence[PlannedCell]) -> None:
    """Rates can be compared only if they are rates of the same failure."""
    for cell in cells:
        if cell.experiment.deciding != cells[0].experiment.deciding:
            raise SpecError(
                f"cells {cells[0].name!r} and {cell.name!r} have different oracles; a matrix "
                "compares one failure: keep oracle in the workload_config of the recipe",
                where=f"{recipe.file}: cells[{cell.index}].workload_config.oracle",
            )


def _why_inert(
    cell: PlannedCell, baseline: PlannedCell, recipe: Recipe, platform: Platform
) -> str | None:
    """Why this cell cannot differ from the baseline, or None where it can."""
    same_rest = (
        cell.environment == baseline.environment
        and cell.request.config == baseline.request.config
        and cell.request.steps == baseline.request.steps
        and cell.cell.extra_env == baseline.cell.extra_env
    )
    if not same_rest:
        return None
    if cell.env == baseline.env:
        return "it sets nothing that the baseline does not"
    reasons = []
    for name in cell.cell.mitigations:
        mitigation = recipe.mitigations.get(name)
        if not mitigation.env:
            continue
        reason = why_inert(mitigation, platform, baseline.variables)
        if reason is None:
            return None
        reasons.append(f"{name}: {reason}")
    return "; ".join(reasons) or None


def _fingerprint_of(cell: PlannedCell) -> list[Any]:
    request = cell.request
    config = dict(request.config)
    if request.workload == COMMAND:
        config.pop("cwd", None)  # relative or absolute, it is the directory below
    return [
        cell.name,
        repr(request.environment),
        sorted(cell.env.items()),
        config,
        request.steps,
        cell.trials,
        str(cell.experiment.subject.cwd),
    ]


class Schedule:
    """Which trial goes when: a round of all cells after the other, each in a shuffled order of its
    own. Half of the baseline's trials come first, because every comparison rests on them; the other
    half is spread over the rounds, so that drift is seen by the baseline too.
    """

    def __init__(self, plan: Plan) -> None:
        self._names, self._baseline = plan.names, plan.baseline.name
        self._first = (plan.baseline.trials + 1) // 2
        self._rounds: dict[int, dict[str, int]] = {}

    def place(self, cell: str, number: int) -> tuple[int, int]:
        if cell == self._baseline:
            if number < self._first:
                return (-1, number)
            number = 2 * (number - self._first) + 1
        if number not in self._rounds:
            names = random.Random(number).sample(self._names, len(self._names))
            self._rounds[number] = {name: position for position, name in enumerate(names)}
        return (number, self._rounds[number][cell])


@dataclass(frozen=True, kw_only=True)
class TriageReport(ABC):
    """What a triage says in either mode, and where the run lies."""

    NAME: ClassVar[str]  # of its two files
    SCHEMA: ClassVar[str]

    plan: Plan
    ending: Ending
    created: str
    run_dir: Path
    warnings: Sequence[str] = ()
    failure: Failure | None = None  # of what runs without mitigations

    @property
    @abstractmethod
    def no_answer(self) -> str | None:
        """Why a run that went to its end has no answer."""

    @abstractmethod
    def answer(self) -> dict[str, Any]:
        """What this mode alone says."""

    @property
    def exit_code(self) -> Exit:
        if self.ending.reason is not Reason.DONE:
            return self.ending.exit_code
        return Exit.NO_ANSWER if self.no_answer else Exit.OK

    @property
    def page(self) -> Path:
        return self.run_dir / f"{self.NAME}.md"

    def to_json(self) -> dict[str, Any]:
        return {**self.content(), "run_dir": str(self.run_dir)}

    def content(self) -> dict[str, Any]:
        """Of its JSON file, which may be moved."""
        recipe = self.plan.recipe.content
        return {
            "schema_version": SCHEMA_VERSION,
            "status": self.ending.reason.value,
            "warm": self.ending.warm_to_json(),
            "workload": recipe.workload,
            "ticket": recipe.ticket,
            "run_timestamp": self.created,
            "warnings": list(self.warnings),
            "signature": self.failure.text if self.failure else None,
            "failure": failure_to_json(self.failure),
            **self.answer(),
        }
