"""`shrunken/`: a script with every value baked in, its data, files for other verbs. Unscrubbed."""

import os
import re
import shlex
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from aorta.core.axis import Point
from aorta.core.documents import dump_yaml
from aorta.core.failure import Failure
from aorta.core.oracle import PythonOracle, RegexOracle, naming
from aorta.core.trial import RuntimeKind
from aorta.engine.rundir import writing
from aorta.reduce.bindings import changed_names, lay_out
from aorta.reduce.experiment import ReductionExperiment
from aorta.reduce.files import (
    Portable,
    WorkloadFiles,
    baked,
    made_portable,
    needed_files,
    requirements,
    requirements_text,
    secret_variables,
)
from aorta.reduce.handoff import recipe_document, spec_document
from aorta.reduce.launcher import argv_of, python_of, words_of
from aorta.reduce.plan import ReducePlan
from aorta.registry.sidecars import RESOLVED_RECIPE as RECIPE
from aorta.registry.sidecars import SIDECARS
from aorta.workloads.base import RESERVED_PREFIX
from aorta.workloads.child import WorkloadOrder
from aorta.workloads.trial import RESULT_FILE, STEPS, describe_environment

SCRIPT, SPEC, ENV = "run_repro.sh", "aorta.yaml", "env.json"
ORDER, REQUIREMENTS = "order.json", "requirements.txt"
WORKLOAD = "workload"
_TAKEN = (SCRIPT, SPEC, RECIPE, ENV, ORDER, REQUIREMENTS, WORKLOAD, SIDECARS)


def files_of(
    plan: ReducePlan, apart: Sequence[Path], opened: Collection[str] = ()
) -> WorkloadFiles | None:
    """What a command needs, with the files a run `opened`; None for a registered workload."""
    if not plan.is_command:
        return None
    named = [*argv_of(plan.request.config["command"]), *plan.base.env.values()]
    globs = plan.spec.content.workload.files
    return needed_files(plan.base.subject.cwd, named, globs, apart, opened)


