"""The service's own wire: `/v1`, health and metrics."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from aorta.attribution.jail import PathJail, PathRefusedError
from aorta.attribution.service.analyses import Analyses, Metrics
from aorta.attribution.service.path_checker import PathChecker
from aorta.attribution.service.peer import PeerWire, peer_routes
from aorta.attribution.service.server import ERROR_RESPONSES, ApiError, Guard, RateLimit
from aorta.attribution.service.store import CycleKey, Store
from aorta.attribution.service.workers import CycleReport, Id, WorkerPools
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
    decision: dict[str, Any] | None
    finding: dict[str, Any] | None


class JobSummary(BaseModel):
    job_id: str
    cycles: int
    decided: int
    latest: float


class JobList(BaseModel):
    jobs: list[JobSummary]


class CycleSummary(DecisionAnswer):
    cycle_id: str
    created: float
    decided_at: float | None


class JobHistory(BaseModel):
    job_id: str
    cycles: list[CycleSummary]


class Health(BaseModel):
    status: Literal["ok", "degraded"]
    backend: Literal["lib"]
    issues: list[str]
    version: str


@dataclass(frozen=True)
class Settings:
    allowed_roots: tuple[Path, ...]
    database_url: str
    token: str | None = None
    own_user_is_free: bool = False  # callers of the same user need no token
    rate_limit: float = 5000.0  # requests a second from one address
    keep_days: float = 30.0  # after a job's last report; 0: for good
    no_progress_limit: int = 3


def database_url(database: str) -> str:
    """A URL as it is, a file name as SQLite."""
    return database if "://" in database else f"sqlite:///{Path(database).resolve()}"


def create_app(settings: Settings) -> Guard:
    store, metrics = Store(settings.database_url), Metrics()
    jail = PathJail(settings.allowed_roots)
    path_checker = PathChecker(jail)
    pools = WorkerPools(jail, settings.no_progress_limit)
    analyses = Analyses(store, pools, path_checker, metrics, settings.keep_days)
    peer = PeerWire(store, jail, path_checker, analyses)
    own = _routes(store, path_checker, analyses, metrics)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await analyses.start()
        yield
        await analyses.close()
        store.close()

    app = FastAPI(title="Aorta attribution", version=__version__, lifespan=lifespan)
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)
    for router in (own, peer_routes(peer)):
        app.include_router(router)
    return Guard(
        app,
        token=settings.token,
        limit=RateLimit(settings.rate_limit),
        own_user_is_free=settings.own_user_is_free,
    )


def _routes(
    store: Store, path_checker: PathChecker, analyses: Analyses, metrics: Metrics
) -> APIRouter:
    routes = APIRouter(responses=ERROR_RESPONSES)

    @routes.post("/v1/cycles", status_code=202)
    async def report_cycle(report: CycleReport) -> Accepted:
        """Report what one agent knows about a failed cycle. Repeating a report changes nothing."""
        await path_checker.admit(report.log_paths)
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
        return _answer(await analyses.answer(CycleKey(job_id, cycle_id), wait))

    @routes.get("/v1/jobs")
    async def list_jobs(
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        after: Annotated[str, Query(max_length=200, pattern=r"^[ -~]*$")] = "",
    ) -> JobList:
        """Jobs by name; `after` is the last name of the page before."""
        rows = await asyncio.wrap_future(store.jobs(limit, after))
        return JobList(jobs=[JobSummary(**row) for row in rows])

    @routes.get("/v1/jobs/{job_id}")
    async def read_job(job_id: _JobId) -> JobHistory:
        """All cycles of a job, oldest first."""
        rows = await asyncio.wrap_future(store.cycles_of(job_id))
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
        issues = ["the database refuses"] if store.refuses else []
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
    """What the framework refuses, in our form: no such route or method, no readable body."""
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


_HANDLERS = {
    ApiError: _refused,
    PathRefusedError: _path_refused,
    SQLAlchemyError: _store_refused,
    HTTPException: _not_served,
    RequestValidationError: _malformed,
}
