"""From a spec to all that a reduction needs before its first trial; raises on wrong input."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aorta.core.axis import Axis, Point
from aorta.core.errors import AortaError, SpecError
from aorta.core.oracle import Deciding, Oracle, PythonOracle, classify
from aorta.core.trial import LOCAL, RuntimeKind, TrialEnd
from aorta.engine.judge import NOTHING, HitCount, Judges, KOfN, SameJudge, SequentialJudges
from aorta.engine.question import Budget
from aorta.executors.local import LocalExecutor
from aorta.reduce.axis_spec import SourceAxis, Surroundings
from aorta.reduce.bindings import AxisBinding
from aorta.reduce.experiment import GatedOracle, ReductionExperiment, patience_with
from aorta.reduce.files import secret_variables
from aorta.reduce.launcher import argv_of, is_launched, python_of
from aorta.reduce.spec import SpecFile, read_spec, source_axis
from aorta.registry.environments import NO_MITIGATION, EnvironmentLayers
from aorta.registry.sidecars import definitions_of, sidecars_beside
from aorta.scrub.known import split_patterns
from aorta.scrub.scrubber import Rules, Scrubber
from aorta.workloads.base import COMMAND
from aorta.workloads.ranks import ANY_RANK, of_ranks
from aorta.workloads.startable import did_you_mean
from aorta.workloads.trial import (
    WorkloadExperiment,
    WorkloadRequest,
    script_digests,
    workload_experiment,
)


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """What is said on top of the spec; None leaves the spec's word."""

    timeout: float | None = None  # of one trial, in seconds
    max_trials: int | None = None
    max_wall_clock: float | None = None  # in seconds
    layers: EnvironmentLayers = field(default_factory=EnvironmentLayers)
    scrub: tuple[str, ...] = ()  # text to take out of what ships
    bare: bool = False  # without the mitigations that the spec names
    ticket: str | None = None  # None: what the spec says, or the last part of output
    seen: HitCount = NOTHING  # how often the original was seen to fail before


@dataclass(frozen=True)
class ReducePlan:
    spec: SpecFile
    request: WorkloadRequest
    base: WorkloadExperiment
    bindings: Sequence[AxisBinding]
    budget: Budget
    scrub: tuple[str, ...] = ()
    ticket: str | None = None
    seen: HitCount = NOTHING
    # what plugins and sidecar files say of the mitigations and the environment, as such a file
    definitions: Mapping[str, Any] = field(default_factory=dict)

    @property
    def axes(self) -> tuple[Axis, ...]:
        return tuple(binding.axis for binding in self.bindings)

    @property
    def oracle(self) -> Oracle:
        """As it was written, without the rules around it."""
        return self.base.oracle

    @property
    def is_command(self) -> bool:
        return self.request.workload == COMMAND

    @property
    def has_source(self) -> bool:
        """Whether the program itself is reduced too."""
        return source_axis(self.spec) is not None and self.is_command

    @property
    def mitigations(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.request.mitigations if name != NO_MITIGATION)

    def judges(self) -> Judges:
        k_of_n = self.spec.content.budget.k_of_n
        return SameJudge(KOfN(*k_of_n)) if k_of_n else SequentialJudges(known=self.seen)

    def experiment(self) -> ReductionExperiment:
        oracle: Deciding = self.oracle
        launched = is_launched(argv_of(self.request.config.get("command", "")))
        if launched or self.spec.content.ranks != ANY_RANK:
            oracle = of_ranks(self.oracle, self.spec.content.ranks)
        if self.spec.content.gate is not None:
            oracle = GatedOracle(oracle, self.spec.content.gate)
        patience = patience_with(self.request.timeout, self.oracle)
        return ReductionExperiment(self.base, self.bindings, oracle, patience)

    def scrubber(self) -> Scrubber:
        """The user's patterns, and the values of secret variables."""
        values = tuple(secret_variables(dict(self.base.env)).values())
        return Scrubber(Rules(patterns=self.scrub, values=values, detect=False))

    @property
    def fingerprint(self) -> Mapping[str, object]:
        content = self.spec.content
        return {
            "workload": [self.request.workload, dict(self.request.config), self.request.steps],
            "working directory": str(self.base.subject.cwd),
            "oracle": [repr(self.oracle), content.ranks, repr(content.gate)],
            "judging": repr(content.budget.k_of_n),
            "axes": [repr(axis) for axis in self.axes],
            "data": [binding.digest for binding in self.bindings],
            "environment": repr(self.request.environment),
            "variables": sorted(self.base.env.items()),
            **script_digests(self.base),
        }


