"""The reduction spec, `aorta.yaml`, read strictly: which values its keys may hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from aorta.core.documents import Count, DocumentModel, Seconds, Variables, validated
from aorta.core.errors import SpecError, UsageError
from aorta.core.oracle import Oracle, PythonOracle, Stream, around_number
from aorta.reduce.axis_spec import AxisSpec, Real, SourceAxis
from aorta.registry.documents import load_document
from aorta.workloads.ranks import ANY_RANK, WhichRanks, of_ranks, with_ranks_apart


class WorkloadSpec(DocumentModel):
    """A command with where it runs, or the name of a registered workload with its config."""

    command: str | tuple[str, ...] | None = None
    cwd: str = "."
    name: str | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    steps: Count | None = None
    timeout: Seconds = None  # of one trial
    files: tuple[str, ...] | None = None  # globs of the files in cwd that the reproducer needs

    @field_validator("command", mode="before")
    @classmethod
    def _texts(cls, value: object) -> object:
        parts = value if isinstance(value, (list, tuple)) else [value]
        if value is not None and not all(isinstance(part, str) for part in parts):
            raise UsageError("expected a text for the shell, or a list of texts to execute")
        return value

    @model_validator(mode="after")
    def _one_of(self) -> "WorkloadSpec":
        if (self.command is None) == (self.name is None):
            raise UsageError(
                "expected either command, or name of a registered workload, and not both"
            )
        if self.command is not None and self.config:
            raise UsageError("config is for a registered workload; a command has none")
        return self


class BudgetSpec(DocumentModel):
    """What may be spent. Without k-of-n the number of trials follows from the rate."""

    trials_per_candidate: Count | None = None
    k_of_n_to_count_as_reproducing: Count | None = None
    max_wall_clock: Seconds = None
    max_trials: Count | None = None

    @model_validator(mode="after")
    def _reachable(self) -> "BudgetSpec":
        k, n = self.k_of_n_to_count_as_reproducing, self.trials_per_candidate
        if k is not None and n is None:
            raise UsageError("k_of_n_to_count_as_reproducing needs trials_per_candidate beside it")
        if k is not None and n is not None and k > n:
            raise UsageError(
                f"k_of_n_to_count_as_reproducing is {k} of {n} trials; it can never be reached"
            )
        return self

    @property
    def k_of_n(self) -> tuple[int, int] | None:
        n = self.trials_per_candidate
        if n is None:
            return None
        return self.k_of_n_to_count_as_reproducing or n // 2 + 1, n


class Gate(DocumentModel):
    """What a failing trial must also show to count: the bug may only matter under load."""

    min_step_time_ms: Real = Field(gt=0, allow_inf_nan=False)
    # Where a command says its step time.
    pattern: Annotated[str, around_number("gate")] = (
        r"step[ _-]?time(?:[ _-]?ms)?\s*[=:]?\s*([0-9.]+)"
    )
    stream: Stream = "both"


class ReduceSpec(DocumentModel):
    """Every key of `aorta.yaml`."""

    workload: WorkloadSpec
    oracle: Oracle | None = None
    ranks: WhichRanks = ANY_RANK  # in the file: oracle.ranks
    budget: BudgetSpec = BudgetSpec()
    axes: tuple[AxisSpec, ...] = ()
    gate: Gate | None = None
    scrub: tuple[str, ...] = ()
    mitigations: tuple[str, ...] = ()
    environment: str | None = None
    extra_env: Variables = Field(default_factory=dict)
    ticket: str | None = None
    warm: bool = False  # as --warm

    @field_validator("axes")
    @classmethod
    def _apart(cls, axes: tuple[AxisSpec, ...]) -> tuple[AxisSpec, ...]:
        owner: dict[str, str] = {}
        if sum(isinstance(axis, SourceAxis) for axis in axes) > 1:
            raise UsageError("two axes are the source; keep one")
        launching = [axis.name for axis in axes if axis.kind in {"world_size", "ranks"}]
        if len(launching) > 1:
            raise UsageError(f"{' and '.join(launching)} both decide the number of ranks; keep one")
        for axis in axes:
            for name in {axis.name, *axis.variables}:
                if name in owner:
                    raise UsageError(f"the axes {owner[name]} and {axis.name} both set {name}")
                owner[name] = axis.name
        return axes

    @model_validator(mode="after")
    def _observable(self) -> "ReduceSpec":
        is_command = self.workload.command is not None
        if is_command and isinstance(self.oracle, PythonOracle):
            raise UsageError(
                "oracle: a command has no Workload object for a python oracle to ask; "
                "expected exit_code, regex, hang or metric"
            )
        if self.oracle is not None:
            of_ranks(self.oracle, self.ranks)
        return self


@dataclass(frozen=True)
class SpecFile:
    """A sound spec, where it came from, and the directory that its relative paths lie in."""

    content: ReduceSpec
    document: Mapping[str, Any]
    file: str
    base: Path


def load_spec(path: Path) -> SpecFile:
    document = load_document(path)
    return read_spec(document, file=str(path), base=path.resolve().parent)


def read_spec(document: object, *, file: str, base: Path) -> SpecFile:
    given = document if isinstance(document, Mapping) else {}
    try:
        content = with_ranks_apart(given) if given else document
    except UsageError as wrong:
        raise SpecError(wrong.message, where=f"{file}: {wrong.where}") from None
    return SpecFile(validated(ReduceSpec, content, file=file), given, file, base)


def source_axis(spec: SpecFile) -> SourceAxis | None:
    """The axis that is the program itself, where the spec has one."""
    return next((axis for axis in spec.content.axes if isinstance(axis, SourceAxis)), None)


def with_source(document: Mapping[str, Any], fixed_by: Path | None = None) -> dict[str, Any]:
    """The spec with the program itself as one more axis, and the patch that is known to help."""
    more = {} if fixed_by is None else {"fixed_by": str(fixed_by.absolute())}
    axes = list(document.get("axes") or ())
    found = [i for i, a in enumerate(axes) if isinstance(a, Mapping) and a.get("kind") == "source"]
    if not found:
        axes.append({"name": "source", "kind": "source"})
    at = found[0] if found else -1
    axes[at] = {**axes[at], **more}
    return {**document, "axes": axes}
