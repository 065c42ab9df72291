"""Every option of a comparison, and the two sides that follow from them or from a run directory."""

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from aorta.core.errors import UsageError
from aorta.core.names import spelled
from aorta.engine.session import Resume
from aorta.executors.choosing import ExecutorChoice
from aorta.registry.documents import load_document
from aorta.registry.environments import EnvironmentLayers, stack_mitigations
from aorta.registry.mitigations import shown_env
from aorta.runtimes.git import Repository, laid_out
from aorta.scrub.secrets import without_secrets
from aorta.workloads.trial import (
    WorkloadRequest,
    check_command,
    script_digests,
    workload_experiment,
)

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
    words: str = ""  # what makes it this side, for people: without secrets

    @property
    def command(self) -> str:
        """For people."""
        return without_secrets(spelled(self.config.get("command", self.workload)))

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
class GoodAndBad:
    bad: Side
    good: Side | None  # None: the bad side alone is looked at

    def __getitem__(self, name: str) -> Side:
        side = self.bad if name == BAD else self.good
        assert side is not None
        return side

    @property
    def names(self) -> tuple[str, ...]:
        return (BAD,) if self.good is None else (BAD, GOOD)

    def described(self) -> Iterator[tuple[str, str]]:
        """What ran, and what made each side what it is."""
        yield "command", self.bad.command
        for name in self.names:
            words = self[name].words or "as it is"
            other = self[name].command != self.bad.command
            if self.good or self.bad.words:
                yield name, f"{words}: {self[name].command}" if other else words


def parse_steps(text: str | None) -> tuple[int, int | None]:
    """`A:B` with either end left out: the steps that are recorded, both included."""
    if text is None:
        return 0, None
    found = re.fullmatch(r"([0-9]*):([0-9]*)", text)
    if found is None:
        raise UsageError(f"--steps: found {text!r}, expected A:B such as 40:60 or 40:")
    begin, end = int(found[1] or 0), int(found[2]) if found[2] else None
    if end is not None and end < begin:
        raise UsageError(f"--steps: {end} comes before {begin}; expected A:B with A <= B")
    return begin, end