def make_plan(given: SpecFile, overrides: Overrides) -> ReducePlan:
    layers = overrides.layers
    if not layers.mitigations_files:
        layers = replace(layers, mitigations_files=sidecars_beside(Path(given.file)))
        overrides = replace(overrides, layers=layers)
    request = _request(given, overrides)
    base = workload_experiment(request)
    spec = _as_declared(given, request)
    content = spec.content
    if not content.axes:
        raise SpecError(
            "there is nothing to shrink; expected at least one axis", where=f"{spec.file}: axes"
        )
    plan = ReducePlan(
        spec=spec,
        request=request,
        base=base,
        bindings=_bindings(spec, base.subject.cwd),
        budget=Budget(
            max_trials=overrides.max_trials or content.budget.max_trials,
            max_seconds=overrides.max_wall_clock or content.budget.max_wall_clock,
        ),
        scrub=(*content.scrub, *chain.from_iterable(map(split_patterns, overrides.scrub))),
        ticket=content.ticket or overrides.ticket,
        seen=overrides.seen,
        definitions=definitions_of(request.mitigations, request.environment),
    )
    with _wrong_at("--scrub" if overrides.scrub else f"{spec.file}: scrub"):
        plan.scrubber()
    if not base.subject.cwd.is_dir():
        raise SpecError(
            f"there is no directory {base.subject.cwd}", where=f"{spec.file}: workload.cwd"
        )
    return plan


def _bindings(spec: SpecFile, cwd: Path) -> tuple[AxisBinding, ...]:
    """Every axis but the source, read and checked; errors name the place in the file."""
    around = Surroundings(cwd, spec.base, python_of(spec.content.workload.command or ()))
    made = []
    for index, axis in enumerate(spec.content.axes):
        if isinstance(axis, SourceAxis):
            continue  # what is made of it is no value of a variable
        where = f"{spec.file}: axes[{index}]"
        try:
            made.append(axis.bind(around))
        except AortaError as wrong:
            inside = f"{where}.initial" if wrong.where == "initial" else where
            raise SpecError(wrong.message, where=inside) from None
    return tuple(made)


def _as_declared(spec: SpecFile, request: WorkloadRequest) -> SpecFile:
    """With the axes that a registered workload declares itself, where the spec has none. Refuses a
    predicate that it does not declare, where the workload can be loaded here.
    """
    axes, oracle = spec.content.axes, request.oracle
    predicate = oracle.predicate if isinstance(oracle, PythonOracle) else None
    if request.workload == COMMAND or (axes and predicate is None):
        return spec
    end = _declaration(request)
    if not (end.result or {}).get("passed"):
        if axes:
            return spec  # it may lie where its trials run
        why = classify(PythonOracle(), end).why
        raise SpecError(f"workload {request.workload!r} cannot be loaded: {why}", where=spec.file)
    declared = (end.result or {})["metrics"]
    if predicate is not None and predicate not in (known := declared["predicates"]):
        near = did_you_mean(predicate, known) or f"; it has: {', '.join(known) or 'none'}"
        why = f"workload {request.workload!r} has no predicate {predicate!r}{near}"
        raise SpecError(why, where=f"{spec.file}: oracle.predicate")
    if axes:
        return spec
    return read_spec({**spec.document, "axes": declared["axes"]}, file=spec.file, base=spec.base)


def _declaration(request: WorkloadRequest) -> TrialEnd:
    """Of the class, in the Python of its trials; for containers in this machine's."""
    place = request.environment
    place = place if place.kind is RuntimeKind.VENV else replace(LOCAL, env=place.env)
    experiment = workload_experiment(replace(request, environment=place, declare=True))
    with TemporaryDirectory(prefix="aorta-") as scratch, closing(LocalExecutor()) as executor:
        executor.start(experiment.trial(Point.of({}), 0, Path(scratch)))
        return next(iter(executor.wait()))


def _request(spec: SpecFile, overrides: Overrides) -> WorkloadRequest:
    content, workload = spec.content, spec.content.workload
    config: dict[str, Any] = dict(workload.config)
    if (command := workload.command) is not None:
        words = command if isinstance(command, str) else list(command)
        config = {"command": words, "cwd": workload.cwd}
    with _wrong_at(f"{spec.file}: environment"):
        environment = overrides.layers.resolved_environment(content.environment)
    with _wrong_at(f"{spec.file}: mitigations"):
        layers = overrides.layers
        mitigations = [] if overrides.bare else layers.resolved_mitigations(content.mitigations)
    return WorkloadRequest(
        workload=COMMAND if workload.command is not None else str(workload.name),
        config=config,
        environment=environment,
        mitigations=mitigations,
        extra_env=[content.extra_env, overrides.layers.extra_env],
        steps=workload.steps,
        oracle=content.oracle,
        timeout=overrides.timeout or workload.timeout,
        base=spec.base,
        file=spec.file,
        at="workload",
    )


@contextmanager
def _wrong_at(where: str) -> Iterator[None]:
    """Whatever is wrong in here is said of this place, unless it names its own."""
    try:
        yield
    except AortaError as wrong:
        raise SpecError(wrong.message, where=wrong.where or where) from None
