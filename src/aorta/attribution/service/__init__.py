"""The attribution service (extra `service`): agents report a failed cycle, one analysis answers.

Two HTTP interfaces: its own (`/v1`, health, metrics), and that of NVIDIA's resiliency extension
(`/logs`), whose launcher works unchanged. That one names a cycle by its log, and reports the end
before the last lines are written: the log is read three seconds later.
"""

import hashlib
import logging
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import generate_latest
from pydantic import BaseModel, Field
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from aorta.attribution.server import (
    ERROR_RESPONSES,
    ApiError,
    Guard,
    PathJail,
    PathRefusedError,
    RateLimit,
)
from aorta.attribution.service.analyses import Analyses, CycleReport, Id, Metrics, Workers
from aorta.attribution.service.store import CycleKey, Store
from aorta.version import __version__

LONGEST_WAIT = 60.0
_JobId = Annotated[Id, PathParameter()]
_CycleId = Annotated[Id, PathParameter()]
_logger = logging.getLogger(__name__)


class Accepted(BaseModel):
    job_id: str
    cycle_id: str
    status: Literal["pending", "decided"]
    duplicate: bool  # this very report was there already


class DecisionAnswer(BaseModel):
    status: Literal["pending", "decided"]
    decision: dict[str, Any] | None = None
    finding: dict[str, Any] | None = None


def create_app(
    roots: Sequence[Path],
    database: str,
    token: str | None,
    rate_limit: float,
    no_progress_limit: int,
) -> Guard:
    """`database`: a URL, or a file of SQLite; `rate_limit`: requests a second of one address."""
    url = database if "://" in database else f"sqlite:///{Path(database).resolve()}"
    store, jail, metrics = Store(url), PathJail(roots), Metrics()
    analyses = Analyses(store, Workers(jail, no_progress_limit), metrics)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await analyses.start()
        yield
        await analyses.close()
        store.close()

    app = FastAPI(title="Aorta attribution", version=__version__, lifespan=lifespan)
    for kind in _REFUSALS:
        app.add_exception_handler(kind, _refused)
    app.include_router(_routes(store, jail, analyses, metrics))
    app.include_router(_peer_routes(jail, analyses))
    return Guard(app, token=token, limit=RateLimit(rate_limit))


def _routes(store: Store, jail: PathJail, analyses: Analyses, metrics: Metrics) -> APIRouter:
    routes = APIRouter(responses=ERROR_RESPONSES)

    @routes.post("/v1/cycles", status_code=202)
    async def report_cycle(report: CycleReport) -> Accepted:
        """Report what one agent knows about a failed cycle. Repeating a report changes nothing."""
        for path in report.log_paths:
            jail.check_name(path)
        decided, duplicate = await analyses.report(report)
        return Accepted(
            job_id=report.job_id,
            cycle_id=report.cycle_id,
            status="decided" if decided else "pending",
            duplicate=duplicate,
        )

    @routes.get("/v1/cycles/{job_id}/{cycle_id}/decision")
    async def read_decision(
        job_id: _JobId,
        cycle_id: _CycleId,
        wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT)] = 0.0,
    ) -> DecisionAnswer:
        """The decision, the moment it is known; `pending` when `wait` seconds were not enough."""
        answer = await analyses.answer(CycleKey(job_id, cycle_id), wait)
        return DecisionAnswer(status="pending" if answer is None else "decided", **(answer or {}))

    @routes.get("/healthz")
    async def health() -> dict[str, Any]:
        issues = ["the database refuses"] if store.refuses else []
        status = "degraded" if issues else "ok"
        return {"status": status, "backend": "lib", "issues": issues, "version": __version__}

    @routes.get("/metrics", response_class=Response)
    async def read_metrics() -> Response:
        text = generate_latest(metrics.registry)
        return Response(text, media_type="text/plain; version=0.0.4")

    return routes


