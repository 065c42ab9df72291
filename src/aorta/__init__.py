"""Aorta takes a training job that fails and brings back what failed, why, and a small reproducer.

`aorta.api` holds every verb as a function; importing this package imports nothing else of it.
"""

from aorta.version import __version__

__all__ = ["__version__"]
