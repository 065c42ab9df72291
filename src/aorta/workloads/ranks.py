"""Which ranks of a launched command must fail, from the launcher's files for each of them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aorta.core.errors import UsageError
from aorta.core.failure import failure_of
from aorta.core.oracle import Classified, Deciding, ExitCodeOracle, Oracle, RegexOracle
from aorta.core.trial import Outcome, StreamEnd, TrialEnd, Watch

WhichRanks = str | int
ANY_RANK, ALL_RANKS = "any", "all"
RANK_LOGS = "ranks"  # in the directory of a trial

_FAILED_RANK = re.compile(r"rank\s*:\s*(\d+)\s*\(local_rank:.*\n\s*exitcode\s*:\s*(-?\d+)")
_MOST_READ = 64 << 20
_TAIL = 16 << 10


def which_ranks(value: object) -> WhichRanks:
    """`any`, `all`, or a rank as `3` or `rank 3`."""
    text = str(value).lower().removeprefix("rank").strip()
    if text in {ANY_RANK, ALL_RANKS}:
        return text
    if text.isdecimal():
        return int(text)
    raise UsageError(
        f"found {value!r}, expected any, all or the number of a rank", where="oracle.ranks"
    )


def with_ranks_apart(document: Mapping[str, Any]) -> dict[str, Any]:
    """`oracle.ranks` of a document as a key of its own: an oracle itself knows nothing of ranks."""
    if "ranks" in document:
        raise UsageError("unknown key 'ranks' here; write oracle.ranks", where="ranks")
    oracle = document.get("oracle")
    if not isinstance(oracle, Mapping) or "ranks" not in oracle:
        return dict(document)
    rest = {key: value for key, value in oracle.items() if key != "ranks"}
    return {**document, "oracle": rest, "ranks": which_ranks(oracle["ranks"])}


def of_ranks(oracle: Oracle, which: WhichRanks) -> Deciding:
    """The oracle, asked of these ranks; only what a rank prints or ends with can be."""
    if isinstance(oracle, (RegexOracle, ExitCodeOracle)):
        return RankedOracle(oracle, which)
    if which != ANY_RANK:
        raise UsageError("oracle.ranks needs an oracle of kind regex or exit_code")
    return oracle


def rank_log_variables(trial_dir: Path) -> dict[str, str]:
    """What makes torchrun keep each rank's output, wherever in a script it is started."""
    return {"PET_LOG_DIR": str(trial_dir / RANK_LOGS), "PET_TEE": "3"}


@dataclass(frozen=True)
class RankLog:
    rank: int
    stdout: Path
    stderr: Path


def rank_logs(folder: Path) -> list[RankLog]:
    """What torchrun left: `<run>/attempt_<n>/<rank>/stdout.log`, of the last attempt."""
    found: dict[int, RankLog] = {}
    for place in sorted(folder.glob("*/attempt_*/*/"), key=_run_and_attempt):
        if place.name.isdecimal():
            rank = int(place.name)
            found[rank] = RankLog(rank, place / "stdout.log", place / "stderr.log")
    return [found[rank] for rank in sorted(found)]


def _run_and_attempt(place: Path) -> tuple[str, int]:
    """The tenth attempt comes behind the second."""
    attempt = place.parent.name.rpartition("_")[2]
    return place.parent.parent.name, int(attempt) if attempt.isdecimal() else -1


def failed_ranks(report: str) -> dict[int, int]:
    """The exit codes in torchrun's own report of what failed; a negative one is a signal."""
    return {int(rank): int(code) for rank, code in _FAILED_RANK.findall(report)}


@dataclass(frozen=True)
class RankedOracle:
    """The failure of any rank, of all or of one, from the launcher's files of each."""

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
        if not fired or found.failure is None:
            return found
        # The launcher's own traceback is the same for every failure; the rank's is not.
        log = next(log for log in logs if log.rank == fired[0])
        own = replace(end, stderr=_stream(log.stderr), stdout=_stream(log.stdout))
        return replace(found, why=_words(fired, logs), failure=failure_of(own))

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
