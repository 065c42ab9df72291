"""Every option of a comparison, and the two sides that follow from them."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from aorta.core.errors import UsageError
from aorta.diverge.sides import Side, Sides, sides_of_run, with_env
from aorta.engine.session import Resume
from aorta.executors.choosing import ExecutorChoice
from aorta.registry.environments import stack_mitigations
from aorta.registry.mitigations import get_mitigation
from aorta.runtimes.git import laid_out


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
    def known(self) -> Sides:
        """The sides that the run directory or the command knows of by itself."""
        if (self.run_dir is None) == (not self.command):
            raise UsageError("give a run directory, or a command behind --")
        if self.between_ranks and self.good_words:
            raise UsageError("--between-ranks compares the ranks of one run; remove the good side")
        if self.run_dir is not None:
            found = sides_of_run(self.run_dir)
            bad = with_env(found.bad, self.bad_set) if self.bad_set else found.bad
            return Sides(bad, found.good)
        command = self.command if isinstance(self.command, str) else list(self.command)
        side = Side("command", {"command": command}, self.cwd or Path.cwd())
        # What makes a side bad is compared with the command without it.
        return Sides(with_env(side, self.bad_set), side if self.bad_set else None)

    @cached_property
    def good_env(self) -> dict[str, str]:
        """The variables of the good side."""
        stack = [
            (name, get_mitigation(name, self.mitigations_files).env)
            for name in self.good_mitigations
        ]
        return {**stack_mitigations(stack), **self.good_set}

    @property
    def good_orders(self) -> dict[str, str]:
        """What the recorder of the good side is to do otherwise."""
        given = {"device": self.good_device, "dtype": self.good_dtype}
        return {key: value for key, value in given.items() if value is not None}

    @property
    def good_words(self) -> str:
        """What the options say of the good side; empty where they say nothing."""
        said = [f"{name}={value}" for name, value in self.good_env.items()]
        said += [f"{key} {value}" for key, value in self.good_orders.items()]
        return ", ".join([*said, *([f"revision {self.good}"] if self.good else [])])

    def sides(self, scratch: Path) -> Sides:
        """What is run. A revision is laid out in `scratch`, outside of the user's checkout."""
        bad = self.known.bad
        if not self.good_words:
            return Sides(bad, None) if self.between_ranks else self.known
        base = bad.base
        if self.good is not None:
            try:
                base = laid_out(self.good, bad.base, scratch)
            except UsageError as wrong:
                said = f"--good {self.good}: {wrong.message}"
                raise UsageError(said, where=wrong.where) from None
        env = {**bad.env, **self.good_env}
        orders, words = self.good_orders, self.good_words
        return Sides(bad, replace(bad, env=env, base=base, orders=orders, words=words))

    def identity(self) -> dict[str, Any]:
        """What makes it the same comparison when it is resumed."""
        bad = self.known.bad
        return {
            "command": [bad.workload, dict(bad.config), str(bad.base)],
            "bad": sorted(bad.env.items()),
            "good": self.good_words or repr(self.known.good),
            "steps": list(self.steps),
            "seed": self.seed,
            "between ranks": self.between_ranks,
        }


def plan_lines(request: DivergeRequest) -> Iterator[str]:
    """What would run, for people; nothing is run or written."""
    known = request.known
    command = known.bad.config.get("command", known.bad.workload)
    other = request.good_words or (known.good.words if known.good else "")
    yield f"command  {command if isinstance(command, str) else shlex.join(command)}"
    yield f"  in     {known.bad.base}"
    yield f"  bad    {known.bad.words or 'as it is'}"
    yield f"  good   {other or 'none: first NaN, and whether it repeats its own numbers'}"
