"""`aorta diverge`: at which operation do the numbers part?

Two sides of one program (two environments, two revisions, two precisions) run with the same seeds
while a recorder in their own process writes down a digest of every operation's result. The streams
are aligned, and the first operation whose result differs by more than rounding and its inputs
explain is the answer. Two runs of the *same* side come first: what already differs there is
nondeterminism, not divergence.
"""

import sys
from typing import Any


def record(name: str, array: Any) -> None:
    """Record a value of your own under `name`; does nothing where nothing is recorded.

    For what torch does not see: `record("loss", loss)` with a number, a list, an array.
    """
    recorder = sys.modules.get("aorta_recorder")
    if recorder is not None:
        recorder.record_value(name, array)
