"""From a point to a trial and from its end to what it means: command, build step, what counts as
failing.

A build goes through the executor once for every version set; its trials wait for it, and end as
untestable if it fails. A test's time limit, patterns and hang watch never see the build.
"""

import marshal
import shlex
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from aorta.bisect.package import Package, Versions, export_lines, whole
from aorta.bisect.watching import BUILD_LOG, Say
from aorta.core.axis import Point
from aorta.core.durations import show_duration
from aorta.core.errors import InfrastructureError
from aorta.core.oracle import Classified, Deciding
from aorta.core.trial import Environment, Outcome, Tally, TrialEnd, TrialSpec, Verdict, Watch
from aorta.executors import Executor
from aorta.executors.local import unreported
from aorta.executors.process_tree import own_program
from aorta.runtimes.checkout import GIT_FAULT
from aorta.runtimes.git import without_secrets
from aorta.scrub.secrets import safe_value

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

UNTESTABLE = 125  # the exit code by which `git bisect run` is told to skip
NOT_BUILT_WORDS = "it could not be made"
_NOT_BUILT = "not_built"  # in a trial's result: why its build failed
_MOST_LOG = 1 << 20


@dataclass(frozen=True)
class PreparedTest:
    """`step` makes what `test` needs (None: it is there), one per key; `what` names a slow one."""

    key: str
    step: TrialSpec | None
    test: TrialSpec
    what: str = ""


@dataclass(eq=False)
class VersionSets(ABC):
    """The experiment of one search: a point's trial, what it needs made, what became of that."""

    root: Path
    packages: Sequence[Package]
    command: "ProbedCommand"
    build_timeout: float | None
    _versions: dict[str, Versions] = field(default_factory=dict, init=False)  # by a trial's place

    @property
    def oracle(self) -> Deciding:
        return self.command.oracle

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        named = {name: str(value) for name, value in point.values}
        self._versions[str(trial_dir)] = whole(self.packages, named)
        return self.command.trial(trial_dir, self.command.environment)

    def prepare(self, trial: TrialSpec) -> PreparedTest:
        return self._prepared(trial, self._versions[str(trial.trial_dir)])

    @abstractmethod
    def _prepared(self, trial: TrialSpec, versions: Versions) -> PreparedTest: ...

    def finished(self, trial_id: str) -> None:  # noqa: B027
        """The trial is over, and what it had for itself is free."""

    def _git(self) -> list[Package]:
        return [package for package in self.packages if package.spec.is_git]

    def _build(self, job: "DataclassInstance", name: str) -> TrialSpec:
        return build_step(job, self.root / "builds" / name, self.build_timeout)


