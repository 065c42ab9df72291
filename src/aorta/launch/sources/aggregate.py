"""All sources as one: asks them at once and makes one verdict of their answers, within a bounded
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
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from aorta.attribution.client import JsonClient, token_for
from aorta.launch.config import Aggregation, FaultTolerance
from aorta.launch.records import Action, FailedCycle, SourceVerdict
from aorta.launch.sources import DecisionSource, Everybody, SourceError
from aorta.launch.sources.http import HttpSource
from aorta.launch.sources.local import IN_PROCESS, MCP, LocalSource, McpAnalysis, analyse, warm_up

log = logging.getLogger(__name__)

TOKEN_VARIABLE = "AORTA_ATTRSVC_TOKEN"  # noqa: S105 - the name of a variable, not a secret
LateStop = Callable[[SourceVerdict], None]

_NO_ANSWER = SourceVerdict(Action.UNKNOWN, "no source answered in time", source="default")


class AttributionSources:
    def __init__(self, sources: Sequence[DecisionSource], aggregation: Aggregation) -> None:
        self._sources = tuple(sources)
        self._aggregation = aggregation
        self._triggers: list[threading.Thread] = []

    def trigger(self, failed: FailedCycle, everybody: Everybody | None = None) -> None:
        """Tell every source, without waiting for any."""
        self._triggers = [
            threading.Thread(
                target=_tell,
                args=(source, failed, everybody),
                name=f"tell-{source.name}",
                daemon=True,
            )
            for source in self._sources
        ]
        for thread in self._triggers:
            thread.start()

    def finish_triggers(self, timeout: float) -> None:
        """Before a process leaves: let what is being told arrive, but not for long."""
        deadline = time.monotonic() + timeout
        for thread in self._triggers:
            thread.join(max(0.0, deadline - time.monotonic()))

    def read(
        self, failed: FailedCycle, timeout: float, late_stop: LateStop | None = None
    ) -> SourceVerdict:
        """The verdict on a cycle: as soon as it is certain, and at the latest after `timeout`
        seconds. A verdict that becomes STOP after that goes to `late_stop`, or is logged.
        """
        deadline = time.monotonic() + timeout
        reading = _Reading(failed, self._verdict, late_stop)
        for source in self._sources:
            threading.Thread(
                target=reading.ask, args=(source,), name=f"ask-{source.name}", daemon=True
            ).start()
        for _ in self._sources:
            if not reading.wait(deadline) or self._is_certain(reading.answers):
                break
        return reading.close(timed_out=time.monotonic() >= deadline)

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
    """One question to all sources, and what became of the answers after it was closed."""

    def __init__(
        self,
        failed: FailedCycle,
        aggregate: Callable[[Sequence[SourceVerdict]], SourceVerdict],
        late_stop: LateStop | None,
    ) -> None:
        self._failed = failed
        self._aggregate = aggregate
        self._late_stop = late_stop
        self._arrived: queue.Queue[None] = queue.Queue()
        self._lock = threading.Lock()
        self._decided: SourceVerdict | None = None
        self._timed_out = False
        self.answers: list[SourceVerdict] = []

    def ask(self, source: DecisionSource) -> None:
        verdict = None
        try:
            verdict = source.read(self._failed)
        except (SourceError, OSError) as wrong:
            log.warning("no answer from %s for cycle %s: %s", source.name, self._cycle_id, wrong)
        finally:  # a source that breaks keeps nobody waiting
            with self._lock:
                self.answers += [verdict] if verdict is not None else []
                decided = self._decided
            self._arrived.put(None)
        if decided is not None and verdict is not None and verdict.action is Action.STOP:
            self._came_late(verdict, decided)

    @property
    def _cycle_id(self) -> str:
        return self._failed.start.cycle_id

    def wait(self, deadline: float) -> bool:
        """Whether one more source has answered, or failed, by then."""
        try:
            self._arrived.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return False
        return True

    def close(self, *, timed_out: bool) -> SourceVerdict:
        with self._lock:
            self._decided, self._timed_out = self._aggregate(self.answers), timed_out
            return self._decided

    def _came_late(self, verdict: SourceVerdict, decided: SourceVerdict) -> None:
        if decided.action is Action.STOP:
            return
        with self._lock:
            is_stop = self._aggregate(self.answers).action is Action.STOP
        if not self._timed_out or not is_stop:
            log.info("STOP from %s is outvoted: %s", verdict.source, verdict.reason)
        elif self._late_stop is not None:
            self._late_stop(verdict)
        else:
            log.warning(
                "late STOP from %s for cycle %s is dropped, the job goes on "
                "(--ft-attribution-late-stop obeys it): %s",
                verdict.source,
                self._cycle_id,
                verdict.reason,
            )


def _tell(source: DecisionSource, failed: FailedCycle, everybody: Everybody | None) -> None:
    try:
        source.trigger(failed, everybody)
    except (SourceError, OSError) as wrong:
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
    """What `aorta mcp` would answer, by the same function, with the job's history."""
    return replace(analyse(failed), source=MCP)
