"""The wire of NVIDIA's resiliency extension, so that its launcher can use this service unchanged.

There a cycle is known by the path of its log. `POST /logs` tells of a log, `GET /logs` asks for its
result; the caller acts on `recommendation.action`. Its launcher tells of a log before the log is
there, and that a cycle has ended before the last lines of it are written: a log is read when it has
been still for a while.
"""

import asyncio
import hashlib
import re
import time
from collections import OrderedDict
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, StrictInt

from aorta.attribution import path_look
from aorta.attribution.jail import PathJail, place
from aorta.attribution.service.analyses import Analyses
from aorta.attribution.service.path_checker import ADMISSION, PathChecker, SilentError
from aorta.attribution.service.server import ERROR_RESPONSES, ApiError
from aorta.attribution.service.store import CycleKey, Store
from aorta.attribution.service.workers import CycleReport, Id

SOURCE = "aorta"
AnyPath = Annotated[str, Field(min_length=1, max_length=4096)]  # a bad one is a 400 on this wire
_WAIT = 60.0
_LOOK = 0.25  # seconds between two looks at a log's size
_STILL = 1.5  # seconds: the peer's log server writes once a second
_STILL_AT_MOST = 10.0
_REMEMBERED = 20_000
_CYCLE_IN_NAME = re.compile(r"_cycle(\d+)(?=\.|$)")


class LogSubmission(BaseModel):
    log_path: AnyPath
    user: Annotated[str, Field(max_length=200)] = "unknown"
    job_id: Id | None = None
    cycle_id: Annotated[StrictInt, Field(ge=0, lt=1 << 31)] | None = None
    analysis_intent: Literal["track_only", "progressive", "terminal"] = "terminal"


class Submitted(BaseModel):
    submitted: bool = True
    normalized_path: str
    mode: Literal["single", "pending"]
    logs_dir: str | None = None
    sched_restarts: int = 0
    files_analyzed: int = 0


class Recommendation(BaseModel):
    action: str
    reason: str
    source: str = SOURCE


class LogResult(BaseModel):
    result: dict[str, Any]
    status: Literal["pending", "in_flight", "completed", "failed"]
    wl_restart: int = 0
    wl_restart_count: int | None = None
    fr_dump_path: str | None = None
    fr_analysis: dict[str, Any] | None = None
    llm_merged_summary: str | None = None
    recommendation: Recommendation
    candidate_recommendation: Recommendation


class PeerWire:
    """What the peer's launcher can ask, apart from how HTTP spells it."""

    def __init__(
        self, store: Store, jail: PathJail, path_checker: PathChecker, analyses: Analyses
    ) -> None:
        self._store, self._jail = store, jail
        self._path_checker, self._analyses = path_checker, analyses
        self._owners: OrderedDict[str, CycleKey] = OrderedDict()  # an owner stays for good

    async def submit(self, submission: LogSubmission) -> Submitted:
        path = await self._admitted(submission.log_path)
        key = _key(path, submission.job_id, submission.cycle_id)
        if await self._owner(str(path), key) != key:
            raise ApiError(
                400, "invalid_parameter", "this log was told of under another job or cycle"
            )
        finished = submission.analysis_intent == "terminal"
        if finished:
            await self._analyse(path, key)
        return Submitted(normalized_path=str(path), mode="single" if finished else "pending")

    async def result(self, log_path: str, wait: float, wl_restart: int) -> LogResult:
        path = await self._admitted(log_path)
        key = await asyncio.wrap_future(self._store.owner_of(str(path)))
        if key is None:
            raise ApiError(404, "not_found", "nobody has told of this log")
        if not await self._analyses.is_reported(key):
            await self._analyse(path, key)
        answer = await self._analyses.answer(key, wait)
        return _result(answer, wl_restart)

    async def _admitted(self, text: str) -> Path:
        path = place(*self._jail.check_name(text))
        known = f"file {text}"
        if self._path_checker.was_seen(known):
            return path
        try:
            (seen,) = await self._path_checker.look(str(path.parent), [text], ADMISSION)
        except SilentError:
            return path
        self._jail.check_seen(seen.what)
        if seen.what not in {path_look.FILE, path_look.MISSING}:
            raise ApiError(400, "not_regular", "the log is not a regular file")
        self._path_checker.remember([known])
        return path

    async def _owner(self, path: str, key: CycleKey) -> CycleKey:
        """Whose log this is; `key`'s if it was nobody's."""
        if path not in self._owners:
            self._owners[path] = await asyncio.wrap_future(self._store.add_log(path, key))
            if len(self._owners) > _REMEMBERED:
                self._owners.popitem(last=False)
        return self._owners[path]

    async def _analyse(self, path: Path, key: CycleKey) -> None:
        report = CycleReport(
            job_id=key.job_id, cycle_id=key.cycle_id, agent="launcher", log_paths=[str(path)]
        )
        await self._analyses.report(report, written=lambda: self._written(path))

    async def _written(self, path: Path) -> None:
        """Return when the log has been still for a while, or after the longest wait."""
        began = still_since = time.monotonic()
        size = -1
        while (now := time.monotonic()) - began < _STILL_AT_MOST:
            before = size
            try:
                (seen,) = await self._path_checker.look(str(path.parent), [str(path)], ADMISSION)
            except SilentError:
                return
            size = seen.size
            if size != before:
                still_since = now
            if size and now - still_since >= _STILL:
                return
            await asyncio.sleep(_LOOK)


