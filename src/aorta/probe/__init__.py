"""What exactly is this machine? One snapshot, taken without touching a device and without ever
failing.

Each module asks about one concern, through a `Machine`, and answers with what it found and with a
line for what it could not find. The package imports the standard library alone, so that `python -m
aorta.probe` runs inside any container that has a Python: it is mounted there as it stands here.
"""

from aorta.probe.snapshot import EnvSnapshot, collect_env

__all__ = ["EnvSnapshot", "collect_env"]
