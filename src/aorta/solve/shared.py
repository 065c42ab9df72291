"""The trials of all stages: how many, how long, and how each ended; and the first looks at the
command, which its failure rate need not run again.
"""

import hashlib
import json
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from aorta.bisect.trials import BUILD_ID
from aorta.core.errors import InfrastructureError
from aorta.core.trial import Match, StreamEnd, TrialEnd, TrialSpec, Watch
from aorta.engine.atomic import whole_lines
from aorta.engine.snapshots import SNAPSHOT_ID
from aorta.executors import Executor
from aorta.executors.choosing import ExecutorChoice
from aorta.executors.evidence import Numbers

_SHARING = frozenset({"look", "reproduce"})  # run the same, in the same minute
_OURS = frozenset({"AORTA_RANK_LOGS", "AORTA_STEP_TIMES", "PYTHONFAULTHANDLER"})


@dataclass(frozen=True)
class Ran:
    """A finished trial of some stage."""

    key: str  # what was run; empty where it may not be handed on
    stage: str
    watched: str
    elapsed: float
    end: Mapping[str, Any]


class SharedTrials:
    """The trials of a whole solve, on disk as they end; also what was spent."""

    def __init__(self, folder: Path, most: int | None = None) -> None:
        self._file = folder / "trials.jsonl"
        self.most = most  # trials that may really be run
        self._ran: list[Ran] = []
        self._given: dict[tuple[str, str], int] = {}  # (stage, trial) -> which
        self.counts: dict[str, int] = {}
        self.shared: dict[str, int] = {}
        self._before = 0.0
        self._began = time.monotonic()
        self._read()

    @property
    def elapsed(self) -> float:
        """Seconds of solving over every resume, up to the last trial of each."""
        return self._before + time.monotonic() - self._began

    @property
    def trials(self) -> int:
        return sum(self.counts.values())

    def end_in(self, trial_dir: Path) -> TrialEnd | None:
        """How the trial ended that was run in this directory."""
        ends = (_end_from(ran.end) for ran in self._ran)
        return next((end for end in ends if end.stdout.path.parent == trial_dir), None)

    def offer(self, stage: str, trial: TrialSpec, key: str) -> TrialEnd | None:
        """An end for this trial that another stage has seen, each only once."""
        place = (stage, _name(trial))
        known = self._given.get(place)
        if known is None:
            taken = {which for (by, _), which in self._given.items() if by == stage}
            fitting = (
                index
                for index, ran in enumerate(self._ran)
                if ran.key == key and ran.stage != stage and _can_be_reread(ran, trial.watch)
            )
            known = next((index for index in fitting if index not in taken), None)
        if known is None:
            return None
        if place not in self._given:
            self._given[place] = known
            self.shared[stage] = self.shared.get(stage, 0) + 1
            self._append({"given": known, "stage": stage, "trial": place[1]})
        return _moved(_end_from(self._ran[known].end), trial)

    def note(self, stage: str, trial: TrialSpec, key: str, end: TrialEnd) -> None:
        """A trial that ended; one that could not tell, or started warm, is not handed on."""
        self.counts[stage] = self.counts.get(stage, 0) + 1
        told = end.lost is None and not end.cancelled and not end.saved
        ran = Ran(
            key=key if told else "",
            stage=stage,
            watched=_watched(trial.watch),
            elapsed=round(self.elapsed, 3),
            end=asdict(end),
        )
        self._ran.append(ran)
        self._append(asdict(ran))

    def _append(self, line: Mapping[str, Any]) -> None:
        data = (json.dumps(line, default=str) + "\n").encode()
        with self._file.open("ab") as file:
            file.write(data)

    def _read(self) -> None:
        """What earlier processes wrote; a torn last line is no trial."""
        for line in map(json.loads, whole_lines(self._file)):
            if "given" in line:
                self._given[line["stage"], line["trial"]] = line["given"]
                self.shared[line["stage"]] = self.shared.get(line["stage"], 0) + 1
            else:
                ran = Ran(**line)
                self._ran.append(ran)
                self._before = max(self._before, ran.elapsed)
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
    """Implements `Executor`: what another stage ran ends at once, everything else is really run."""

    def __init__(self, inner: Executor, store: SharedTrials, stage: str) -> None:
        self._inner = inner
        self._store = store
        self._stage = stage
        self._running: dict[str, tuple[TrialSpec, str]] = {}
        self._given: list[TrialEnd] = []
        self.warm = getattr(inner, "warm", False)

    @property
    def slots(self) -> int:
        return self._inner.slots

    def start(self, trial: TrialSpec) -> None:
        if _is_no_trial(trial.id):
            self._inner.start(trial)
            return
        key = _what_is_run(trial) if self._stage in _SHARING else ""
        end = self._store.offer(self._stage, trial, key) if key else None
        if end is not None:
            self._given.append(end)
            return
        most = self._store.most
        if most is not None and self._store.trials + len(self._running) >= most:
            raise InfrastructureError(f"{most} trials are spent")
        self._inner.start(trial)
        self._running[trial.id] = (trial, key)

    def wait(self, timeout: float | None = None) -> Sequence[TrialEnd]:
        if self._given:
            ended, self._given = self._given, []
            return ended
        ended_now = self._inner.wait(timeout)
        for end in ended_now:
            trial, key = self._running.pop(end.trial_id, (None, ""))
            if trial is not None and not end.cancelled:
                self._store.note(self._stage, trial, key, end)
        return ended_now

    def cancel(self, trial_id: str) -> None:
        if trial_id in self._running or _is_no_trial(trial_id):
            self._inner.cancel(trial_id)
            return
        self._given = [
            replace(end, cancelled=True) if end.trial_id == trial_id else end for end in self._given
        ]

    def close(self) -> None:
        """The one behind it is shared by all stages, and closed with the last."""