def build_step(
    job: "DataclassInstance", directory: Path, timeout: float | None = None, name: str = ""
) -> TrialSpec:
    """The process that runs the job's module; its fields, maybe secrets, go to a private file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "job"
    path.touch(mode=0o600)
    path.write_bytes(marshal.dumps(asdict(job), 2))
    argv = (*own_program(type(job).__module__), str(path))
    return TrialSpec(argv, directory, directory, name, timeout=timeout, is_step=True)


def run_step(executor: Executor, step: TrialSpec) -> TrialEnd:
    """One step that everything else waits for, to its end."""
    executor.start(step)
    while True:
        for end in executor.wait(None):
            if end.trial_id == step.id:
                return end


@dataclass
class _Build:
    """`dropped` trials end with the build: until then what they hold is in use."""

    step: TrialSpec
    what: str
    waiting: dict[str, TrialSpec]
    dropped: list[TrialSpec] = field(default_factory=list)
    since: float = field(default_factory=time.monotonic)


class BuildSteps:
    """An executor that has what a trial needs made first, once for all trials that share it."""

    def __init__(self, inner: Executor, sets: VersionSets, say: Say) -> None:
        self._inner, self._sets, self._say = inner, sets, say
        self._building: dict[str, _Build] = {}
        self._ended: deque[TrialEnd] = deque()
        self._count = 0

    @property
    def slots(self) -> int:
        return self._inner.slots

    def start(self, trial: TrialSpec) -> None:
        needed = self._sets.prepare(trial)
        if needed.key in self._building:
            self._building[needed.key].waiting[trial.id] = needed.test
        elif needed.step is None:
            self._inner.start(needed.test)
        else:
            waiting = {trial.id: needed.test}
            self._start_build(needed.key, needed.step, needed.what, waiting)

    def wait(self, timeout: float | None = None) -> Sequence[TrialEnd]:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._ended:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            for end in self._inner.wait(left):
                self._take(end)
            if deadline is not None and time.monotonic() >= deadline:
                break
        ended = list(self._ended)
        self._ended.clear()
        return ended

    def cancel(self, trial_id: str) -> None:
        for build in self._building.values():
            trial = build.waiting.pop(trial_id, None)
            if trial is not None:
                build.dropped.append(trial)
                if not build.waiting:
                    self._inner.cancel(build.step.id)
                return
        self._inner.cancel(trial_id)

    def close(self) -> None:
        self._inner.close()

    def _start_build(
        self, key: str, step: TrialSpec, what: str, waiting: dict[str, TrialSpec]
    ) -> None:
        self._count += 1
        step = replace(step, id=f"build-{self._count}-{key}")
        self._building[key] = _Build(step, what, waiting)
        if what:
            self._say(f"building {what}")
        self._inner.start(step)

    def _take(self, end: TrialEnd) -> None:
        steps = {build.step.id: key for key, build in self._building.items()}
        if end.trial_id not in steps:
            self._end(end)
            return
        key = steps[end.trial_id]
        build = self._building.pop(key)
        if build.what and not end.cancelled:
            word = "completed in" if end.exit_code == 0 else "failed after"
            self._say(f"Build {word} {show_duration(time.monotonic() - build.since)}")
        fault = end.exit_code == GIT_FAULT and not end.cancelled
        for trial in (*build.dropped, *(build.waiting.values() if fault else ())):
            self._end(replace(unreported(trial), cancelled=True))
        if fault:
            raise InfrastructureError(without_secrets("; ".join(_said(end)[-2:])))
        for trial in build.waiting.values():
            _keep_log(trial, end)
        if end.exit_code == 0 and not (end.timed_out or end.cancelled or end.lost):
            for trial in build.waiting.values():
                self._inner.start(trial)
        elif end.cancelled and build.waiting:  # wanted again after it was given up
            self._start_build(key, build.step, build.what, build.waiting)
        else:
            for trial in build.waiting.values():
                self._end(_not_built(trial, end))

    def _end(self, end: TrialEnd) -> None:
        self._sets.finished(end.trial_id)
        self._ended.append(end)


def _said(end: TrialEnd) -> list[str]:
    return [line.strip() for line in end.stderr.tail.splitlines() if line.strip()]


def _not_built(trial: TrialSpec, build: TrialEnd) -> TrialEnd:
    """Untestable, in the build's own words; a build that was lost says nothing."""
    if build.lost or build.cancelled:
        return replace(build, trial_id=trial.id)
    why = NOT_BUILT_WORDS if not build.timed_out else f"{NOT_BUILT_WORDS} in time"
    return replace(
        build,
        trial_id=trial.id,
        exit_code=UNTESTABLE,
        signal=None,
        timed_out=False,
        result={_NOT_BUILT: ": ".join([why, *_said(build)[-1:]])},
    )


def _keep_log(trial: TrialSpec, build: TrialEnd) -> None:
    """Beside the words of the test. A log that cannot be written is no reason to stop."""
    log = b""
    for stream in (build.stdout, build.stderr):
        with suppress(OSError):
            log += stream.path.read_bytes()[-_MOST_LOG:]
    if log:
        with suppress(OSError):
            trial.trial_dir.mkdir(parents=True, exist_ok=True)
            (trial.trial_dir / BUILD_LOG).write_bytes(log)