async def _refused(_request: Request, error: Exception) -> Response:
    """The answer for what could not be served, without what the caller or the database said."""
    match error:
        case PathRefusedError():
            status = 400 if error.code == "invalid_path" else 403
            error = ApiError(status, error.code, error.message)
        case SQLAlchemyError():
            _logger.warning("the database refuses (%s)", type(error).__name__)
            message = "nothing can be kept at the moment; try again in a second"
            error = ApiError(503, "store_unavailable", message)
        case HTTPException():  # of the framework: no such route or method, no readable body
            codes = {400: "malformed", 404: "not_found", 405: "method_not_allowed"}
            code = codes.get(error.status_code, "refused")
            response = ApiError(error.status_code, code, error.detail).response()
            response.headers.update(error.headers or {})
            return response
        case RequestValidationError():
            keys = ("loc", "msg", "type")
            details = [{key: problem[key] for key in keys} for problem in error.errors()]
            return JSONResponse({"detail": details}, 422)
    assert isinstance(error, ApiError)
    return error.response()


_REFUSALS = (ApiError, PathRefusedError, SQLAlchemyError, HTTPException, RequestValidationError)


# ---- the wire of NVIDIA's resiliency extension

_PEER_WAIT = 60.0
_CYCLE_IN_NAME = re.compile(r"_cycle(\d+)(?=\.|$)")
_AnyPath = Annotated[str, Field(min_length=1, max_length=4096)]  # a bad one is a 400 on this wire


class LogSubmission(BaseModel):
    """Its other fields (user, job_id, cycle_id) are not needed: the path says which log it is."""

    log_path: _AnyPath
    analysis_intent: Literal["track_only", "progressive", "terminal"] = "terminal"


def _peer_routes(jail: PathJail, analyses: Analyses) -> APIRouter:
    routes = APIRouter(responses=ERROR_RESPONSES)

    @routes.post("/logs")
    async def submit_log(submission: LogSubmission) -> dict[str, Any]:
        """Report a cycle's log. Only a `terminal` one is finished and analysed at once."""
        path = Path("/".join(jail.check_name(submission.log_path)))
        finished = submission.analysis_intent == "terminal"
        if finished:
            await analyses.report(_report_of(path), growing=True)
        return {
            "submitted": True,
            "normalized_path": str(path),
            "mode": "single" if finished else "pending",
        }

    @routes.get("/logs")
    async def read_log_result(
        log_path: Annotated[_AnyPath, Query()],
        wait: Annotated[bool, Query()] = True,  # as the peer does
        wl_restart: Annotated[int | None, Query(ge=0, lt=1 << 31)] = None,
    ) -> dict[str, Any]:
        """The result for a log; asking for one starts its analysis."""
        report = _report_of(Path("/".join(jail.check_name(log_path))))
        key = CycleKey(report.job_id, report.cycle_id)
        answer = await analyses.answer(key)
        if answer is None:
            await analyses.report(report, growing=True)
            answer = await analyses.answer(key, _PEER_WAIT if wait else 0.0)
        return _peer_result(answer, wl_restart or 0)

    return routes


def _report_of(path: Path) -> CycleReport:
    """The logs of one job differ in their cycle number alone."""
    number = _CYCLE_IN_NAME.search(path.name)
    prefix = path.with_name(_CYCLE_IN_NAME.sub("", path.name))
    job = "log-" + hashlib.sha256(str(prefix).encode()).hexdigest()[:16]
    cycle = number[1] if number else "0"
    return CycleReport(job_id=job, cycle_id=cycle, agent="launcher", log_paths=[str(path)])


def _peer_result(answer: dict[str, Any] | None, wl_restart: int) -> dict[str, Any]:
    pending = {"action": "UNKNOWN", "reason": "the analysis is not finished"}
    decision = pending if answer is None else answer["decision"]
    return {
        "result": answer or {},  # what else was found, in our own form
        "status": "in_flight" if answer is None else "completed",
        "wl_restart": wl_restart,
        "recommendation": {"source": "aorta", **decision},
    }
