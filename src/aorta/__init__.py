"""Aorta takes a training job that fails and brings back what failed, why, and a small reproducer.

Importing this package imports nothing else: every room is loaded when it is used.
"""

from aorta.version import __version__

__all__ = ["__version__"]
