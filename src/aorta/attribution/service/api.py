"""The service's own wire: `/v1`, health and metrics."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from aorta.attribution.jail import PathJail, PathRefusedError
from aorta.attribution.service import worker
from aorta.attribution.service.analyses import Analyses
from aorta.attribution.service.guard import ApiError, Guard, RateLimit
from aorta.attribution.service.lanes import Lanes
from aorta.attribution.service.metrics import Metrics
from aorta.attribution.service.models import (
    Accepted,
    CycleReport,
    CycleSummary,
    DecisionAnswer,
    ErrorBody,
    Health,
    Id,
    JobHistory,
    JobList,
    JobSummary,
)
from aorta.attribution.service.peer import LogSubmission, PeerWire, peer_routes
from aorta.attribution.service.queries import CycleKey
from aorta.attribution.service.settings import Settings
from aorta.attribution.service.store import Store
from aorta.attribution.service.straight import StraightWay, Taker
from aorta.version import __version__

LONGEST_WAIT = 60.0
_JobId = Annotated[Id, Path()]
_CycleId = Annotated[Id, Path()]
_ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": ErrorBody} for code in (400, 401, 403, 404, 413, 429, 503)
}
_logger = logging.getLogger(__name__)
_Body = TypeVar("_Body", bound=BaseModel)
_REFUSALS = (ValidationError, PathRefusedError, ApiError, SQLAlchemyError)


class Wire:
    """What can be asked of the service, apart from how HTTP spells it."""

    def __init__(self, store: Store, jail: PathJail, analyses: Analyses) -> None:
        self.store, self.jail, self.analyses = store, jail, analyses

    async def report(self, report: CycleReport) -> Accepted:
        for path in report.log_paths:
            self.jail.admit(path)
        decided, duplicate = await self.analyses.report(report)
        return Accepted(
            job_id=report.job_id,
            cycle_id=report.cycle_id,
            status="decided" if decided else "pending",
            duplicate=duplicate,
        )


def create_app(settings: Settings) -> Guard:
    store, metrics = Store(settings.database_url), Metrics()
    jail = PathJail(settings.allowed_roots)
    lanes = Lanes(jail, worker.AnalysisRules(settings.no_progress_limit, settings.adviser))
    analyses = Analyses(store, lanes, metrics)
    wire, peer = Wire(store, jail, analyses), PeerWire(store, jail, analyses)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await analyses.start()
        yield
        await analyses.close()
        store.close()

    app = FastAPI(title="Aorta attribution", version=__version__, lifespan=lifespan)
    app.add_exception_handler(ApiError, _refused)
    app.add_exception_handler(PathRefusedError, _path_refused)
    app.add_exception_handler(SQLAlchemyError, _store_refused)
    app.add_exception_handler(HTTPException, _not_served)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.include_router(_routes(wire, metrics))
    app.include_router(peer_routes(peer))
    takers = {
        "/v1/cycles": (202, _taker(CycleReport, wire.report)),
        "/logs": (200, _taker(LogSubmission, peer.submit)),
    }
    straight = StraightWay(app, takers)
    return Guard(straight, token=settings.token, limit=RateLimit(settings.rate_limit))


def _taker(body: type[_Body], answer: Callable[[_Body], Awaitable[BaseModel]]) -> Taker:
    """`answer` for the straight way, which leaves everything that is refused to the routes below."""

    async def take(data: bytes) -> bytes | None:
        try:
            taken = await answer(body.model_validate_json(data))
        except _REFUSALS:
            return None
        return taken.model_dump_json().encode()

    return take


def _routes(wire: Wire, metrics: Metrics) -> APIRouter:
    routes = APIRouter(responses=_ERRORS)

    @routes.post("/v1/cycles", status_code=202)
    async def report_cycle(report: CycleReport) -> Accepted:
        """Report what one agent knows about a failed cycle. Repeating a report changes nothing."""
        return await wire.report(report)

    @routes.get("/v1/cycles/{job_id}/{cycle_id}/decision")
    async def read_decision(
        job_id: _JobId,
        cycle_id: _CycleId,
        wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT)] = 0.0,
    ) -> DecisionAnswer:
        """The decision, the moment it is known; `pending` when `wait` seconds were not enough."""
        return _answer(await wire.analyses.answer(CycleKey(job_id, cycle_id), wait))

    @routes.get("/v1/jobs")
    async def list_jobs(
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        after: Annotated[str, Query(max_length=200, pattern=r"^[ -~]*$")] = "",
    ) -> JobList:
        """Jobs by name; `after` is the last name of the page before."""
        rows = await asyncio.wrap_future(wire.store.jobs(limit, after))
        return JobList(jobs=[JobSummary(**row) for row in rows])

    @routes.get("/v1/jobs/{job_id}")
    async def read_job(job_id: _JobId) -> JobHistory:
        """All cycles of a job, oldest first."""
        rows = await asyncio.wrap_future(wire.store.cycles_of(job_id))
        if not rows:
            raise ApiError(404, "not_found", "nobody has reported a cycle of this job")
        cycles = [
            CycleSummary(
                cycle_id=row.key.cycle_id,
                created=row.created,
                decided_at=row.decided,
                **_answer(row.answer).model_dump(),
            )
            for row in rows
        ]
        return JobHistory(job_id=job_id, cycles=cycles)

    @routes.get("/healthz")
    async def health() -> Health:
        issues = ["the database refuses"] if wire.store.refuses else []
        status: Literal["ok", "degraded"] = "degraded" if issues else "ok"
        return Health(status=status, backend="lib", issues=issues, version=__version__)

    @routes.get("/metrics", response_class=Response)
    async def read_metrics() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    return routes


def _answer(answer: dict[str, Any] | None) -> DecisionAnswer:
    if answer is None:
        return DecisionAnswer(status="pending", decision=None, finding=None)
    return DecisionAnswer(
        status="decided", decision=answer["decision"], finding=answer.get("finding")
    )


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def _path_refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, PathRefusedError)
    status = 400 if error.code == "invalid_path" else 403
    return ApiError(status, error.code, error.message).response()


async def _store_refused(_request: Request, error: Exception) -> Response:
    """Its words stay here: they may hold the database's address."""
    _logger.warning("the database refuses (%s)", type(error).__name__)
    message = "nothing can be kept at the moment; try again in a second"
    return ApiError(503, "store_unavailable", message).response()


async def _not_served(_request: Request, error: Exception) -> Response:
    """What the framework itself refuses, in our form: no such route, no such method, no readable body."""
    assert isinstance(error, HTTPException)
    code = {400: "malformed", 404: "not_found", 405: "method_not_allowed"}.get(error.status_code)
    response = ApiError(error.status_code, code or "refused", error.detail).response()
    response.headers.update(error.headers or {})
    return response


async def _malformed(_request: Request, error: Exception) -> Response:
    """FastAPI's own form, without the input: it may hold a path or a secret."""
    assert isinstance(error, RequestValidationError)
    details = [
        {"loc": list(problem["loc"]), "msg": problem["msg"], "type": problem["type"]}
        for problem in error.errors()
    ]
    return JSONResponse({"detail": details}, 422)
