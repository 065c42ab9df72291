"""The installed packages that the Python files of a reproducer import, in the releases that they
had when it failed.
"""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

_ASK = """\
import importlib.metadata as m, json
print(json.dumps({n: [[d, m.version(d)] for d in sorted(set(ds))]
                  for n, ds in m.packages_distributions().items()}))
"""
_SECONDS = 60


def requirements(files: Sequence[Path], python: str | None) -> dict[str, list[str]]:
    """By the module that is imported: the packages that bring it, as `name==version`. Without the
    standard library and the files themselves; empty where that Python does not say what it has.
    """
    own = {file.stem for file in files} | {file.parent.name for file in files}
    wanted = {name for file in files for name in _imported(file)} - own - sys.stdlib_module_names
    installed = _installed(python) if python and wanted else {}
    return {
        name: [f"{package}=={version}" for package, version in installed[name]]
        for name in sorted(wanted & installed.keys())
    }


def requirements_text(found: Mapping[str, Sequence[str]]) -> str:
    """As a `requirements.txt`, one package a line."""
    return "".join(f"{line}\n" for line in sorted({line for one in found.values() for line in one}))


def _imported(file: Path) -> Iterator[str]:
    """The packages at the top of what a file imports; of one that does not parse, none."""
    if file.suffix != ".py":
        return
    try:
        tree = ast.parse(file.read_text("utf-8", "replace"))
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@lru_cache(4)
def _installed(python: str) -> dict[str, list[tuple[str, str]]]:
    """By what is imported: the packages that bring it, with their versions."""
    try:
        done = subprocess.run(
            (python, "-c", _ASK), capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        return dict(json.loads(done.stdout))
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return {}
