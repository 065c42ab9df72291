"""The sources of verdicts: services over HTTP, and attribution in this process.

The latter runs on the leader, over what all agents left in the store. The agent that leads when a
cycle fails begins as soon as all have reported, beside the rendezvous; if another one leads the
next round, it begins when it is asked.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from aorta.attribution import Evidence, LogSource, LogTail, attribute
from aorta.attribution.client import HttpError, JsonClient, token_for
from aorta.attribution.documents import decision_document, finding_document, past_cycle
from aorta.attribution.evidence import failures_of, find_logs, read_dumps, stragglers
from aorta.launch.config import FaultTolerance
from aorta.launch.cycle_dir import is_there
from aorta.launch.records import (
    Action,
    CycleEvidence,
    CycleStart,
    DecisionSource,
    Everybody,
    FailedCycle,
    SourceError,
    SourceVerdict,
)

T = TypeVar("T")

_TOKEN = "AORTA_ATTRSVC_TOKEN"  # noqa: S105 - the name of a variable, not a secret
_LOOK = 0.05  # seconds between two looks whether all agents have told
_WAIT_FOR_ALL = 60.0
_LONGEST_POLL = 50.0  # a server refuses to be waited for longer than a minute
_PEER_PAUSE = 1.0  # the peer allows 60 questions a minute
_GRACE = 2.0  # what a long poll may take beyond the time it was given
_NOT_FOUND = 404  # the server does not know this wire, or this cycle
_REFUSED = {400, 403, 422}  # it may not or cannot read the paths


def build_sources(settings: FaultTolerance) -> list[DecisionSource]:
    """From the settings to the one list of sources. No other place knows which kinds there are.

    The token is taken out of this process's environment, which every worker inherits.
    """
    wanted = settings.attribution
    token = os.environ.pop(_TOKEN, None)
    timeout = wanted.timeout_seconds
    sources: list[DecisionSource] = []
    if wanted.attrsvc_url is not None:
        client = JsonClient(wanted.attrsvc_url, token, find_token=token_for)
        sources.append(HttpSource(client, "attrsvc", timeout))
    if wanted.enable_mcp:  # what `aorta mcp` would answer, by the same function
        sources.append(LocalSource("mcp", analyse))
    sources += [HttpSource(JsonClient(url), "http", timeout) for url in wanted.http_urls]
    sources = sources or [LocalSource("in-process", analyse)]
    if any(isinstance(source, LocalSource) for source in sources):
        threading.Thread(target=warm_up, daemon=True).start()
    return sources


def warm_up() -> None:
    """Compile the patterns while the workers start, so that the first verdict is fast."""
    attribute(Evidence(tails=(LogTail("warm-up"),)))


@dataclass
class LocalSource:
    name: str
    analyse: Callable[[FailedCycle], SourceVerdict]
    _known: tuple[FailedCycle, SourceVerdict] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _asked_about: str = ""

    def trigger(self, failed: FailedCycle, everybody: Everybody | None) -> None:
        """Analyse as soon as all agents have reported, unless the leader asks before that."""
        if everybody is None:
            return
        deadline = time.monotonic() + _WAIT_FOR_ALL
        while time.monotonic() < deadline and self._asked_about != failed.start.cycle_id:
            reported = everybody(failed.start)
            if reported is not None:
                self._run_once(reported)
                return
            time.sleep(_LOOK)

    def read(self, failed: FailedCycle) -> SourceVerdict | None:
        self._asked_about = failed.start.cycle_id
        return self._run_once(failed)

    def _run_once(self, failed: FailedCycle) -> SourceVerdict:
        """One analysis of the same evidence: who asks second waits for the first one's."""
        with self._lock:
            if self._known is None or self._known[0] != failed:
                self._known = failed, replace(self.analyse(failed), source=self.name)
            return self._known[1]


def analyse(failed: FailedCycle) -> SourceVerdict:
    """The no-progress limit is the launcher's: it knows heartbeats and lifetimes too."""
    found = attribute(everything_known(failed), no_progress_limit=0)
    return SourceVerdict(
        action=Action(found.decision.action.value),
        reason=found.decision.reason,
        decision=decision_document(found.decision),
        finding=finding_document(found.finding),
    )


