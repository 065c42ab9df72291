"""A source of verdicts over HTTP: `aorta attrsvc`, or what speaks its wire or the peer's."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from aorta.attribution.client import HttpError, JsonClient
from aorta.launch.records import CycleEvidence, CycleStart, FailedCycle, SourceError, SourceVerdict

T = TypeVar("T")

_LONGEST_POLL = 50.0  # a server refuses to be waited for longer than a minute
_PEER_PAUSE = 1.0  # the peer allows 60 questions a minute
_GRACE = 2.0  # what a long poll may take beyond the time it was given
_NOT_FOUND = 404  # the server does not know this wire, or this cycle
_REFUSED = {400, 403, 422}  # it may not or cannot read the paths


@dataclass
class HttpSource:
    """Speaks `/v1/cycles`, or `/logs` to a server that does not know that. Raises `SourceError`."""

    client: JsonClient
    kind: str
    timeout: float
    _speaks_peer: bool | None = None  # until an answer shows it
    _triggers: threading.Lock = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        return f"{self.kind} {self.client.url}"

    def trigger(self, failed: FailedCycle) -> None:
        try:
            for evidence in failed.evidence:
                ours = partial(self._post, _cycle_body(evidence, failed.start))
                with self._triggers:
                    self._speak(ours, partial(self._post_to_peer, evidence, failed.start))
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

    def _post_to_peer(self, evidence: CycleEvidence, start: CycleStart) -> None:
        for path in _peer_paths(evidence):
            body = {
                "log_path": path,
                "user": "unknown",
                "job_id": start.job_id,
                "cycle_id": start.cycle,
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
                answer = self._query(failed, deadline)
                if answer.get("status") not in {"pending", "in_flight"}:
                    return self._verdict(answer, failed)
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                if "recommendation" in answer:
                    time.sleep(min(_PEER_PAUSE, left))
        except HttpError as wrong:
            raise SourceError(str(wrong)) from None

    def _query(self, failed: FailedCycle, deadline: float) -> Mapping[str, Any]:
        """Under no lock: a long poll must not hold up the trigger that it waits for."""
        wait = min(max(0.1, deadline - time.monotonic()), _LONGEST_POLL)
        job, cycle = (quote(part, safe="") for part in (failed.start.job_id, failed.start.cycle_id))
        question = f"/v1/cycles/{job}/{cycle}/decision?wait={wait:g}"
        ours = partial(self.client.call, "GET", question, wait + _GRACE)
        return self._speak(ours, lambda: self._query_peer(failed, deadline))

    def _query_peer(self, failed: FailedCycle, deadline: float) -> Mapping[str, Any]:
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
    """What `POST /v1/cycles` takes; moments are seconds since the epoch."""
    ended = evidence.ended
    stacks = [dump for dump in evidence.dumps if not dump.endswith(".json")]
    return {
        "job_id": start.job_id,
        "cycle_id": start.cycle_id,
        "agent": evidence.agent,
        "log_paths": [*evidence.log_paths, *stacks],
        "tails": [{"rank": rank, "text": text} for rank, text in evidence.tails.items()],
        "failures": evidence.failure_documents(),
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