@dataclass(frozen=True)
class OneTrial:
    """A flaky search weighs single trials itself. Another failure is neither good nor bad."""

    def verdict(self, tally: Tally) -> Verdict | None:
        if tally.reproduced:
            return Verdict(True, tally, "fails")
        if tally.clean:
            return Verdict(False, tally, "passes")
        if tally.other:
            return Verdict(None, tally, "cannot be tested, or fails in another way")
        return None

    def needs(self, tally: Tally) -> int:
        return 0 if self.verdict(tally) else 1

    at_most = needs


@dataclass(frozen=True)
class Skipping:
    """Any oracle, where a state that cannot be built or tested is neither good nor bad."""

    oracle: Deciding

    def watch(self) -> Watch:
        return self.oracle.watch()

    def judge_end(self, end: TrialEnd) -> Classified | None:
        if why := (end.result or {}).get(_NOT_BUILT):
            return Classified(Outcome.OTHER, str(why))
        if end.exit_code == UNTESTABLE:
            return Classified(Outcome.OTHER, "exit 125: this state cannot be tested")
        return self.oracle.judge_end(end)


OUTPUT_MOUNT = "/triage-tool-output"


@dataclass(frozen=True)
class ProbedCommand:
    """The user's command and what it runs in."""

    command: tuple[str, ...]
    oracle: Deciding
    environment: Environment
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None

    def trial(self, trial_dir: Path, environment: Environment) -> TrialSpec:
        """Every probe has an output directory of its own, at the same place in every container."""
        place = environment
        if environment.image is not None:
            output = f"{trial_dir.absolute()}:{OUTPUT_MOUNT}"
            place = replace(environment, mounts=(*environment.mounts, output))
        return TrialSpec(
            argv=self.command,
            trial_dir=trial_dir,
            cwd=self.cwd,
            env=dict(self.env),
            environment=place,
            watch=self.oracle.watch(),
            timeout=self.timeout,
        )


# -- one side of the answer as one command to paste
#
# A shell of its own, so that nothing it sets stays, which removes what it made. Values of variables
# stand in it, those of secrets do not.


def in_shell(lines: Sequence[str], words: Sequence[str], tidy: str = "") -> list[str]:
    """The words of a command behind shell lines; `tidy` is done however that ends."""
    traps = [f"trap {shlex.quote(tidy)} EXIT", "trap 'exit 130' INT TERM"] if tidy else []
    if not (traps or lines):
        return list(words)
    return ["sh", "-c", "\n".join(["set -e", *traps, *lines, '"$@"']), "sh", *words]


def on_this_machine(lines: Sequence[str], command: ProbedCommand, tidy: str = "") -> str:
    """The lines find `$place`, a directory that is removed at the end."""
    own = own_places('"$place"/output', command)
    begin = ['place=$(mktemp -d) && mkdir "$place"/output']
    begin += [f"export {name}={value}" for name, value in own.items()]
    tidy = "\n".join(filter(None, (tidy, 'rm -rf "$place"')))
    return shlex.join(in_shell([*begin, *lines], shown_words(command), tidy))


def exports(variables: Mapping[str, str | None]) -> Iterator[str]:
    """None: not set. A secret has to be there already, or the shell says so and ends."""
    for name, value in variables.items():
        if value is None:
            yield f"unset {name}"
        elif is_secret(name, value):
            yield f': "${{{name}:?may be a secret and is not written here: export it first}}"'
        else:
            yield from export_lines({name: value})


def is_secret(name: str, value: str) -> bool:
    return safe_value(name, value) != value


def own_places(directory: str, command: ProbedCommand) -> dict[str, str]:
    """What every trial is told of where to write."""
    places = {"AORTA_TRIAL_DIR": directory}
    if file := command.oracle.watch().json_file:
        places["AORTA_METRIC_FILE"] = f"{directory}/{shlex.quote(Path(file).name)}"
    return places


def shown_words(command: ProbedCommand) -> list[str]:
    """The command; a number that it leaves in a file is shown."""
    file = command.oracle.watch().json_file
    if file is None:
        return list(command.command)
    show = f'"$@" || exit; cat "$AORTA_METRIC_FILE" 2>/dev/null || cat {shlex.quote(file)}'
    return ["sh", "-c", show, "sh", *command.command]