@dataclass(frozen=True, kw_only=True)
class DivergeRequest:
    """A run directory or a command, and what makes its good side; None: the bad side alone."""

    run_dir: Path | None = None
    command: tuple[str, ...] | str = ()  # words, or a text for a shell
    cwd: Path | None = None  # of the command; None: here
    bad_set: Mapping[str, str] = field(default_factory=dict)
    good_set: Mapping[str, str] = field(default_factory=dict)
    good_mitigations: tuple[str, ...] = ()
    good: str | None = None  # a revision
    good_device: Literal["cpu"] | None = None
    good_dtype: Literal["float32", "float64"] | None = None
    between_ranks: bool = False  # compare the ranks of one run instead
    steps: tuple[int, int | None] = (0, None)  # the first and the last that are recorded
    seed: int = 0
    mitigations_files: tuple[Path, ...] = ()
    timeout: float | None = None  # of one run, in seconds
    max_wall_clock: float | None = None  # in seconds
    executor: ExecutorChoice = field(default_factory=ExecutorChoice)
    output: Path = Path("diverge")
    name: str | None = None  # of the run directory in `output`; None: the time
    resume: Resume | None = None

    def absolute(self) -> "DivergeRequest":
        """The same from any directory."""
        return replace(
            self,
            cwd=(self.cwd or Path()).absolute(),
            run_dir=self.run_dir and self.run_dir.absolute(),
            mitigations_files=tuple(file.absolute() for file in self.mitigations_files),
        )

    @cached_property
    def found(self) -> GoodAndBad:
        """The sides that the run directory or the command knows of by itself."""
        if (self.run_dir is None) == (not self.command):
            raise UsageError("give a run directory, or a command behind --")
        if self.between_ranks and self.good_words:
            raise UsageError("--between-ranks compares the ranks of one run; remove the good side")
        if self.run_dir is not None:
            return good_and_bad_of_run(self.run_dir)
        config = {"command": self.command}
        return GoodAndBad(Side("command", config, self.cwd or Path.cwd()), None)

    @property
    def known(self) -> GoodAndBad:
        """The sides, but for a revision, which is not laid out yet."""
        bad, good = self.found.bad, self.found.good
        if self.between_ranks:
            good = None
        elif self.good_words:
            # Without what makes the other side bad.
            env = {**bad.env, **self.good_env}
            good = replace(bad, env=env, orders=self.good_orders, words=self.good_words)
        elif good is None and self.bad_set:
            good = replace(bad, words=f"without {', '.join(self.bad_set)}")
        words = ", ".join(filter(None, (bad.words, shown_env(self.bad_set))))
        return GoodAndBad(replace(bad, env={**bad.env, **self.bad_set}, words=words), good)

    @cached_property
    def good_env(self) -> dict[str, str]:
        """The variables of the good side."""
        layers = EnvironmentLayers(None, self.good_mitigations, self.mitigations_files)
        return {**stack_mitigations(layers.resolved_mitigations()), **self.good_set}

    @property
    def good_orders(self) -> dict[str, str]:
        """What the recorder of the good side is to do otherwise."""
        given = {"device": self.good_device, "dtype": self.good_dtype}
        return {key: value for key, value in given.items() if value is not None}

    @property
    def good_words(self) -> str:
        """What the options say of the good side; empty where they say nothing."""
        said = [f"{key} {value}" for key, value in self.good_orders.items()]
        said += [f"revision {self.good}"] if self.good else []
        said += [shown_env(self.good_env)] if self.good_env else []
        said += [f"by mitigation {name}" for name in self.good_mitigations if self.good_env]
        return ", ".join(said)

    def warnings(self) -> Iterator[str]:
        bad, good = self.known.bad, self.known.good
        if good and self.good is None and replace(good, words=bad.words) == bad:
            yield "both sides are the same: only what the program does by chance is compared"

    def good_and_bad(self, scratch: Path) -> GoodAndBad:
        """What is run. A revision is laid out in `scratch`, outside of the user's checkout."""
        known = self.known
        if self.good is None or known.good is None:
            return known
        base = laid_out(self.good, known.good.base, scratch)
        return GoodAndBad(known.bad, replace(known.good, base=base))

    def check(self) -> None:
        """Refuses what cannot be run; nothing is written for that."""
        known, base = self.known, self.known.bad.base
        if len(self.command) == 1 and self.executor.name == "local":
            word, path = self.command[0], known.bad.env.get("PATH")
            if not (" " in word or (base / word).exists() or shutil.which(word, path=path)):
                raise UsageError("there is no such directory or program", where=word)
        for name in known.names:
            check_command(workload_experiment(known[name].request(None)), self.executor.name)
        if self.good is not None:
            try:
                Repository.on_host(base).resolve(self.good)
            except UsageError as wrong:
                said = f"--good {self.good}: {wrong.message}"
                raise UsageError(said, where=wrong.where) from None

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What makes it the same comparison when it is resumed. Read once: a command may write the
        script that it runs.
        """
        known, bad = self.known, self.known.bad
        sides = [script_digests(workload_experiment(known[n].request(None))) for n in known.names]
        return {
            "command": [bad.workload, dict(bad.config), str(bad.base)],
            "bad": sorted(bad.env.items()),
            "good": repr(known.good),
            "revision": self.good and Repository.on_host(bad.base).resolve(self.good),
            **{script: [side.get(script) for side in sides] for script in chain(*sides)},
            "steps": list(self.steps),
            "seed": self.seed,
            "between ranks": self.between_ranks,
        }


def plan_lines(request: DivergeRequest) -> Iterator[str]:
    """What would run, for people; nothing is run or written."""
    (_, command), *sides = request.known.described()
    yield f"command  {command}"
    yield f"  in     {request.known.bad.base}"
    yield from (f"  {name:<6} {words}" for name, words in sides)
    if request.known.good is None and not request.between_ranks:
        yield "  good   none: first NaN, and whether it repeats its own numbers"
    first, last = request.steps
    if request.steps != DivergeRequest.steps:
        yield f"  steps  {first} to {'the last' if last is None else last} are recorded"
    yield from (f"warning: {words}" for words in request.warnings())


# -- what another run found out --------------------------------------------------------------------


def good_and_bad_of_run(run_dir: Path) -> GoodAndBad:
    """The two sides that a triage, a reduction or a bisection knows of already."""
    if (run_dir / "matrix.json").is_file():
        return _of_matrix(run_dir)
    if (run_dir / "shrunken" / "recipe.resolved.yaml").is_file():
        return GoodAndBad(_of_recipe(run_dir / "shrunken" / "recipe.resolved.yaml"), None)
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


def _of_matrix(run_dir: Path) -> GoodAndBad:
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
    return GoodAndBad(_of_cell(common, baseline), _of_cell(common, good) if good else None)


def _of_cell(common: Side, cell: Mapping[str, Any]) -> Side:
    where = cell.get("resolved_environment") or {}
    if where.get("kind", "host") != "host":
        raise UsageError(
            f"the cell {cell.get('name')} ran in {where.get('kind')}; diverge records on the host: "
            "run it inside that environment with a command behind --"
        )
    env = {str(k): str(v) for k, v in (cell.get("resolved_env_vars") or {}).items()}
    config = {**common.config, **(cell.get("workload_config") or {})}
    words = f"{cell.get('name')} {shown_env(env)}".strip()
    return replace(common, config=config, env={**common.env, **env}, words=words)


def _of_bisection(run_dir: Path) -> GoodAndBad:
    path = run_dir / "result.json"
    commands = _mapping(load_document(path), path).get("reproduce") or {}
    if not isinstance(commands, dict) or not commands.get("bad") or not commands.get("good"):
        raise UsageError("this run names no two sides that can be run", where=str(path))
    bad, good = (
        Side("command", {"command": str(commands[name])}, Path.cwd(), words=f"bisection, {name}")
        for name in (BAD, GOOD)
    )
    return GoodAndBad(bad, good)


def _mapping(document: object, path: Path) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise UsageError("expected a mapping of keys to values", where=str(path))
    return document
