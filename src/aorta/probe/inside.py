"""How to take the snapshot of a container's inside: what to mount there, and what to run."""

from pathlib import Path

_MOUNTED_AT = "/opt/aorta-probe"

# The package goes to the end of the path, so that it shadows nothing of the image's own.
_PROGRAM = (
    "import runpy, sys; "
    f"sys.path.append({_MOUNTED_AT!r}); "
    "sys.argv = ['aorta.probe', *sys.argv[1:]]; "
    "runpy.run_module('aorta.probe', run_name='__main__')"
)


def probe_mount() -> str:
    """SOURCE:DESTINATION:ro of this package alone, not of the directory that holds everything installed here."""
    return f"{Path(__file__).resolve().parent.parent}:{_MOUNTED_AT}/aorta:ro"


def probe_argv(python: str = "python3") -> tuple[str, ...]:
    """Prints env.json on stdout. Bytecode is not written: the mount is read-only."""
    return (python, "-B", "-c", _PROGRAM)