def everything_known(failed: FailedCycle) -> Evidence:
    paths = [Path(dump) for piece in failed.evidence for dump in piece.dumps]
    dumps = tuple(path for path in paths if path.suffix == ".json" and is_there(path))
    hung = _hung_ranks(failed.evidence, dumps)
    steps = [piece.step for piece in failed.evidence if piece.step is not None]
    return Evidence(
        logs=tuple(log for piece in failed.evidence for log in _logs(piece)),
        tails=tuple(tail for piece in failed.evidence for tail in _tails(piece)),
        failures=failures_of(
            [
                {**row, "agent": piece.agent}
                for piece in failed.evidence
                for row in piece.failure_rows(hung)
            ]
        ),
        flight_recorder=dumps,
        history=tuple(known for known in map(past_cycle, failed.start.history) if known),
        heartbeat_step=max(steps, default=None),
        lived_sec=None if failed.ended is None else failed.ended - failed.start.started,
        earlier_logs=tuple(
            log for piece in failed.evidence for log in _earlier_logs(piece, failed)
        ),
    )


def _hung_ranks(evidence: Sequence[CycleEvidence], dumps: Sequence[Path]) -> frozenset[int]:
    """Whom a hang is put down to: a stopped heartbeat, a missing rank, else everybody."""
    if not any(piece.hung for piece in evidence):
        return frozenset()
    named = {piece.hung_rank for piece in evidence if piece.hung_rank is not None}
    everybody = {rank for piece in evidence for rank in piece.ranks}
    return frozenset(named or set(stragglers(read_dumps(dumps)).ranks) or everybody)


def _logs(piece: CycleEvidence) -> list[LogSource]:
    paths = [Path(path) for path in (*piece.log_paths, *piece.dumps)]
    here = [path for path in paths if path.suffix != ".json" and is_there(path)]
    return [replace(log, node=piece.node) for log in find_logs(here)]


def _tails(piece: CycleEvidence) -> list[LogTail]:
    """What was sent along counts only where the log itself is on another machine."""
    here = {path.stem for path in map(Path, piece.log_paths) if is_there(path)}
    return [
        LogTail(text, rank, piece.node, f"rank_{rank} on {piece.node}")
        for rank, text in sorted(piece.tails.items())
        if f"rank_{rank}" not in here
    ]


def _earlier_logs(piece: CycleEvidence, failed: FailedCycle) -> list[LogSource]:
    """What this agent's ranks wrote in the cycle before, if it was this submission's."""
    before = failed.start.cycle - 1
    if before < failed.start.first_cycle:
        return []
    now = [Path(path) for path in piece.log_paths]
    paths = {path.parent.with_name(f"cycle_{before}") / path.name for path in now}
    return list(find_logs(sorted(path for path in paths if is_there(path))))