def _is_no_trial(trial_id: str) -> bool:
    """A look into a container, or what a bisection builds before a trial: not to be counted."""
    return trial_id == SNAPSHOT_ID or trial_id.startswith(BUILD_ID)


def _what_is_run(trial: TrialSpec) -> str:
    """Names the command, its variables and where it runs."""
    env = {name: value for name, value in trial.env.items() if name not in _OURS}
    content = [trial.argv, sorted(env.items()), str(trial.cwd), repr(trial.environment)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


# -- an end as another stage sees it ---------------------------------------------------------------


def _name(trial: TrialSpec) -> str:
    return f"{trial.trial_dir.parent.name}/{trial.trial_dir.name}"


def _watched(watch: Watch) -> str:
    """What could have ended the trial early; empty where it ran to its own end."""
    stops = [pattern.pattern for pattern in watch.patterns if pattern.stop]
    hang = [watch.silent_for, watch.longer_than]
    return repr((stops, hang)) if stops or any(hang) else ""


def _can_be_reread(ran: Ran, watch: Watch) -> bool:
    if watch.json_file is not None:
        return False
    return ran.watched in {"", _watched(watch)}


def _end_from(content: Mapping[str, Any]) -> TrialEnd:
    plain = dict(content)
    for stream in ("stdout", "stderr"):
        plain[stream] = StreamEnd(**{**plain[stream], "path": Path(plain[stream]["path"])})
    plain["matches"] = tuple(map(Match.from_json, plain["matches"]))
    return TrialEnd(**plain)


def _moved(end: TrialEnd, trial: TrialSpec) -> TrialEnd:
    """The same end as this trial's own: its logs and matches taken over."""
    streams = {
        name: replace(stream, path=_copied(stream.path, trial.trial_dir / stream.path.name))
        for name, stream in (("stdout", end.stdout), ("stderr", end.stderr))
    }
    return replace(
        end,
        trial_id=trial.id,
        matches=tuple(_matches(trial.watch, streams)) or end.matches,
        hung=end.hung or _hung(end, trial.watch),
        stdout=streams["stdout"],
        stderr=streams["stderr"],
    )


def _copied(source: Path, target: Path) -> Path:
    """A copy and no link: what ships may not reach outside of its directory."""
    if not source.is_file():
        return source
    if not target.exists():
        shutil.copyfile(source, target)
    return target


def _matches(watch: Watch, streams: Mapping[str, StreamEnd]) -> Sequence[Match]:
    found = []
    for pattern in watch.patterns:
        wanted = re.compile(pattern.pattern.encode())
        for name, stream in streams.items():
            if pattern.stream not in {name, "both"} or not stream.path.is_file():
                continue
            hits = list(wanted.finditer(stream.path.read_bytes()))
            if hits:
                hit = hits[-1 if pattern.keep_last else 0]
                line = hit.string[hit.string.rfind(b"\n", 0, hit.start()) + 1 :].split(b"\n")[0]
                groups = tuple(g if g is None else g.decode(errors="replace") for g in hit.groups())
                text = line[:400].decode(errors="replace")
                at = stream.last_at or 0.0
                numbers = Numbers()
                numbers.add(hit[1] for hit in hits if pattern.every)
                kept = tuple(numbers.kept)
                found.append(Match(pattern.pattern, name, text, at, groups, kept))
    return found


def _hung(end: TrialEnd, watch: Watch) -> bool:
    """A trial that ran out of time was silent, or running, for so long."""
    if not end.timed_out:
        return False
    heard = [s.last_at for s in (end.stdout, end.stderr) if s.last_at is not None]
    silent = end.duration - max(heard, default=0.0)
    return (watch.silent_for is not None and silent >= watch.silent_for) or (
        watch.longer_than is not None and end.duration >= watch.longer_than
    )
