"""What exactly is this machine? One snapshot, without touching a device and without ever failing.

Standard library only: `python -m aorta.probe` runs inside any container that has a Python.
"""

from aorta.probe.snapshot import EnvSnapshot, collect_env

__all__ = ["EnvSnapshot", "collect_env"]
