"""A source that answers over HTTP: `aorta attrsvc`, or any backend that speaks its wire or the peer's.

`POST /v1/cycles` tells, `GET /v1/cycles/{job}/{cycle}/decision?wait=S` asks. A server that does not know these is spoken
to as `POST /logs` and `GET /logs`. Whatever a server does wrong is a `SourceError`: it can never end a job.
"""

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from aorta.launch.records import Action, Evidence, Verdict
from aorta.launch.sources import FailedCycle, SourceError

_LARGEST_ANSWER = 1 << 20
_LONGEST_POLL = 50.0  # a server refuses to be waited for longer than a minute
_PEER_PAUSE = 1.0  # the peer answers at once and allows 60 questions a minute
_GRACE = 2.0  # what a long poll may take beyond the time it was given


class _NotFoundError(SourceError):
    """404: the server does not know this wire, or this cycle."""


class _RefusedError(SourceError):
    """The server may not or cannot read the paths it was given."""


class HttpSource:
    def __init__(self, url: str, kind: str, timeout: float, token: str | None = None) -> None:
        self._url = url
        self._kind = kind
        self._timeout = timeout
        self._token = token
        self._speaks_peer: bool | None = None  # until it was told something

    @property
    def name(self) -> str:
        return f"{self._kind} {self._url}"

    def trigger(self, failed: FailedCycle) -> None:
        for evidence in failed.evidence:
            try:
                self._tell(evidence, len(failed.start.nodes))
                self._speaks_peer = False
            except _NotFoundError:
                self._speaks_peer = True
                for path in _peer_paths(evidence):
                    self._call("POST", "/logs", self._timeout, _peer_body(evidence, path))

    def _tell(self, evidence: Evidence, agents: int) -> None:
        body = _cycle_body(evidence, agents)
        try:
            self._call("POST", "/v1/cycles", self._timeout, body)
        except _RefusedError:  # our paths mean nothing there; what was read here still does
            if not evidence.tails:
                raise
            failures = [{**failure, "error_file": None} for failure in body["failures"]]
            body = {**body, "log_paths": [], "failures": failures}
            self._call("POST", "/v1/cycles", self._timeout, body)

    def read(self, failed: FailedCycle, decide_within: float) -> Verdict | None:
        deadline = time.monotonic() + self._timeout
        wait = min(decide_within, self._timeout, _LONGEST_POLL)
        while True:
            answer = self._ask(failed, wait)
            if answer.get("status") not in {"pending", "in_flight"}:
                return self._verdict(answer, failed)
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            if "recommendation" in answer:
                time.sleep(min(_PEER_PAUSE, left))
            wait = min(left, _LONGEST_POLL)

    def _ask(self, failed: FailedCycle, wait: float) -> Mapping[str, Any]:
        if not self._speaks_peer:
            try:
                return self._call("GET", _decision_path(failed, wait), wait + _GRACE)
            except _NotFoundError:
                if self._speaks_peer is not None:
                    raise
        paths = [path for evidence in failed.evidence for path in _peer_paths(evidence)]
        if not paths:
            raise SourceError("no rank left a log to ask about")
        return self._call("GET", f"/logs?{urlencode({'log_path': paths[0]})}", wait + _GRACE)

    def _verdict(self, answer: Mapping[str, Any], failed: FailedCycle) -> Verdict | None:
        decision = answer.get("decision") or answer.get("recommendation")
        if not isinstance(decision, Mapping):
            raise SourceError("the answer holds no decision")
        said = str(decision.get("action", ""))
        cycle = answer.get("cycle_id", failed.start.cycle_id)
        if cycle != failed.start.cycle_id:
            raise SourceError(f"the answer is about another cycle: {str(cycle)[:80]!r}")
        finding = answer.get("finding")
        return Verdict(
            action=Action(said) if said in {*Action} else Action.UNKNOWN,
            reason=str(decision.get("reason", ""))[:500],
            source=self.name,
            decision=dict(decision),
            finding=dict(finding) if isinstance(finding, Mapping) else None,
        )

    def _call(
        self, method: str, path: str, timeout: float, body: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any]:
        request = urllib.request.Request(  # noqa: S310 - the address was checked to be http(s)
            self._url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:  # noqa: S310
                answer = json.loads(response.read(_LARGEST_ANSWER))
        except urllib.error.HTTPError as refused:
            refused.close()
            raise _KINDS.get(refused.code, SourceError)(
                f"{method} {path.split('?', maxsplit=1)[0]}: HTTP {refused.code}"
            ) from None
        except (OSError, http.client.HTTPException) as unreachable:
            reason = getattr(unreachable, "reason", unreachable)
            raise SourceError(f"unreachable: {reason}") from None
        except (ValueError, RecursionError):
            raise SourceError(
                f"{method} {path.split('?', maxsplit=1)[0]}: the answer is not JSON"
            ) from None
        if not isinstance(answer, Mapping):
            raise SourceError(
                f"{method} {path.split('?', maxsplit=1)[0]}: the answer is not a JSON object"
            )
        return answer


_KINDS = {
    http.client.NOT_FOUND: _NotFoundError,
    http.client.BAD_REQUEST: _RefusedError,
    http.client.FORBIDDEN: _RefusedError,
}


def _decision_path(failed: FailedCycle, wait: float) -> str:
    job, cycle = (quote(part, safe="") for part in (failed.start.job_id, failed.start.cycle_id))
    return f"/v1/cycles/{job}/{cycle}/decision?{urlencode({'wait': f'{wait:g}'})}"


def _cycle_body(evidence: Evidence, agents: int) -> dict[str, Any]:
    return {
        "job_id": evidence.job_id,
        "cycle_id": evidence.cycle_id,
        "agent": evidence.agent,
        "log_paths": [*evidence.log_paths, *_stacks(evidence)],
        "tails": [{"rank": rank, "text": text} for rank, text in evidence.tails.items()],
        "failures": _failures(evidence),
        "agents_expected": agents,
    }


def _stacks(evidence: Evidence) -> list[str]:
    return [dump for dump in evidence.dumps if not dump.endswith(".json")]


def _failures(evidence: Evidence) -> list[dict[str, Any]]:
    if evidence.hung:
        ranks = evidence.ranks if evidence.hung_rank is None else (evidence.hung_rank,)
        return [{"rank": rank, "node": evidence.node, "hung": True} for rank in ranks]
    return [
        {
            "rank": failure.rank,
            "exit_code": failure.exit_code,
            "signal": failure.signal,
            "error_file": failure.error_file,
            "node": evidence.node,
        }
        for failure in evidence.failures
    ]


def _peer_paths(evidence: Evidence) -> list[str]:
    """The peer knows one log per cycle: what the first failing rank wrote as errors, or any log at all."""
    wanted = [f"rank_{failure.rank}.err" for failure in evidence.failures]
    first = [path for name in wanted for path in evidence.log_paths if path.endswith(f"/{name}")]
    return (first or list(evidence.log_paths))[:1]


def _peer_body(evidence: Evidence, path: str) -> dict[str, Any]:
    return {
        "log_path": path,
        "user": "unknown",
        "job_id": evidence.job_id,
        "cycle_id": evidence.cycle,
        "analysis_intent": "terminal",
    }
