"""The trials of all stages: how many, how long, and how each ended."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aorta.core.errors import InfrastructureError
from aorta.core.trial import Match, StreamEnd, TrialEnd, TrialSpec
from aorta.engine.atomic import whole_lines
from aorta.executors import Executor
from aorta.executors.choosing import ExecutorChoice


@dataclass(frozen=True)
class Ran:
    """A finished trial of some stage."""

    stage: str
    elapsed: float
    end: Mapping[str, Any]


class SharedTrials:
    """The trials of a whole solve, on disk as they end; also what was spent."""

    def __init__(self, folder: Path, most: int | None = None) -> None:
        self._file = folder / "trials.jsonl"
        self.most = most  # trials that may really be run
        self._ran: list[Ran] = []
        self.counts: dict[str, int] = {}
        self.before = 0.0  # seconds that earlier processes took
        self._began = time.monotonic()
        self._read()

    @property
    def elapsed(self) -> float:
        """Seconds of solving over every resume, up to the last trial of each."""
        return self.before + time.monotonic() - self._began

    @property
    def trials(self) -> int:
        return sum(self.counts.values())

    def end_in(self, trial_dir: Path) -> TrialEnd | None:
        """How the trial ended that was run in this directory."""
        ends = (_end_from(ran.end) for ran in self._ran)
        return next((end for end in ends if end.stdout.path.parent == trial_dir), None)

    def note(self, stage: str, end: TrialEnd) -> None:
        """A trial that ended."""
        self.counts[stage] = self.counts.get(stage, 0) + 1
        ran = Ran(stage, round(self.elapsed, 3), asdict(end))
        self._ran.append(ran)
        data = (json.dumps(asdict(ran), default=str) + "\n").encode()
        with self._file.open("ab") as file:
            file.write(data)

    def _read(self) -> None:
        """What earlier processes wrote; a torn last line is no trial."""
        for line in map(json.loads, whole_lines(self._file)):
            ran = Ran(**line)
            self._ran.append(ran)
            self.before = max(self.before, ran.elapsed)
            self.counts[ran.stage] = self.counts.get(ran.stage, 0) + 1


@dataclass(frozen=True, kw_only=True)
class SharedExecutor(ExecutorChoice):
    """Where the trials of one stage run, for the API of its verb."""

    inner: Callable[[], Executor]
    store: SharedTrials
    stage: str

    def open(self) -> Executor:
        return _SharingExecutor(self.inner(), self.store, self.stage)


class _SharingExecutor:
    """Implements `Executor`: counts what is run for a stage, and ends it at the limit of all."""

    def __init__(self, inner: Executor, store: SharedTrials, stage: str) -> None:
        self._inner = inner
        self._store = store
        self._stage = stage
        self._running: set[str] = set()
        self.warm = getattr(inner, "warm", False)

    @property
    def slots(self) -> int:
        return self._inner.slots

    def start(self, trial: TrialSpec) -> None:
        if trial.is_step:
            self._inner.start(trial)
            return
        most = self._store.most
        if most is not None and self._store.trials + len(self._running) >= most:
            raise InfrastructureError(f"{most} trials are spent")
        self._inner.start(trial)
        self._running.add(trial.id)

    def wait(self, timeout: float | None = None) -> Sequence[TrialEnd]:
        ended = self._inner.wait(timeout)
        for end in ended:
            if end.trial_id in self._running:
                self._running.discard(end.trial_id)
                if not end.cancelled:
                    self._store.note(self._stage, end)
        return ended

    def cancel(self, trial_id: str) -> None:
        self._inner.cancel(trial_id)

    def close(self) -> None:
        """The one behind it is shared by all stages, and closed with the last."""


def _end_from(content: Mapping[str, Any]) -> TrialEnd:
    plain = dict(content)
    for stream in ("stdout", "stderr"):
        plain[stream] = StreamEnd(**{**plain[stream], "path": Path(plain[stream]["path"])})
    plain["matches"] = tuple(map(Match.from_json, plain["matches"]))
    return TrialEnd(**plain)
