"""Executors: where trials run.

An executor has a number of slots, starts a trial in a free one, says when trials end, and cancels
one on request. It reports facts (`TrialEnd`) and never decides what they mean. Whatever happens to
it, no process outlives it.
"""

TYPE_CHECKING = False  # a supervisor is of this room and needs neither `typing` nor what a trial is
if TYPE_CHECKING:
    from aorta.executors.protocols import Executor, WarmExecutor

__all__ = ["Executor", "WarmExecutor"]


if not TYPE_CHECKING:  # a checker would believe that every name is there

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'aorta.executors' has no attribute {name!r}")
        from aorta.executors import protocols

        return getattr(protocols, name)