@dataclass
class HttpSource:
    """`aorta attrsvc`, or any backend that speaks its wire or the peer's: `POST /v1/cycles` tells
    and `GET /v1/cycles/{job}/{cycle}/decision?wait=S` asks; a server that does not know these is
    spoken to as `POST /logs` and `GET /logs`. Whatever it does wrong is a `SourceError`.
    """

    client: JsonClient
    kind: str
    timeout: float
    _speaks_peer: bool | None = None  # until an answer has told
    _triggers: threading.Lock = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        return f"{self.kind} {self.client.url}"

    def trigger(self, failed: FailedCycle, everybody: Everybody | None) -> None:
        del everybody  # the service hears every agent itself
        try:
            for evidence in failed.evidence:
                ours = partial(self._post, _cycle_body(evidence, failed.start))
                with self._triggers:
                    self._speak(ours, partial(self._post_to_peer, evidence))
        except HttpError as wrong:
            raise SourceError(str(wrong)) from None

    def _speak(self, ours: Callable[[], T], peers: Callable[[], T]) -> T:
        """On our own wire unless the server is known to speak the peer's; learns which it is."""
        if not self._speaks_peer:
            try:
                answer = ours()
            except HttpError as wrong:
                if wrong.status != _NOT_FOUND or self._speaks_peer is False:
                    raise
                self._speaks_peer = True
            else:
                self._speaks_peer = False
                return answer
        return peers()

    def _post_to_peer(self, evidence: CycleEvidence) -> None:
        for path in _peer_paths(evidence):
            body = {
                "log_path": path,
                "user": "unknown",
                "job_id": evidence.job_id,
                "cycle_id": evidence.cycle,
                "analysis_intent": "terminal",
            }
            self.client.call("POST", "/logs", self.timeout, body)

    def _post(self, body: Mapping[str, Any]) -> None:
        """To a service on another machine our paths mean nothing, but what was read here does."""
        try:
            self.client.call("POST", "/v1/cycles", self.timeout, body)
        except HttpError as wrong:
            if wrong.status not in _REFUSED or not body["tails"]:
                raise
            failures = [{**failure, "error_file": None} for failure in body["failures"]]
            tails_alone = {**body, "log_paths": [], "failures": failures}
            self.client.call("POST", "/v1/cycles", self.timeout, tails_alone)

    def read(self, failed: FailedCycle) -> SourceVerdict | None:
        deadline = time.monotonic() + self.timeout
        try:
            while True:
                answer = self._ask(failed, deadline)
                if answer.get("status") not in {"pending", "in_flight"}:
                    return self._verdict(answer, failed)
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                if "recommendation" in answer:
                    time.sleep(min(_PEER_PAUSE, left))
        except HttpError as wrong:
            raise SourceError(str(wrong)) from None

    def _ask(self, failed: FailedCycle, deadline: float) -> Mapping[str, Any]:
        """Under no lock: a long poll must not hold up the trigger that it waits for."""
        wait = min(max(0.1, deadline - time.monotonic()), _LONGEST_POLL)
        job, cycle = (quote(part, safe="") for part in (failed.start.job_id, failed.start.cycle_id))
        question = f"/v1/cycles/{job}/{cycle}/decision?wait={wait:g}"
        ours = partial(self.client.call, "GET", question, wait + _GRACE)
        return self._speak(ours, lambda: self._ask_peer(failed, deadline))

    def _ask_peer(self, failed: FailedCycle, deadline: float) -> Mapping[str, Any]:
        """It answers when it is done. Another agent may still be about to tell of the log."""
        paths = [path for evidence in failed.evidence for path in _peer_paths(evidence)]
        if not paths:
            raise SourceError("no rank left a log to ask about")
        question = f"/logs?{urlencode({'log_path': paths[0]})}"
        try:
            return self.client.call("GET", question, max(0.1, deadline - time.monotonic()))
        except HttpError as wrong:
            if wrong.status != _NOT_FOUND:
                raise
        return {"status": "pending", "recommendation": {}}

    def _verdict(self, answer: Mapping[str, Any], failed: FailedCycle) -> SourceVerdict:
        cycle = answer.get("cycle_id", failed.start.cycle_id)
        if cycle != failed.start.cycle_id:
            raise SourceError(f"the answer is about another cycle: {str(cycle)[:80]!r}")
        return SourceVerdict.of_answer(answer, self.name)


def _cycle_body(evidence: CycleEvidence, start: CycleStart) -> dict[str, Any]:
    """Moments are seconds since the epoch, `lived_sec` the seconds from the cycle's start to the
    failure as this agent saw it, `heartbeat_step` the furthest step that a rank here told.
    """
    ended = evidence.ended
    stacks = [dump for dump in evidence.dumps if not dump.endswith(".json")]
    return {
        "job_id": evidence.job_id,
        "cycle_id": evidence.cycle_id,
        "agent": evidence.agent,
        "log_paths": [*evidence.log_paths, *stacks],
        "tails": [{"rank": rank, "text": text} for rank, text in evidence.tails.items()],
        "failures": evidence.failure_rows(),
        "agents_expected": len(start.nodes),
        "started": start.started,
        "ended": ended,
        "lived_sec": None if ended is None else max(0.0, ended - start.started),
        "heartbeat_step": evidence.step,
    }


def _peer_paths(evidence: CycleEvidence) -> list[str]:
    """The peer takes one log a cycle: the first failing rank's stderr, or any log."""
    wanted = [f"rank_{failure.rank}.err" for failure in evidence.failures]
    first = [path for name in wanted for path in evidence.log_paths if path.endswith(f"/{name}")]
    return (first or list(evidence.log_paths))[:1]