@dataclass(frozen=True)
class Reproducer:
    """The smallest failing point as files; a registered workload has none of its own."""

    plan: ReducePlan
    experiment: ReductionExperiment
    point: Point
    files: WorkloadFiles | None
    shipped_name: Callable[[str], str]  # what a file is called where it ships
    rate: str = ""  # how often it failed, for people
    flaky: bool = False  # some of its trials did not fail
    home: str = WORKLOAD  # where the files lie, below the folder
    ends_well: bool = False  # its exit is 0 though it fails
    failure: Failure | None = None  # with what was learned to vary in it

    def lay_out(self, folder: Path) -> None:
        with writing(folder):
            self._lay_out(folder)

    def _lay_out(self, folder: Path) -> None:
        home = folder / self.home
        home.mkdir(parents=True, exist_ok=True)
        if self.files is not None:
            self.files.copy_to(home)
            for name, source in self.portable.copied.items():
                target = home / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
            for name, content in self.portable.scripts.items():
                (home / name).write_text(content, encoding="utf-8")
        bindings = self.plan.bindings
        variables, inside = lay_out(bindings, self.point, folder, home, taken=_TAKEN)
        placed = {
            name: self._renamed(value, folder) if isinstance(value, Path) else value
            for name, value in variables.items()
        }
        if self.requirements:
            needed = requirements_text(self.requirements)
            (folder / REQUIREMENTS).write_text(needed, encoding="utf-8")
        script = folder / SCRIPT
        script.write_text(self.script(placed, folder), encoding="utf-8", errors="surrogateescape")
        script.chmod(0o755)
        if not self.plan.is_command:
            (folder / ORDER).write_text(self._order(placed).to_json() + "\n", encoding="utf-8")
        laid = {**placed, **inside}
        spec = spec_document(self.plan, self.point, self._called(), laid, folder)
        if self.failure is not None and self.plan.is_command:
            oracle = spec.get("oracle", {"kind": "exit_code"})
            spec["oracle"] = naming(oracle, self.failure.to_json())
        (folder / SPEC).write_text(_SPEC_HEADER + dump_yaml(spec), encoding="utf-8")
        recipe = dump_yaml(recipe_document(self.plan, SCRIPT, self.failure, flaky=self.flaky))
        (folder / RECIPE).write_text(_RECIPE_HEADER + recipe, encoding="utf-8")
        if self.plan.definitions:
            secret = secret_variables(dict(self.plan.base.env))  # the script asks for these
            definitions = dump_yaml(_without(self.plan.definitions, secret))
            (folder / SIDECARS).mkdir(exist_ok=True)
            (folder / SIDECARS / "used.yaml").write_text(definitions, encoding="utf-8")

    def _renamed(self, path: Path, folder: Path) -> Path:
        """A name may be private too; the script uses the name that ships."""
        shipped = folder / self.shipped_name(str(path.relative_to(folder)))
        shipped.parent.mkdir(parents=True, exist_ok=True)
        return path.rename(shipped)

    @property
    def cwd(self) -> str:
        """Where the command runs, seen from the script; beside it where no file is needed."""
        if self.files is None:
            return "."
        own = self.files.names or self.portable.copied or changed_names(self.plan.bindings)
        return self.home if own else "."

    def _called(self) -> dict[str, Any]:
        """What the workload of a spec is in the folder: the command, or the name of what is run."""
        if self.plan.is_command:
            return {"command": self.command(), "cwd": self.cwd}
        return {"name": self.plan.request.workload}

    def _order(self, placed: Mapping[str, str | Path]) -> WorkloadOrder:
        """What the script asks of the workload: its config, and the predicate of failure."""
        request, oracle = self.plan.request, self.plan.oracle
        steps = {} if request.steps is None else {STEPS: request.steps}
        return WorkloadOrder(
            workload=request.workload,
            result=Path(RESULT_FILE),
            config={**request.config, **steps},
            given={f"{RESERVED_PREFIX}environment": describe_environment(request.environment)},
            trial_env=sorted({**self.plan.base.env, **placed}),
            predicate=oracle.predicate if isinstance(oracle, PythonOracle) else None,
        )

    def command(self) -> str | list[str]:
        """The original command with its number of ranks, without this machine's own paths."""
        parts = self.experiment.command(self._moved[0], self.point)
        return parts[0] if isinstance(self._given, str) else list(parts)

    @property
    def _given(self) -> str | list[str]:
        """The original command."""
        command: str | list[str] = self.plan.request.config.get("command", "")
        return command

    @property
    def portable(self) -> Portable:
        return self._moved[1]

    @cached_property
    def _moved(self) -> tuple[tuple[str, ...], Portable]:
        command, portable = made_portable(argv_of(self._given), self.plan.base.subject.cwd)
        if self.files is not None:
            portable.call_by_name(self.files)
        return command, portable

    @property
    def python(self) -> str | None:
        """The Python that the original runs in, as this machine finds it."""
        environment = self.plan.request.environment
        if environment.isolated or not self.plan.is_command:
            return None
        path = os.pathsep.join([*map(str, self.portable.programs), os.environ.get("PATH", "")])
        if named := python_of((*argv_of(self._given), *self.portable.scripts.values()), path):
            return named
        # A program of Python's own kind lies beside the Python that runs it.
        found = shutil.which(words_of(self._given)[0], path=path)
        if found and (beside := Path(found).parent / "python").is_file():
            return str(beside)
        return shutil.which("python", path=path) if "python" in self._texts else None

    @cached_property
    def requirements(self) -> dict[str, list[str]]:
        if self.files is None:
            return {}
        return requirements([self.files.root / name for name in self.files.names], self.python)

    @property
    def secrets(self) -> dict[str, str]:
        """Variables that whoever runs the script sets: their values do not ship."""
        return secret_variables(dict(self.plan.base.env))

    def still_needed(self) -> list[str]:
        """What of this machine the script cannot do without."""
        if not self.plan.is_command:
            return [f"a Python with aorta and the workload {self.plan.request.workload!r}"]
        return [f"`{path}`" for path in dict.fromkeys([*self.portable.stays, *self.left_out])]

    @property
    def left_out(self) -> list[str]:
        """Files of the original directory that are too large to ship."""
        return [str(self.files.root / name) for name in self.files.left_out] if self.files else []

    def script(self, placed: Mapping[str, str | Path], folder: Path) -> str:
        lines = [
            "#!/usr/bin/env bash",
            (
                "# The smallest run that still fails, found by aorta "
                f"reduce{self.rate and f': {self.rate}'}."
            ),
            *self._needs(),
            "set -euo pipefail",
            'here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"',
            *self._exports(placed, folder),
            *self._go_there(),
            *self._run(),
        ]
        return "\n".join(lines) + "\n"

    def _go_there(self) -> list[str]:
        """Into the workload, with links to what was too large to ship."""
        lines = ['cd "$here"' if self.cwd == "." else f'cd "$here/{WORKLOAD}"']
        if self.files is None or not self.files.left_out:
            return lines
        root = re.sub(r'([\\"$`}])', r"\\\1", str(self.files.root))  # as it stands in quotes
        lines.append(f'original="${{AORTA_WORKDIR:-{root}}}"')
        for name in map(shlex.quote, self.files.left_out):
            found = f'[ -e "$original"/{name} ] && mkdir -p "$(dirname {name})"'
            link = f'{found} && ln -s "$original"/{name} {name}'
            lines.append(f"[ -e {name} ] || {{ {link}; }} || {_or_say('set AORTA_WORKDIR')}")
        return lines

    def _needs(self) -> list[str]:
        environment = self.plan.request.environment
        if environment.kind is RuntimeKind.HOST:
            return []
        what = environment.image or environment.venv or environment.name
        return [f"# It failed inside {environment.kind.value} {what}; run it there."]

    def _exports(self, placed: Mapping[str, str | Path], folder: Path) -> list[str]:
        """Every variable of the point, whatever the caller's environment says."""
        launching = self.experiment.launching(self.point)
        secrets = self.secrets
        values = {**self.plan.base.env, **launching, **placed}
        lines = [
            f'[ -n "${{{name}:-}}" ] || {_or_say(f"set {name}: it is a secret and was taken out")}'
            if name in secrets
            else f"export {name}={self._baked(value, folder)}"
            for name, value in values.items()
        ]
        if not self.plan.is_command or "AORTA_TRIAL_DIR" in self._texts:
            lines.append('export AORTA_TRIAL_DIR="${AORTA_TRIAL_DIR:-$(mktemp -d)}"')
        return lines

    def _baked(self, value: str | Path, folder: Path) -> str:
        if isinstance(value, Path):
            return f'"$here"/{shlex.quote(str(value.relative_to(folder)))}'
        if self.files is None:
            return shlex.quote(value)
        return baked(value, self.files.root, f"$here/{self.home}", shlex.quote)

    @property
    def _texts(self) -> str:
        """The command, and the files that it comes with."""
        files = [self.files.root / name for name in self.files.names] if self.files else []
        return "\n".join([str(self.command()), *(f.read_text("utf-8", "replace") for f in files)])

    def _run(self) -> list[str]:
        if not self.plan.is_command:
            return _RUN_REGISTERED
        lines = self._command_lines()
        oracle = self.plan.oracle
        if not self.ends_well or not isinstance(oracle, RegexOracle):
            return lines
        # It ends well though it fails: what it prints decides.
        streams = {"stdout": "1", "stderr": "2"}.get(oracle.stream, "12")
        watched = f"{shlex.quote(_UNLESS_FOUND)} {streams} {shlex.quote(oracle.pattern)}"
        command = lines[-1].removeprefix("exec ")
        return [*lines[:-1], f'exec "${{PYTHON:-python3}}" -c {watched} {command}']

    def _command_lines(self) -> list[str]:
        command = self.command()
        words = list(map(shlex.quote, command))
        is_python = any(map(_BY_NAME.fullmatch, words_of(command)))
        lines = [_FIND_PROGRAMS]
        if isinstance(command, str):
            words = ["/bin/bash", "-c", shlex.quote(command)]
        if _BY_NAME.fullmatch(words[0]):
            words[0] = '"${PYTHON:-python3}"'
        elif is_python:
            lines.append(_AS_PYTHON)
        return [*lines, f"exec {' '.join(words)}"]


