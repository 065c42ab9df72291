"""Aorta takes a training job that fails and brings back what failed, why, and a small reproducer.

The names in `__all__` are the public interface (docs/api.md); everything else is private. Importing
this package imports nothing else of it: every room is loaded when it is used.
"""

from aorta.version import __version__

TYPE_CHECKING = False  # as `typing` has it, which a user's process need not load for us
if TYPE_CHECKING:
    from aorta._verbs import verb
    from aorta.attribution.nouns import Attribution
    from aorta.attribution.request import AttributeRequest
    from aorta.attribution.request import attribute as _attribute
    from aorta.bisect.findings import Findings
    from aorta.bisect.request import BisectRequest, ContainerOptions, EnvironmentOptions
    from aorta.bisect.request import bisect as _bisect
    from aorta.bundle.request import BundleReport, BundleRequest
    from aorta.bundle.request import bundle as _bundle
    from aorta.core.errors import AortaError, Exit
    from aorta.core.oracle import ExitCodeOracle, HangOracle, MetricOracle, RegexOracle
    from aorta.core.trial import Resources
    from aorta.diverge.output import DivergeReport
    from aorta.diverge.request import DivergeRequest
    from aorta.diverge.request import diverge as _diverge
    from aorta.engine.session import Resume
    from aorta.executors.choosing import ExecutorChoice
    from aorta.reduce.report import ReduceReport
    from aorta.reduce.request import ReduceRequest
    from aorta.reduce.request import reduce as _reduce
    from aorta.registry.environments import EnvironmentLayers
    from aorta.run.request import RunReport, RunRequest
    from aorta.run.request import run as _run
    from aorta.solve.request import SolveRequest
    from aorta.solve.request import solve as _solve
    from aorta.solve.solution import Solution
    from aorta.triage.optimize import StackReport
    from aorta.triage.request import TriageRequest
    from aorta.triage.request import triage as _triage
    from aorta.triage.running import MatrixReport

    # A verb more is a line here, one in _VERBS and one in __all__.
    attribute = verb(AttributeRequest, _attribute)
    bisect = verb(BisectRequest, _bisect)
    bundle = verb(BundleRequest, _bundle)
    diverge = verb(DivergeRequest, _diverge)
    reduce = verb(ReduceRequest, _reduce)
    run = verb(RunRequest, _run)
    solve = verb(SolveRequest, _solve)
    triage = verb(TriageRequest, _triage)

_VERBS = ("attribute", "bisect", "bundle", "diverge", "reduce", "run", "solve", "triage")
_TYPES = {
    "AortaError": "aorta.core.errors",
    "Attribution": "aorta.attribution.nouns",
    "BundleReport": "aorta.bundle.request",
    "ContainerOptions": "aorta.bisect.request",
    "DivergeReport": "aorta.diverge.output",
    "EnvironmentLayers": "aorta.registry.environments",
    "EnvironmentOptions": "aorta.bisect.request",
    "ExecutorChoice": "aorta.executors.choosing",
    "Exit": "aorta.core.errors",
    "ExitCodeOracle": "aorta.core.oracle",
    "Findings": "aorta.bisect.findings",
    "HangOracle": "aorta.core.oracle",
    "MatrixReport": "aorta.triage.running",
    "MetricOracle": "aorta.core.oracle",
    "ReduceReport": "aorta.reduce.report",
    "RegexOracle": "aorta.core.oracle",
    "Resources": "aorta.core.trial",
    "Resume": "aorta.engine.session",
    "RunReport": "aorta.run.request",
    "Solution": "aorta.solve.solution",
    "StackReport": "aorta.triage.optimize",
}

__all__ = [
    "AortaError",
    "Attribution",
    "BundleReport",
    "ContainerOptions",
    "DivergeReport",
    "EnvironmentLayers",
    "EnvironmentOptions",
    "ExecutorChoice",
    "Exit",
    "ExitCodeOracle",
    "Findings",
    "HangOracle",
    "MatrixReport",
    "MetricOracle",
    "ReduceReport",
    "RegexOracle",
    "Resources",
    "Resume",
    "RunReport",
    "Solution",
    "StackReport",
    "__version__",
    "attribute",
    "bisect",
    "bundle",
    "diverge",
    "reduce",
    "run",
    "solve",
    "triage",
]


if not TYPE_CHECKING:  # a checker would believe that every name is there

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _TYPES:
            return getattr(import_module(_TYPES[name]), name)
        if name == "attribute":  # the one verb that is not called like the package of its room
            from aorta._verbs import call

            return lambda **fields: call("attribute", fields)
        if name in _VERBS:
            return import_module(f"aorta.{name}")
        raise AttributeError(f"module 'aorta' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
