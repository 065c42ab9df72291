"""Trials beyond the search: whether an axis is read at all, and whether what ships fails.

Each is an experiment around that of the reduction; which of them is asked, and when, `running`
says.
"""

import os
import shutil
import sys
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from aorta.core.axis import Point, Purpose
from aorta.core.oracle import Deciding
from aorta.core.sprt import NOTHING, HitCount, misses_that_tell
from aorta.core.trial import TrialSpec
from aorta.reduce.experiment import DATA, IGNORED, PLACE, ReductionExperiment
from aorta.reduce.files import watch_opened
from aorta.reduce.handoff import shipped_oracle
from aorta.reduce.materials import NONSENSE, folders_of, settings_of
from aorta.reduce.output import Output
from aorta.reduce.shrunken import SCRIPT, Reproducer
from aorta.search.reduction import Reduction
from aorta.search.repeated import EveryPoint

_ANYWHERE = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MISSED = 0.01
_MOST_TRIALS_OF_COPY = 40


@dataclass(frozen=True)
class _Around:
    inner: ReductionExperiment

    @property
    def oracle(self) -> Deciding:
        return self.inner.oracle


@dataclass(frozen=True)
class WatchedExperiment(_Around):
    """The same trials. Of those that confirm the answer it records which of the files laid out for
    them are opened.
    """

    _watches: dict[Path, ExitStack] = field(default_factory=dict)
    _opened: list[Collection[str]] = field(default_factory=list)

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        trial = self.inner.trial(point, index, trial_dir)
        folder = (trial_dir / DATA).absolute()
        if point.purpose is Purpose.CONFIRM and folder.is_dir():
            watch = self._watches[trial_dir] = ExitStack()
            self._opened.append(watch.enter_context(watch_opened(folder)))
        return trial

    def close(self, trial_dir: Path | None = None) -> None:
        """Watch this trial no longer, or none: clearing its files away opens their folders."""
        for place in [trial_dir] if trial_dir else list(self._watches):
            if place in self._watches:
                self._watches.pop(place).close()

    def opened(self) -> list[str]:
        """The axes whose file or folder was opened by trials that are not watched any more."""
        materials = self.inner.materials
        return [
            material.axis.name
            for material, inside in zip(materials, folders_of(materials), strict=True)
            if (name := material.file_name) is not None
            and any(
                _is_at(
                    found, f"{PLACE}/{material.inside}" if material.inside else f"{inside}{name}"
                )
                for seen in self._opened
                for found in seen
            )
        ]


def _is_at(opened: str, name: str) -> bool:
    return opened == name or opened.startswith(f"{name}/")


@dataclass(frozen=True)
class IgnoredExperiment(_Around):
    """The same trials with one axis turned into nonsense: `Point.of({IGNORED: axis})` says which.

    A command that reads the axis cannot go on as before: the file it is told of is not there, and
    the number is none.
    """

    at: Point

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        trial = self.inner.trial(self.at, index, trial_dir)
        material = next(m for m in self.inner.materials if m.axis.name == point[IGNORED])
        names = settings_of([material], self.at) or [material.axis.name]
        folder = (trial_dir / DATA).absolute()
        place = self.inner.workplace(self.at, folder, nonsense=material.axis.name)
        env = {**trial.env, **dict.fromkeys(names, NONSENSE)}
        return replace(trial, env=env, cwd=place or trial.cwd)


@dataclass(frozen=True)
class CopyExperiment(_Around):
    """What ships, as it ships, in a directory of its own and started from outside it."""

    reproducer: Reproducer
    output: Output

    @property
    def oracle(self) -> Deciding:
        plan = self.reproducer.plan
        return self.inner.oracle if plan.is_command else shipped_oracle(plan)

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        folder = trial_dir / "data"
        self.output.lay_out(self.reproducer, folder)
        return TrialSpec(
            argv=("bash", str((folder / SCRIPT).absolute())),
            trial_dir=trial_dir,
            cwd=trial_dir.absolute(),
            env={**self.reproducer.secrets, **self._path(), **self._python()},
            environment=self.inner.base.environment,
            watch=self.oracle.watch(),
            timeout=self.inner.patience.seconds_for(point),
            resources=self.inner.base.request.resources,
        )

    def _path(self) -> dict[str, str]:
        """What any machine has, and the one Python that whoever runs it names; a program that is
        called by its name is the original's own.
        """
        if self.inner.base.environment.isolated or not self.reproducer.plan.is_command:
            return {}
        command = self.reproducer.command()
        words = command.split() if isinstance(command, str) else command
        found = shutil.which(words[0]) if words else None
        programs = [*self.reproducer.portable.programs, *([Path(found).parent] if found else [])]
        python = self.reproducer.python
        return {
            "PATH": os.pathsep.join([*dict.fromkeys(map(str, programs)), _ANYWHERE]),
            **({"PYTHON": python} if python else {}),
        }

    def _python(self) -> dict[str, str]:
        """A registered workload runs in aorta's Python, not with the original's modules."""
        module = self.reproducer.module
        if self.reproducer.plan.is_command or self.inner.base.environment.isolated:
            return {}
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        kept = [path for path in paths if module is None or Path(path).resolve() != module.root]
        return {"PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(kept)}


def failed(search: EveryPoint, point: Point) -> bool:
    verdict = search.verdicts.get(point)
    return verdict is not None and verdict.reproduces is True


def enough(reduction: Reduction, before: HitCount) -> int:
    """So many trials that a copy which fails as often as the answer is missed less than once in a
    hundred times. `before`: how often the original was seen to fail before the reduction.
    """
    verdict = reduction.confirmation or reduction.calibration
    judged = [v for v in (reduction.calibration, reduction.confirmation) if v is not None]
    missed = before.misses or reduction.setbacks or any(v.tally.against for v in judged)
    if judged and not missed:
        return 1
    seen = before + (HitCount.of(verdict.tally) if verdict else NOTHING)
    return min(misses_that_tell(seen, _MISSED), _MOST_TRIALS_OF_COPY)
