"""Runs the child (`bootstrap.py ORDER.json`) or the probe (`--probe`) where aorta is not installed.

Exposes this one package: with our site-packages on the path a container would import our torch.
"""

import importlib.util
import runpy
import sys
from pathlib import Path


def expose_aorta(package: Path) -> None:
    spec = importlib.util.spec_from_file_location(
        "aorta", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"no package at {package}")
    module = importlib.util.module_from_spec(spec)
    sys.modules["aorta"] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    sys.path[0] = ""  # as for `python -m`: the workload's own modules lie in the working directory
    expose_aorta(Path(__file__).resolve().parent.parent)
    child = "aorta.workloads.child"
    if sys.argv[1:] == ["--probe"]:
        sys.argv.pop()
        child = "aorta.probe.__main__"
    runpy.run_module(child, run_name="__main__", alter_sys=True)
