"""The panel: asks every source at once and makes one verdict of their answers, within a bounded
time.

Aggregation `any`: one STOP is a STOP. `all`: STOP needs every source that has an opinion, and at
least one opinion. A source that is unreachable, late, answers nonsense or says UNKNOWN has no
opinion: it can neither stop a job nor keep one from being stopped. With no opinion at all the
verdict is UNKNOWN, which restarts.
"""

import logging
import os
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aorta.attribution.http_client import JsonClient
from aorta.attribution.tokens import token_for
from aorta.launch.config import Aggregation, FaultTolerance
from aorta.launch.records import Action, FailedCycle, SourceVerdict
from aorta.launch.sources import DecisionSource, Everybody, SourceError
from aorta.launch.sources.http import HttpSource
from aorta.launch.sources.local import IN_PROCESS, MCP, LocalSource, McpAnalysis, analyse, warm_up

log = logging.getLogger(__name__)

TOKEN_VARIABLE = "AORTA_ATTRSVC_TOKEN"  # noqa: S105 - the name of a variable, not a secret

_NO_ANSWER = SourceVerdict(Action.UNKNOWN, "no source answered in time", source="default")


class Panel:
    def __init__(self, sources: Sequence[DecisionSource], aggregation: Aggregation) -> None:
        self._sources = tuple(sources)
        self._aggregation = aggregation
        self._telling: list[threading.Thread] = []

    def trigger(self, failed: FailedCycle, everybody: Everybody | None = None) -> None:
        """Tell every source, without waiting for any."""
        self._telling = [
            threading.Thread(
                target=_tell,
                args=(source, failed, everybody),
                name=f"tell-{source.name}",
                daemon=True,
            )
            for source in self._sources
        ]
        for thread in self._telling:
            thread.start()

    def finish_telling(self, timeout: float) -> None:
        """Before a process leaves: let what is being told arrive, but not for long."""
        deadline = time.monotonic() + timeout
        for thread in self._telling:
            thread.join(max(0.0, deadline - time.monotonic()))

    def read(self, failed: FailedCycle, timeout: float) -> SourceVerdict:
        """The verdict on a cycle: as soon as it is certain, and at the latest after `timeout`
        seconds.
        """
        deadline = time.monotonic() + timeout
        reading = _Reading(failed.start.cycle_id)
        for source in self._sources:
            threading.Thread(
                target=reading.ask,
                args=(source, failed),
                name=f"ask-{source.name}",
                daemon=True,
            ).start()
        answers: list[SourceVerdict] = []
        for _ in self._sources:
            answer = reading.next(deadline)
            if answer is None:
                break
            answers += answer
            if self._is_certain(answers):
                break
        reading.close()
        return self._verdict(answers)

    def _is_certain(self, answers: Sequence[SourceVerdict]) -> bool:
        decisive = Action.STOP if self._aggregation == "any" else Action.RESTART
        return any(answer.action is decisive for answer in answers)

    def _verdict(self, answers: Sequence[SourceVerdict]) -> SourceVerdict:
        stops, restarts, unsure = (
            [answer for answer in answers if answer.action is action]
            for action in (Action.STOP, Action.RESTART, Action.UNKNOWN)
        )
        if stops and (self._aggregation == "any" or not restarts):
            return stops[0]
        return next(iter([*restarts, *unsure]), _NO_ANSWER)


class _Reading:
    """One question to all sources. What comes after it is closed is logged and dropped."""

    def __init__(self, cycle_id: str) -> None:
        self._cycle_id = cycle_id
        self._answers: queue.Queue[list[SourceVerdict]] = queue.Queue()
        self._lock = threading.Lock()
        self._closed = False

    def ask(self, source: DecisionSource, failed: FailedCycle) -> None:
        verdict = None
        try:
            verdict = source.read(failed)
        except SourceError as wrong:
            log.warning("no answer from %s for cycle %s: %s", source.name, self._cycle_id, wrong)
        finally:  # a source that breaks keeps nobody waiting
            dropped = self._is_closed_to(verdict)
        if dropped and verdict is not None and verdict.action is Action.STOP:
            log.warning(
                "late STOP from %s for cycle %s is dropped, the job goes on: %s",
                source.name,
                self._cycle_id,
                verdict.reason,
            )

    def _is_closed_to(self, verdict: SourceVerdict | None) -> bool:
        with self._lock:
            if not self._closed:
                self._answers.put([] if verdict is None else [verdict])
            return self._closed

    def next(self, deadline: float) -> list[SourceVerdict] | None:
        try:
            return self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return None

    def close(self) -> None:
        with self._lock:
            self._closed = True


def _tell(source: DecisionSource, failed: FailedCycle, everybody: Everybody | None) -> None:
    try:
        source.trigger(failed, everybody)
    except SourceError as wrong:
        log.warning(
            "%s was not told about cycle %s, going on: %s",
            source.name,
            failed.start.cycle_id,
            wrong,
        )


def build_sources(settings: FaultTolerance, log_dir: Path) -> list[DecisionSource]:
    """From the settings to the one list of sources. No other place knows which kinds there are.

    The token is taken out of this process's environment, which every worker inherits.
    """
    wanted = settings.attribution
    token = os.environ.pop(TOKEN_VARIABLE, None)
    sources: list[DecisionSource] = []
    if wanted.attrsvc_url is not None:
        client = JsonClient(wanted.attrsvc_url, token, find_token=token_for)
        sources.append(HttpSource(client, "attrsvc", wanted.timeout_seconds))
    if wanted.mcp_server is not None:
        asked = McpAnalysis(wanted.mcp_server, log_dir, wanted.timeout_seconds)
        sources.append(LocalSource(MCP, asked))
    elif wanted.enable_mcp:
        sources.append(LocalSource(MCP, _analyse_as_mcp))
    sources += [
        HttpSource(JsonClient(url), "http", wanted.timeout_seconds) for url in wanted.http_urls
    ]
    if not sources:
        sources = [LocalSource(IN_PROCESS, analyse)]
    if any(isinstance(source, LocalSource) for source in sources) and wanted.mcp_server is None:
        threading.Thread(target=warm_up, daemon=True).start()
    return sources


def _analyse_as_mcp(failed: FailedCycle) -> SourceVerdict:
    """What `aorta mcp` would answer, from the function that it would call, with the job's
    history.
    """
    return replace(analyse(failed), source=MCP)
