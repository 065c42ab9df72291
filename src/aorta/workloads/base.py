"""What a workload is: a class that sets up, runs once and says how it went.

Standard library only, and nothing newer than Python 3.10: it is also imported inside containers
where neither aorta nor its dependencies are installed.
"""

import logging
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Literal

from aorta.core.errors import RegistryError
from aorta.registry.workloads import get_workload, imported

LaunchMode = Literal["single_process", "distributed"]

RESERVED_PREFIX = "_aorta_"
"""Config keys that begin so are given by aorta to the workload, and are refused from users."""


@dataclass
class WorkloadResult:
    """What `run()` returns. By convention `failure_details[i]["hint"]` is the cause in one line.
    The last three fields say how far it got; None: the workload does not know.
    """

    passed: bool
    failure_count: int = 0
    first_failure_iteration: int | None = None
    failure_details: list[dict[str, Any]] = field(default_factory=list)
    total_iterations: int = 0
    step_times_ms: list[float] = field(default_factory=list)
    elapsed_sec: float = 0.0
    metrics: dict[str, Any] = field(default_factory=dict)
    main_work_started: bool | None = None
    executed_iterations: int | None = None
    configured_iterations: int | None = None

    def check(self) -> None:
        """Refuse (ValueError) a result that contradicts itself or cannot be counted."""
        _require(isinstance(self.passed, bool), "passed", self.passed, "True or False")
        began = self.main_work_started
        _require(began in (True, False, None), "main_work_started", began, "True, False or None")
        for name in ("failure_count", "total_iterations"):
            _require(_is_count(getattr(self, name)), name, getattr(self, name), _A_COUNT)
        for name in ("first_failure_iteration", "executed_iterations", "configured_iterations"):
            count = getattr(self, name)
            _require(count is None or _is_count(count), name, count, _A_COUNT)
        _require(_is_time(self.elapsed_sec), "elapsed_sec", self.elapsed_sec, _A_TIME)
        for time in self.step_times_ms:
            _require(_is_time(time), "step_times_ms", time, _A_TIME)
        for detail in self.failure_details:
            _require(isinstance(detail, Mapping), "failure_details", detail, "a list of dicts")
        _require(isinstance(self.metrics, Mapping), "metrics", self.metrics, "a dict")
        if self.passed:
            _require(not self.failure_count, "failure_count", self.failure_count, "0 on a pass")
            _require(not self.failure_details, "failure_details", "some", "none on a pass")

    def to_dict(self) -> dict[str, Any]:
        """JSON-native, whatever numbers and objects the workload put in."""
        return {name: plain(value) for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "WorkloadResult":
        """The result in a JSON object, further keys allowed; ValueError where it is none."""
        names = [f.name for f in fields(cls)]
        missing = [name for name in names if name not in data]
        if missing:
            raise ValueError(f"the result lacks {', '.join(missing)}")
        for name in ("failure_details", "step_times_ms"):
            _require(isinstance(data[name], list), name, data[name], "a list")
        result = cls(**{name: data[name] for name in names})
        result.check()
        return result


class Workload(ABC):
    """One run of something that may fail: config, setup, run and, always, cleanup."""

    launch_mode: ClassVar[LaunchMode] = "single_process"
    min_world_size: ClassVar[int] = 1

    axes: ClassVar[Sequence[Mapping[str, Any]]] = ()
    """What may be shrunk, in the keys of a reduction spec: name, kind, type, initial, floor,
    strategy, monotone.
    """

    steps_axis: ClassVar[str | None] = None
    """The axis that `--steps N` sets, where the workload counts steps."""

    predicates: ClassVar[Mapping[str, Callable[[WorkloadResult], bool]]] = {}
    """Named questions about the result that a `python` oracle may ask instead of `failure_count
    > 0`.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    @abstractmethod
    def setup(self) -> None:
        """Everything before the main work. What it raises never counts as the failure."""

    @abstractmethod
    def run(self) -> WorkloadResult:
        """The main work, once. A noticed failure is returned, another one raised."""

    def cleanup(self) -> None:
        """Give back what was taken. Called once the object exists, however far it got."""
        return

    def variables(self) -> dict[str, str]:
        """Every setting of this trial as text. The environment wins, because a search sets its axes
        there; then the config; for the steps axis `--steps`; then the axes' initial values.
        """
        initial = {axis["name"]: str(axis["initial"]) for axis in self.axes}
        ours = {name for name in self.config if name.startswith(RESERVED_PREFIX)}
        given = {name: str(self.config[name]) for name in self.config if name not in ours}
        if self.steps_axis is not None and "steps" in given:
            initial[self.steps_axis] = given["steps"]
        return {**initial, **given, **os.environ}


def plain(value: Any) -> Any:
    """`value` in JSON's types: odd numbers by text or value, anything else by its repr."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    scalar = getattr(value, "item", None)
    if callable(scalar) and getattr(value, "ndim", None) == 0:
        return plain(scalar())
    return repr(value)


_A_COUNT = "a whole number, 0 or more"
_A_TIME = "finite times, 0 or more"


def _require(holds: bool, name: str, found: object, expected: str) -> None:
    if not holds:
        raise ValueError(f"{name}: found {found!r}, expected {expected}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


# -- which rank this process is, and whether a workload may be launched so


def check_launch(
    name: str, workload: type[Workload], environ: Mapping[str, str], predicate: str | None
) -> None:
    """Refuse, with RuntimeError, a workload that was launched in a way it cannot run in, or that
    has no such predicate. `environ`: what torchrun and its like export.
    """
    text = environ.get("WORLD_SIZE", "1")
    size = int(text) if text.strip().isdecimal() else 0
    if size < 1:
        raise RuntimeError(f"WORLD_SIZE is {text!r}; expected a whole number, 1 or more")
    if predicate is not None and predicate not in workload.predicates:
        raise RuntimeError(f"{name} has no predicate {predicate!r}")
    if workload.launch_mode == "single_process" and size > 1:
        raise RuntimeError(
            f"{name} runs in a single process, and WORLD_SIZE is {size}; "
            "do not wrap it with torchrun"
        )
    if workload.launch_mode == "distributed" and size < workload.min_world_size:
        raise RuntimeError(
            f"{name} needs at least {workload.min_world_size} ranks, and WORLD_SIZE is "
            f"{size}; start it with: "
            f"torchrun --nproc-per-node {workload.min_world_size} -m aorta run --workload {name}"
        )


def rank_of(environ: Mapping[str, str]) -> int:
    """This process's rank. RANK without a WORLD_SIZE above 1 is left over in a shell: 0."""
    if environ.get("WORLD_SIZE", "").strip() in {"", "1"}:
        return 0
    text = environ.get("RANK", "0")
    try:
        return int(text)
    except ValueError:
        logging.getLogger(__name__).warning("RANK is %r, not a number; taken as 0", text)
        return 0


# -- from a name to a class

COMMAND = "command"
"""The one workload that is no class: the user's own command, run as it is."""


def load_workload(name: str) -> type[Workload]:
    """The class itself. An import that fails keeps its own exception."""
    found = imported(name) if ":" in name else get_workload(name)
    if not (isinstance(found, type) and issubclass(found, Workload)):
        raise RegistryError(
            f"workload {name!r} is no subclass of aorta.workloads.base.Workload that a child "
            "could run"
        )
    return found