def peer_routes(wire: PeerWire) -> APIRouter:
    routes = APIRouter(responses=ERROR_RESPONSES)

    @routes.post("/logs")
    async def submit_log(submission: LogSubmission) -> Submitted:
        """Tell of a cycle's log. Only a `terminal` one is finished and analysed at once."""
        return await wire.submit(submission)

    @routes.get("/logs")
    async def read_log_result(
        log_path: Annotated[AnyPath, Query()],
        wait: Annotated[bool, Query()] = True,  # as the peer does
        file: Annotated[str | None, Query(max_length=4096)] = None,
        wl_restart: Annotated[int | None, Query(ge=0, lt=1 << 31)] = None,
    ) -> LogResult:
        """The result for a known log; asking for one that was only tracked starts its analysis."""
        return await wire.result(log_path, _WAIT if wait else 0.0, wl_restart or 0)

    return routes


def _key(path: Path, job_id: str | None, cycle_id: int | None) -> CycleKey:
    """Names where none are given: the logs of one job differ in their cycle number alone."""
    number = _CYCLE_IN_NAME.search(path.name)
    if job_id is None:
        prefix = path.with_name(_CYCLE_IN_NAME.sub("", path.name))
        job_id = "log-" + hashlib.sha256(str(prefix).encode()).hexdigest()[:16]
    if cycle_id is None:
        cycle_id = int(number[1]) if number else 0
    return CycleKey(job_id, str(cycle_id))


def _result(answer: dict[str, Any] | None, wl_restart: int) -> LogResult:
    if answer is None:
        waiting = Recommendation(action="UNKNOWN", reason="the analysis is not finished")
        return LogResult(
            result={},
            status="in_flight",
            wl_restart=wl_restart,
            recommendation=waiting,
            candidate_recommendation=waiting,
        )
    decision = answer["decision"]
    advice = Recommendation(action=decision["action"], reason=decision["reason"])
    return LogResult(
        result=_restart_agent_response(answer),
        status="completed",
        wl_restart=wl_restart,
        recommendation=advice,
        candidate_recommendation=advice,
    )


def _restart_agent_response(answer: dict[str, Any]) -> dict[str, Any]:
    finding, decision = answer.get("finding") or {}, answer["decision"]
    root = finding.get("root") or {}
    lines = finding.get("evidence") or []
    return {
        "schema_version": "restart_agent_response.v1",
        "decision": decision["action"],
        "decision_basis": decision["rule"],
        "justification": decision["reason"],
        "primary_failure": {
            "failure_class": finding.get("class", "unknown"),
            "signature": finding.get("summary"),
            "root_fingerprint": finding.get("fingerprint"),
            "failure_iteration": finding.get("last_step"),
            "line": lines[0]["line"] if lines else None,
            "rank": root.get("rank"),
            "node": root.get("node"),
            "gpu": root.get("device"),
        },
        "cascades": finding.get("cascade") or [],
        "evidence": [
            {"line": line["line"], "quote": line["text"], "supports": "primary_failure"}
            for line in lines
        ],
    }