def _or_say(what: str) -> str:
    """127 is what a shell says of a command it cannot run: nobody takes it for the failure."""
    return f'{{ echo "run_repro.sh: {what}" >&2; exit 127; }}'


# Whatever becomes of the reader, and of processes that it leaves behind and that hold its pipes.
_UNLESS_FOUND = """
import os, re, select, signal, subprocess, sys
streams, pattern, *command = sys.argv[1:]
signal.signal(signal.SIGINT, signal.SIG_DFL)
command = ["/bin/bash", "-c", "exec \\"$@\\"", "run_repro.sh", *command]
run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
goes, said = {run.stdout.fileno(): 1, run.stderr.fileno(): 2}, {1: bytearray(), 2: bytearray()}
while goes:
    is_over = run.poll() is not None  # all that it wrote is in the pipes, and they hold no more
    for pipe in select.select([*goes], [], [], 0 if is_over else 0.1)[0]:
        to, data = goes[pipe], os.read(pipe, 1 << 20)
        said[to] += data
        if not data:
            del goes[pipe]
        try:
            while data:
                data = data[os.write(to, data) :]
        except OSError:
            pass  # nobody reads it
    if is_over:
        break
found = any(re.search(os.fsencode(pattern), said[int(one)]) for one in streams)
code = run.wait()
sys.exit(128 - code if code < 0 else code or int(found))
"""
_BY_NAME = re.compile(r"python[\d.]*")
# The programs of that Python are found beside it.
_FIND_PROGRAMS = '[ -z "${PYTHON:-}" ] || export PATH="$(dirname "$PYTHON"):$PATH"'
_AS_PYTHON = 'python() { command "${PYTHON:-python3}" "$@"; }; export -f python'
_SPEC_HEADER = "# What the reduction ended with, in the keys it began with.\n"
_HAS_AORTA = 'import importlib.util as u, sys; sys.exit(not u.find_spec("aorta.workloads.child"))'
_NEEDS_AORTA = "it needs aorta: set PYTHON to a Python that has it"
_RUN_REGISTERED = [
    f"\"${{PYTHON:=python3}}\" -c '{_HAS_AORTA}' || {_or_say(_NEEDS_AORTA)}",
    f'exec "$PYTHON" -m aorta.workloads.child --alone "$here/{ORDER}"',
]
_RECIPE_HEADER = "# Ready to run: aorta triage run --recipe recipe.resolved.yaml\n"


def _without(document: Any, keys: Collection[str]) -> Any:
    """The document without these keys, at any depth."""
    if not isinstance(document, Mapping):
        return document
    return {key: _without(value, keys) for key, value in document.items() if key not in keys}
