"""Runs at the start of every Python process of a recorded run: the recorder starts as soon as torch
is imported.

Python imports `sitecustomize` at start. This one stays on the path for the processes that this one
starts (ranks), loads the user's own if there is one, and imports nothing heavy: a process without
torch is recorded only where it calls `aorta.diverge.record`.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

_HERE = str(Path(__file__).parent)


class _AfterTorch(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds torch as everybody else would, and starts the recorder once it is whole."""

    def __init__(self) -> None:
        self._found: importlib.machinery.ModuleSpec | None = None

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch" or self._found is not None:
            return None
        sys.meta_path.remove(self)
        self._found = importlib.util.find_spec("torch")
        if self._found is None or self._found.loader is None:
            return None
        return importlib.util.spec_from_file_location(
            "torch",
            self._found.origin,
            loader=self,
            submodule_search_locations=self._found.submodule_search_locations,
        )

    def create_module(self, _spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        assert self._found is not None
        assert self._found.loader is not None
        self._found.loader.exec_module(module)
        importlib.import_module("aorta_recorder_torch").start(module)


def _load_the_users_own() -> None:
    this = sys.modules.pop("sitecustomize")
    place = sys.path.index(_HERE)
    sys.path.remove(_HERE)
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as missing:
        if missing.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = this
    finally:
        sys.path.insert(place, _HERE)


if _HERE in sys.path:
    _load_the_users_own()
if "AORTA_DIVERGE" in os.environ:
    importlib.import_module("aorta_recorder").begin_from_environment()
    sys.meta_path.insert(0, _AfterTorch())
