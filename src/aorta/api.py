"""Every verb as a typed function: `from aorta import api; api.reduce(spec="aorta.yaml")`.

The arguments of a verb are the fields of its request, which are the options of its command line;
they are checked before anything runs, and a wrong one raises `AortaError` with one line. What comes
back is the verb's report. The names in `__all__` are the public interface (docs/api.md).

    >>> from aorta import api
    >>> api.run(command=("false",), trials=2).tally.reproduced
    2
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from aorta.attribution import AttributeRequest, Attribution, attribute_request
from aorta.bisect.findings import Findings
from aorta.bisect.request import BisectRequest
from aorta.bisect.request import bisect as _bisect
from aorta.bundle.archive import BundleReport
from aorta.bundle.request import BundleRequest
from aorta.bundle.request import bundle as _bundle
from aorta.core.documents import validated_arguments
from aorta.core.errors import AortaError, Exit
from aorta.core.failure import Failure, Sameness, same_failure
from aorta.core.oracle import ExitCodeOracle, HangOracle, MetricOracle, RegexOracle
from aorta.core.trial import Resources
from aorta.diverge.output import DivergeReport
from aorta.diverge.request import DivergeRequest
from aorta.diverge.running import diverge as _diverge
from aorta.engine.session import Resume
from aorta.executors.choosing import ExecutorChoice
from aorta.isolate.request import IsolateReport, IsolateRequest
from aorta.isolate.request import isolate as _isolate
from aorta.reduce.report import ReduceReport
from aorta.reduce.request import ReduceRequest
from aorta.reduce.request import reduce as _reduce
from aorta.registry.environments import EnvironmentLayers
from aorta.report.building import write_page
from aorta.run.request import RunReport, RunRequest
from aorta.run.request import run as _run
from aorta.solve.request import SolveRequest
from aorta.solve.running import solve as _solve
from aorta.solve.solution import Solution
from aorta.triage.matrix import MatrixReport
from aorta.triage.optimize import StackReport
from aorta.triage.request import TriageRequest
from aorta.triage.running import triage as _triage

__all__ = [
    "AortaError",
    "Attribution",
    "BundleReport",
    "DivergeReport",
    "EnvironmentLayers",
    "ExecutorChoice",
    "Exit",
    "ExitCodeOracle",
    "Failure",
    "Findings",
    "HangOracle",
    "IsolateReport",
    "MatrixReport",
    "MetricOracle",
    "ReduceReport",
    "RegexOracle",
    "Resources",
    "Resume",
    "RunReport",
    "Sameness",
    "Solution",
    "StackReport",
    "attribute",
    "bisect",
    "bundle",
    "diverge",
    "isolate",
    "reduce",
    "report",
    "run",
    "same_failure",
    "solve",
    "triage",
]

Fields = ParamSpec("Fields")
RequestT = TypeVar("RequestT")
ReportT = TypeVar("ReportT")


def _verb(
    request: Callable[Fields, RequestT], answer: Callable[[RequestT], ReportT]
) -> Callable[Fields, ReportT]:
    """`answer` as a function of the fields of its request; raises `AortaError` for wrong ones."""
    name = answer.__name__

    def called(*args: Fields.args, **kwargs: Fields.kwargs) -> ReportT:
        kind = cast("type[Any]", request)
        return answer(validated_arguments(kind, kwargs, where=f"api.{name}"))

    called.__name__ = called.__qualname__ = name
    called.__doc__ = answer.__doc__
    returned = inspect.signature(answer).return_annotation
    fields = inspect.signature(request).replace(return_annotation=returned)
    vars(called)["__signature__"] = fields
    called.__annotations__ = {p.name: p.annotation for p in fields.parameters.values()}
    called.__annotations__["return"] = returned
    return called


attribute = _verb(AttributeRequest, attribute_request)
bisect = _verb(BisectRequest, _bisect)
bundle = _verb(BundleRequest, _bundle)
diverge = _verb(DivergeRequest, _diverge)
isolate = _verb(IsolateRequest, _isolate)
reduce = _verb(ReduceRequest, _reduce)
run = _verb(RunRequest, _run)
solve = _verb(SolveRequest, _solve)
triage = _verb(TriageRequest, _triage)


def report(*, run_dir: Path | str, output: Path | str | None = None) -> Path:
    """Write the HTML page of a run directory; where it is, by default `RUN_DIR/report.html`."""
    place = Path(output) if output is not None else Path(run_dir) / "report.html"
    write_page(Path(run_dir), place)
    return place
