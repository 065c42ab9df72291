"""Imported at the start of every Python process of a recorded run; recording begins with torch.

It stays on the path for child processes (ranks), loads the user's own `sitecustomize`, and imports
nothing heavy. A process without torch is recorded only where it calls `aorta.diverge.record`.
"""

import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

_HERE = str(Path(__file__).parent)


class _AfterTorch:
    """Finds torch as everybody else would, and starts the recorder once it is whole."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> object:
        if name != "torch":
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        found = importlib.util.find_spec(name)
        if found is not None and found.loader is not None:
            run = found.loader.exec_module

            def run_and_start(module: ModuleType) -> None:
                run(module)
                importlib.import_module("aorta_recorder_torch").start()

            found.loader.exec_module = run_and_start  # type: ignore[method-assign]
        return found


def _load_the_users_own() -> None:
    elsewhere = [entry for entry in sys.path if entry != _HERE]
    found: ModuleSpec | None = PathFinder.find_spec("sitecustomize", elsewhere)
    if found is not None and found.loader is not None:
        sys.modules["sitecustomize"] = own = importlib.util.module_from_spec(found)
        found.loader.exec_module(own)


if _HERE in sys.path:
    _load_the_users_own()
if "AORTA_DIVERGE" in os.environ:
    importlib.import_module("aorta_recorder").begin_from_environment()
    sys.meta_path.insert(0, _AfterTorch())  # type: ignore[arg-type]
