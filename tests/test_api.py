"""The Python interface: what docs/api.md shows runs, and the public names are those it says."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import aorta
from support.aorta_cli import ROOT

if TYPE_CHECKING:  # mypy, which also refuses an `ignore` that hides nothing, is the test of these
    import aorta.reduce.spec

    reduced: aorta.ReduceReport = aorta.reduce(spec=Path("aorta.yaml"), max_trials=3)
    counted: aorta.RunReport = aorta.run(command=("true",), trials=2)
    aorta.reduce(spek=Path("aorta.yaml"))  # type: ignore[call-arg]
    aorta.run(trials="two")  # type: ignore[arg-type]
    aorta.bisect(executor=aorta.ExecutorChoice("slurm", resources=aorta.Resources(nodes=2)))

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w.]+\.\w+)\n")
SRC = ROOT / "src"


def blocks() -> Iterator[tuple[str | None, str]]:
    """The name of the file, for a block that begins with one, and the text."""
    for _, text in _BLOCK.findall((ROOT / "docs/api.md").read_text(encoding="utf-8")):
        named = _FILE.match(text)
        yield (named[1] if named else None), text


def test_every_example_of_the_python_interface_runs(tmp_path: Path) -> None:
    parts = list(blocks())
    for name, text in parts:
        if name is not None:
            (tmp_path / name).write_text(text, encoding="utf-8")
    examples = [text for name, text in parts if name is None]
    assert len(examples) >= 10
    (tmp_path / "examples.py").write_text("\n".join(examples), encoding="utf-8")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "examples.py"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def in_a_fresh_process(program: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_aorta_imports_no_room() -> None:
    program = "import sys, aorta; print(sorted(m for m in sys.modules if m.startswith('aorta')))"
    assert in_a_fresh_process(program) == "['aorta', 'aorta.version']"


# What `aorta` itself imports is loaded once; each way is then gone in a fork of it that has
# imported nothing of ours.
_EACH_BY_ITSELF = """
import os, sys
import click, pydantic, yaml
for number, before in enumerate(sys.argv[2:]):
    if (child := os.fork()) == 0:
        exec(f"{before}\\nimport aorta")
        ended = aorta.run(command=("true",), results_dir=f"{sys.argv[1]}/{number}")
        print(repr(before), ended.exit_code.name, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_a_verb_is_a_function_however_its_package_was_imported(tmp_path: Path) -> None:
    ways = [
        "",
        "import aorta.run.request",
        "from aorta.run import request",
        "from aorta import run",
    ]
    said = in_a_fresh_process(_EACH_BY_ITSELF, str(tmp_path), *ways)
    assert said.splitlines() == [f"{before!r} OK" for before in ways]


def test_the_public_names_are_all_there_and_no_others_are_shown() -> None:
    assert sorted(aorta.__all__) == dir(aorta)
    for name in aorta.__all__:
        assert getattr(aorta, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'spec'"):
        _ = aorta.spec  # type: ignore[attr-defined]


def test_every_public_name_is_told_of_in_the_documentation() -> None:
    text = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    untold = [name for name in aorta.__all__ if not re.search(rf"\b{name}\b", text)]
    assert untold == []


def test_a_type_checker_is_told_of_every_verb() -> None:
    tree = ast.parse((SRC / "aorta/__init__.py").read_text(encoding="utf-8"))
    told = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    functions = {name for name in aorta.__all__ if name.islower() and name != "__version__"}
    assert told == functions
