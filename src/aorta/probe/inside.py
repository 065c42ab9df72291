"""How to take the snapshot of another environment from its inside: what to mount there, and what to run."""

from pathlib import Path

_HERE = str(
    Path(__file__).resolve().parent.parent
)  # the package `aorta`, and nothing that is installed beside it
_MOUNTED_AT = "/opt/aorta-probe/aorta"

# The package is loaded from its directory. Put on the path, that directory's neighbours would look as if they were
# installed in the environment that is asked about.
_PROGRAM = """
import importlib.util, runpy, sys
spec = importlib.util.spec_from_file_location(
    "aorta", {place!r} + "/__init__.py", submodule_search_locations=[{place!r}]
)
sys.modules["aorta"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["aorta"])
runpy.run_module("aorta.probe", run_name="__main__")
"""


def probe_mount() -> str:
    """SOURCE:DESTINATION:ro for a container."""
    return f"{_HERE}:{_MOUNTED_AT}:ro"


def probe_argv(*, mounted: bool = True) -> tuple[str, ...]:
    """Prints env.json on stdout, by the environment's own python3; `mounted` where `probe_mount` is in effect."""
    return ("python3", "-B", "-c", _PROGRAM.format(place=_MOUNTED_AT if mounted else _HERE))
