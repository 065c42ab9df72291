"""Rules around the oracle of a reduction: which ranks must fail, and whether a failing trial was under load."""

import re
import statistics
from dataclasses import dataclass, replace
from pathlib import Path

from aorta.core.oracle import Classified, Deciding, ExitCodeOracle, RegexOracle
from aorta.core.outcome import Outcome
from aorta.core.signature import signature_of
from aorta.core.trial import StreamEnd, TrialEnd, Watch, WatchedPattern
from aorta.reduce.launcher import RANK_LOGS, RankLog, failed_ranks, rank_logs
from aorta.reduce.spec import ALL_RANKS, ANY_RANK, Gate, WhichRanks

_MOST_READ = 64 << 20
_TAIL = 16 << 10


@dataclass(frozen=True)
class RankedOracle:
    """The failure of any rank, of all ranks or of one, from the files that the launcher keeps for each."""

    inner: RegexOracle | ExitCodeOracle
    which: WhichRanks

    def watch(self) -> Watch:
        watch = self.inner.watch()
        if self.which == ANY_RANK:
            return watch
        return replace(watch, patterns=tuple(replace(p, stop=False) for p in watch.patterns))

    def judge_end(self, end: TrialEnd) -> Classified | None:
        logs = rank_logs(end.stdout.path.parent / RANK_LOGS)
        found = self.inner.judge_end(end)
        if not logs:
            return found
        fired = self._fired(logs, end)
        if self.which == ANY_RANK:
            return self._of_any(found, fired, logs, end)
        wanted = {log.rank for log in logs} if self.which == ALL_RANKS else {self.which}
        if not wanted <= set(fired):
            return None
        return Classified(Outcome.REPRODUCED, _words(fired, logs))

    def _of_any(
        self, found: Classified | None, fired: list[int], logs: list[RankLog], end: TrialEnd
    ) -> Classified | None:
        if found is None:
            return Classified(Outcome.REPRODUCED, _words(fired, logs)) if fired else None
        if not fired or found.signature is None:
            return found
        # The launcher's own traceback is the same for every failure; the rank's is not.
        log = next(log for log in logs if log.rank == fired[0])
        own = replace(end, stderr=_stream(log.stderr), stdout=_stream(log.stdout))
        return replace(found, why=_words(fired, logs), signature=signature_of(own))

    def _fired(self, logs: list[RankLog], end: TrialEnd) -> list[int]:
        if isinstance(self.inner, ExitCodeOracle):
            codes = failed_ranks(end.stderr.tail)
            wanted = self.inner.codes
            known = {log.rank for log in logs}
            return sorted(
                rank
                for rank, code in codes.items()
                if rank in known and (code in wanted if wanted else code not in {0, -15})
            )
        if self.inner.with_failure and not end.failed:
            return []
        pattern = re.compile(self.inner.pattern.encode())
        return [log.rank for log in logs if self._matches(pattern, log)]

    def _matches(self, pattern: re.Pattern[bytes], log: RankLog) -> bool:
        stream = getattr(self.inner, "stream", "both")
        places = {"stdout": [log.stdout], "stderr": [log.stderr]}.get(
            stream, [log.stdout, log.stderr]
        )
        return any(pattern.search(_content(place)) for place in places)


@dataclass(frozen=True)
class GatedOracle:
    """A failing trial counts only if it was under load."""

    inner: Deciding
    gate: Gate

    def watch(self) -> Watch:
        watch = self.inner.watch()
        if self.gate.min_step_time_ms is None:
            return watch
        times = WatchedPattern(self.gate.pattern, self.gate.stream, stop=False, keep_last=True)
        return replace(watch, patterns=(*watch.patterns, times))

    def judge_end(self, end: TrialEnd) -> Classified | None:
        found = self.inner.judge_end(end)
        if found is None or found.outcome is not Outcome.REPRODUCED:
            return found
        reason = self._not_under_load(end)
        return found if reason is None else Classified(Outcome.OTHER, f"not under load: {reason}")

    def _not_under_load(self, end: TrialEnd) -> str | None:
        least, seconds = self.gate.min_step_time_ms, self.gate.min_duration
        if seconds is not None and end.duration < seconds:
            return f"it took {end.duration:.3g} s, the gate asks for {seconds:g} s"
        if least is None:
            return None
        time = self._step_time(end)
        if time is None:
            return "no step time was seen"
        return None if time >= least else f"a step took {time:g} ms, the gate asks for {least:g} ms"

    def _step_time(self, end: TrialEnd) -> float | None:
        times = (end.result or {}).get("step_times_ms")
        if isinstance(times, list) and times:
            return statistics.median(float(time) for time in times)
        said = next((m for m in end.matches if m.pattern == self.gate.pattern and m.groups), None)
        try:
            return float(said.groups[0] or "") if said else None
        except ValueError:
            return None


def _words(fired: list[int], logs: list[RankLog]) -> str:
    ranks = ", ".join(map(str, fired[:8])) + (" ..." if len(fired) > 8 else "")
    return f"failed on rank {ranks} of {len(logs)}"


def _stream(path: Path) -> StreamEnd:
    return StreamEnd(path, tail=_content(path)[-_TAIL:].decode("utf-8", "replace"))


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_READ)
    except OSError:
        return b""
