"""Runtimes: in what a trial runs.

A runtime turns a trial into a `Launch`: the process an executor starts, the environment it starts it with, and what must
run afterwards however the trial ends. It asks the container engine questions; it never starts the trial itself.
"""

from aorta.runtimes.launch import Launch, metric_file_of
from aorta.runtimes.launching import launch_for
from aorta.runtimes.owner import Owner
from aorta.runtimes.pyxis import srun_options
from aorta.runtimes.sweeping import sweep

__all__ = ["Launch", "Owner", "launch_for", "metric_file_of", "srun_options", "sweep"]
