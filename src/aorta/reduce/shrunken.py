"""`shrunken/`: the reproducer. A script with every value baked in, its data, and the files that other verbs take.

Laid out twice from the same description: once in a trial's own directory, to see that it fails there too, and once to ship.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aorta.core.documents import dump_yaml
from aorta.core.point import Point
from aorta.core.trial import RuntimeKind
from aorta.reduce.disk import writing
from aorta.reduce.experiment import ReductionExperiment
from aorta.reduce.files import WorkloadFiles
from aorta.reduce.handoff import recipe_document, spec_document
from aorta.reduce.materials import place_all
from aorta.reduce.plan import ReducePlan

SCRIPT, SPEC, RECIPE, ENV = "run_repro.sh", "aorta.yaml", "recipe.resolved.yaml", "env.json"
WORKLOAD = "workload"
_TAKEN = (SCRIPT, SPEC, RECIPE, ENV, WORKLOAD)
_SIMPLE = re.compile(r"[\w./:@%+,\-][\w./=:@%+,\- ]*")


@dataclass(frozen=True)
class Reproducer:
    """The smallest failing point as files. `files` is None where it runs in the original directory."""

    plan: ReducePlan
    experiment: ReductionExperiment
    point: Point
    files: WorkloadFiles | None
    shipped_name: Callable[[str], str]  # what a file is called where it ships
    rate: str = ""  # how often it failed, for people

    def lay_out(self, folder: Path) -> None:
        with writing(folder):
            self._lay_out(folder)

    def _lay_out(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        placed = {
            name: self._renamed(value, folder) if isinstance(value, Path) else value
            for name, value in place_all(
                self.plan.materials, self.point, folder, copy=True, taken=_TAKEN
            ).items()
        }
        if self.files is not None:
            (folder / WORKLOAD).mkdir()
            self.files.copy_to(folder / WORKLOAD)
        script = folder / SCRIPT
        script.write_text(self.script(placed, folder), encoding="utf-8")
        script.chmod(0o755)
        spec = spec_document(self.plan, self.point, self.command(), self.cwd, placed, folder)
        (folder / SPEC).write_text(_SPEC_HEADER + dump_yaml(spec), encoding="utf-8")
        recipe = dump_yaml(recipe_document(self.plan, SCRIPT))
        (folder / RECIPE).write_text(_RECIPE_HEADER + recipe, encoding="utf-8")

    def _renamed(self, path: Path, folder: Path) -> Path:
        """A name may be private too, and the script must call the file by the name it ships under."""
        shipped = folder / self.shipped_name(str(path.relative_to(folder)))
        shipped.parent.mkdir(parents=True, exist_ok=True)
        return path.rename(shipped)

    @property
    def cwd(self) -> str:
        return WORKLOAD if self.files is not None else str(self.plan.base.subject.cwd)

    def command(self) -> str | list[str]:
        """The original command with its number of ranks, and without the way to its own directory."""
        given = self.plan.request.config.get("command", "")
        parts = (given,) if isinstance(given, str) else tuple(given)
        if self.files is not None:
            here = re.escape(str(self.files.root))
            parts = tuple(re.sub(rf"(?<![\w/.\-]){here}/", "", part) for part in parts)
        parts = self.experiment.command(parts, self.point)
        return parts[0] if isinstance(given, str) else list(parts)

    def script(self, placed: Mapping[str, str | Path], folder: Path) -> str:
        lines = [
            "#!/usr/bin/env bash",
            f"# The smallest run that still fails, found by aorta reduce{self.rate and f': {self.rate}'}.",
            *self._needs(),
            "set -euo pipefail",
            'here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"',
            *self._exports(placed, folder),
            f'cd "$here/{WORKLOAD}"' if self.files is not None else f"cd {shlex.quote(self.cwd)}",
            *self._run(),
        ]
        return "\n".join(lines) + "\n"

    def _needs(self) -> list[str]:
        environment = self.plan.request.environment
        if environment.kind is RuntimeKind.HOST:
            return []
        what = environment.image or environment.venv or environment.name
        return [f"# It failed inside {environment.kind.value} {what}; run it there."]

    def _exports(self, placed: Mapping[str, str | Path], folder: Path) -> list[str]:
        """Every variable of the point, whatever the caller's environment says."""
        launching = self.experiment.launching(self.point)
        baked = {**self.plan.base.env, **launching, **placed}
        lines = [f"export {name}={_baked(value, folder)}" for name, value in baked.items()]
        if self._uses_trial_dir():
            lines.append('export AORTA_TRIAL_DIR="${AORTA_TRIAL_DIR:-$(mktemp -d)}"')
        return lines

    def _uses_trial_dir(self) -> bool:
        texts = [str(self.command())]
        if self.files is not None:
            texts += [
                (self.files.root / name).read_text("utf-8", "replace") for name in self.files.names
            ]
        return any("AORTA_TRIAL_DIR" in text for text in texts)

    def _run(self) -> list[str]:
        if not self.plan.is_command:
            return _run_registered(self.plan)
        command = self.command()
        if isinstance(command, list):
            return [f"exec {shlex.join(command)}"]
        plain = _SIMPLE.fullmatch(command) and "=" not in command.split()[0]
        return [f"exec {command}" if plain else f"exec /bin/bash -c {shlex.quote(command)}"]


_SPEC_HEADER = "# What the reduction ended with, in the keys it began with.\n"
_RECIPE_HEADER = "# Ready to run: aorta triage run --recipe recipe.resolved.yaml\n"


def _run_registered(plan: ReducePlan) -> list[str]:
    """A registered workload needs aorta itself; its result is thrown away, its exit code counts."""
    request = plan.request
    words = ["run", "-q", "--workload", request.workload, "--results-dir"]
    steps = ["--steps", str(request.steps)] if request.steps is not None else []
    return [
        'command -v aorta >/dev/null || aorta() { "${PYTHON:-python3}" -m aorta "$@"; }',
        "results=$(mktemp -d)",
        "trap 'rm -rf \"$results\"' EXIT",
        f'aorta {shlex.join(words)} "$results" {shlex.join(steps)}'.rstrip(),
    ]


def _baked(value: str | Path, folder: Path) -> str:
    if isinstance(value, Path):
        return f'"$here"/{shlex.quote(str(value.relative_to(folder)))}'
    return shlex.quote(value)
