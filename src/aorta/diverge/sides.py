"""The two sides of a comparison: from options or a run directory to what is run on each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aorta.core.errors import UsageError
from aorta.registry.documents import load_document
from aorta.workloads.trial import WorkloadRequest

BAD, GOOD = "bad", "good"


@dataclass(frozen=True)
class Side:
    """One way to run the program. `orders` (another precision or device) go to the recorder."""

    workload: str
    config: Mapping[str, Any]
    base: Path  # relative paths in `config` lie there
    env: Mapping[str, str] = field(default_factory=dict)
    steps: int | None = None
    orders: Mapping[str, Any] = field(default_factory=dict)
    words: str = ""  # what makes it this side, for people

    def request(self, timeout: float | None) -> WorkloadRequest:
        return WorkloadRequest(
            self.workload,
            self.config,
            extra_env=[self.env],
            steps=self.steps,
            timeout=timeout,
            base=self.base,
        )


@dataclass(frozen=True)
class Sides:
    bad: Side
    good: Side | None  # None: the bad side alone is looked at

    def __getitem__(self, name: str) -> Side:
        side = self.bad if name == BAD else self.good
        assert side is not None
        return side

    @property
    def names(self) -> tuple[str, ...]:
        return (BAD,) if self.good is None else (BAD, GOOD)


def with_env(side: Side, env: Mapping[str, str]) -> Side:
    words = ", ".join(f"{name}={value}" for name, value in env.items())
    return replace(side, env={**side.env, **env}, words=words)


def parse_steps(text: str | None) -> tuple[int, int | None]:
    """`A:B` with either end left out: the steps that are recorded, both included."""
    if text is None:
        return 0, None
    first, colon, last = text.partition(":")
    numbers: Sequence[str] = [part for part in (first, last) if part]
    if not colon or not all(part.isdigit() for part in numbers):
        raise UsageError(f"--steps: found {text!r}, expected A:B such as 40:60 or 40:")
    begin, end = int(first or 0), int(last) if last else None
    if end is not None and end < begin:
        raise UsageError(f"--steps: {end} comes before {begin}; expected A:B with A <= B")
    return begin, end


# -- what another run found out --------------------------------------------------------------------


def sides_of_run(run_dir: Path) -> Sides:
    """The two sides that a triage, a reduction or a bisection knows of already."""
    if (run_dir / "matrix.json").is_file():
        return _of_matrix(run_dir)
    if (run_dir / "shrunken" / "recipe.resolved.yaml").is_file():
        return Sides(_of_recipe(run_dir / "shrunken" / "recipe.resolved.yaml"), None)
    if (run_dir / "result.json").is_file():
        return _of_bisection(run_dir)
    raise UsageError(
        "holds no result of a triage, a reduction or a bisection; give one, or a command behind --",
        where=str(run_dir),
    )


def _of_recipe(path: Path) -> Side:
    recipe = _mapping(load_document(path), path)
    config = recipe.get("workload_config") or {}
    steps = recipe.get("steps")
    return Side(
        workload=str(recipe.get("workload", "command")),
        config=config if isinstance(config, dict) else {},
        base=path.parent.resolve(),
        env={str(k): str(v) for k, v in (recipe.get("extra_env") or {}).items()},
        steps=steps if isinstance(steps, int) else None,
    )


def _of_matrix(run_dir: Path) -> Sides:
    """Bad is the baseline; good is a cell that is proved to work, or else one that never failed."""
    matrix = _mapping(load_document(run_dir / "matrix.json"), run_dir / "matrix.json")
    cells: list[Mapping[str, Any]] = matrix.get("cells", [])
    common = _of_recipe(run_dir / "recipe.resolved.yaml")
    baseline = next((c for c in cells if c.get("name") == matrix.get("baseline_cell")), None)
    if baseline is None:
        raise UsageError("the matrix has no baseline", where=str(run_dir / "matrix.json"))
    works = [c for c in cells if c.get("call") == "works"]
    clean = [
        c for c in cells if c is not baseline and c.get("trials") and not c.get("failed_count")
    ]
    good = next(iter(works or clean), None)
    return Sides(_of_cell(common, baseline), _of_cell(common, good) if good else None)


def _of_cell(common: Side, cell: Mapping[str, Any]) -> Side:
    where = cell.get("resolved_environment") or {}
    if where.get("kind", "host") != "host":
        raise UsageError(
            f"the cell {cell.get('name')} ran in {where.get('kind')}; diverge records on the host: "
            "run it inside that environment with a command behind --"
        )
    env = {str(k): str(v) for k, v in (cell.get("resolved_env_vars") or {}).items()}
    config = {**common.config, **(cell.get("workload_config") or {})}
    return replace(common, config=config, env={**common.env, **env}, words=str(cell.get("name")))


def _of_bisection(run_dir: Path) -> Sides:
    path = run_dir / "result.json"
    commands = _mapping(load_document(path), path).get("reproduce") or {}
    if not isinstance(commands, dict) or not commands.get("bad") or not commands.get("good"):
        raise UsageError("this run names no two sides that can be run", where=str(path))
    bad, good = (
        Side("command", {"command": str(commands[name])}, Path.cwd(), words=f"bisection, {name}")
        for name in (BAD, GOOD)
    )
    return Sides(bad, good)


def _mapping(document: object, path: Path) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise UsageError("expected a mapping of keys to values", where=str(path))
    return document
