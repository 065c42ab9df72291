"""The Python interface: what docs/api.md shows runs, and the public names are those it says."""

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, get_type_hints

import pytest

from aorta import api
from support.aorta_cli import ROOT

if TYPE_CHECKING:  # mypy, which also refuses an `ignore` that hides nothing, is the test of these
    reduced: api.ReduceReport = api.reduce(spec=Path("aorta.yaml"), max_trials=3)
    counted: api.RunReport = api.run(command=("true",), trials=2)
    api.reduce(spek=Path("aorta.yaml"))  # type: ignore[call-arg]
    api.run(trials="two")  # type: ignore[arg-type]
    api.bisect(executor=api.ExecutorChoice("slurm", resources=api.Resources(nodes=2)))

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


def test_importing_aorta_imports_no_verb() -> None:
    program = "import sys, aorta; print(sorted(m for m in sys.modules if m.startswith('aorta')))"
    assert in_a_fresh_process(program) == "['aorta', 'aorta.version']"


def test_the_public_names_are_all_there_and_each_verb_shows_its_arguments() -> None:
    for name in api.__all__:
        assert getattr(api, name) is not None
    assert "max_trials" in inspect.signature(api.reduce).parameters
    assert "trials" in inspect.signature(api.run).parameters


def test_every_verb_says_what_comes_back_as_its_type() -> None:
    returned = {
        "attribute": api.Attribution,
        "bisect": api.Findings,
        "bundle": api.BundleReport | None,
        "diverge": api.DivergeReport,
        "isolate": api.IsolateReport,
        "reduce": api.ReduceReport,
        "report": Path,
        "run": api.RunReport,
        "solve": api.Solution,
        "triage": api.MatrixReport | api.StackReport,
    }
    for name, kind in returned.items():
        verb = getattr(api, name)
        assert inspect.signature(verb).return_annotation == kind, name
        assert get_type_hints(verb)["return"] == kind, name
        assert get_type_hints(verb).keys() - {"return"} == inspect.signature(verb).parameters.keys()


def test_a_wrong_argument_is_one_line_and_nothing_is_run(tmp_path: Path) -> None:
    with pytest.raises(api.AortaError, match=r"api\.run: unknown argument 'trails'"):
        api.run(command=("true",), trails=2, results_dir=tmp_path)  # type: ignore[call-arg]
    with pytest.raises(api.AortaError, match="--trials: found 0, expected at least 1"):
        api.run(command=("true",), trials=0, results_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_report_is_written_where_it_says(tmp_path: Path) -> None:
    done = api.run(command=("true",), results_dir=tmp_path)
    assert "<html" in api.report(run_dir=done.run_dir).read_text(encoding="utf-8")


def test_every_public_name_is_named_in_the_documentation() -> None:
    text = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    untold = [name for name in api.__all__ if not re.search(rf"\b{name}\b", text)]
    assert untold == []
