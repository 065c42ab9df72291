"""Which change brought it? Between a good end that is given, or found among older revisions, and
what fails now.
"""

import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from aorta.bisect.findings import Findings
from aorta.bisect.request import run_bisection
from aorta.bisect.run import ResolvedRequest
from aorta.bisect.spec import BisectSpec, EnvironmentsSpec, PackageSpec
from aorta.core.documents import validated
from aorta.core.errors import Exit, UsageError
from aorta.core.names import slug
from aorta.core.trial import Tally
from aorta.engine.question import Budget
from aorta.engine.rundir import write_atomically
from aorta.reduce.launcher import python_of, words_of
from aorta.runtimes.git import Repository, laid_out
from aorta.solve.state import Stage, StageResult, State, Status, Stopped
from aorta.solve.subject import (
    ReproducerFound,
    environment_of,
    good_containers,
    good_environment,
    original,
    reduced_command,
    reduced_spec,
    repository_of,
    run_command,
    smallest,
    subject_of,
)

PATCH = "culprit.diff"
CHECK = "bisect-original"
_NOT_ON_THE_ORIGINAL = "seen on the reduced reproducer, not on the original"
_STOPPED = {Exit.INTERRUPTED, Exit.TERMINATED}
_MOST_ATTEMPTS = 14
_WRONGLY_GOOD = 0.002  # of one revision that fails as often as the reproducer; a dozen are tried


@dataclass(frozen=True)
class _Between:
    """What worked, what fails now, and what of a bisection's spec says so."""

    kind: Literal["revisions", "environments", "containers"]
    good: str
    directory: Path
    spec: Mapping[str, Any]


class Bisect(Stage):
    name = "bisect"

    def why_not(self, state: State) -> str:
        if state.request.good is not None:
            return ""
        if environment_of(state.request).isolated:
            return "no good end is known: give the container that worked, or its date, with --good"
        repository = repository_of(subject_of(state.request).cwd)
        if repository is None:
            return "no good end is known, and this is no git checkout: give what worked with --good"
        return "" if len(repository.main_line()) > 1 else "the repository has no older revision"

    def __call__(self, state: State) -> StageResult:
        between = _given(state)
        if between is not None:
            findings = self._bisected(state, between, *reduced_command(state))
            return self._result(state, findings, between)
        repository = repository_of(original(state).cwd)
        assert repository is not None
        for good in self._good_revisions(state, repository):
            between = _revisions(repository, good)
            findings = self._bisected(state, between, *reduced_command(state))
            if findings.status != "inconsistent":
                return self._result(state, findings, between)
            state.folder(self.name).rename(_refuted(state, good))
        if state.is_spent:
            return StageResult(self.name, "budget", f"no good revision yet: {state.is_spent}")
        tried = ", ".join(revision[:12] for revision in _candidates(repository))
        return StageResult(self.name, "no_answer", f"no revision was good of {tried}")

    def _good_revisions(self, state: State, repository: Repository) -> Iterator[str]:
        """Of older and older revisions those that never show the failure, on the reduced
        reproducer. One that a bisection then saw fail is not good after all, and an older one is
        next.
        """
        command, env = reduced_command(state)
        first = original(state)
        enough = smallest(state).enough_clean(_WRONGLY_GOOD)
        for revision in _candidates(repository):
            if state.is_spent:
                return
            if _refuted(state, revision).exists():
                continue
            with _checkout(state, revision) as cwd:
                there = replace(first, command=command, cwd=cwd, env=env)
                tally = self._tried(state, there, enough, f"good-{revision[:12]}")
            if not tally.reproduced and tally.clean >= enough:
                yield revision

    def _tried(self, state: State, what: ReproducerFound, enough: int, name: str) -> Tally:
        """Up to so many trials, fewer where one shows the failure."""
        folder = state.path / f"{state.folder(self.name).name}-{name}"
        report = run_command(
            state, what, stage=self.name, counted_as=CHECK, folder=folder, trials=enough
        )
        return report.tally

    def _bisected(
        self,
        state: State,
        between: _Between,
        command: str,
        env: Mapping[str, str],
        *,
        check: bool = False,
    ) -> Findings:
        """Of the reduced reproducer; `check`: of the original, whose trials are counted as such."""
        place = state.folder(self.name)
        if check:
            place = place.with_name(f"{place.name}-original")
        first = original(state)
        inside = first.cwd.resolve().relative_to(between.directory.resolve())
        where = first.cwd if between.kind == "containers" else inside
        # An interpreter by its path would be the one that fails, in each of them.
        if between.kind == "environments":
            command = command.replace(f"{_interpreter(state).parent}/", "")
        text = command if where == Path() else f"cd {shlex.quote(str(where))} && {command}"
        spec = validated(
            BisectSpec,
            {
                # Nobody knows whether an image has a bash.
                "command": ("/bin/sh" if between.kind == "containers" else "/bin/bash", "-c", text),
                "oracle": dict(first.oracle),
                "env": dict(env),
                "same_failure": True,
                "timeout": state.request.timeout,
                **between.spec,
            },
            file="solve",
        )
        counted = CHECK if check else self.name
        findings = run_bisection(
            ResolvedRequest(
                spec=spec,
                directory=between.directory,
                prefix=place,
                executor=state.executor(counted).open,
                listeners=state.listeners(self.name),
                say=lambda _text: None,
                resume=state.resume(place),
                budget=Budget(max_seconds=state.seconds_left(counted)),
            )
        )
        if findings.exit_code in _STOPPED:
            raise Stopped(Exit(findings.exit_code))
        return findings

    def _result(self, state: State, findings: Findings, between: _Between) -> StageResult:
        answer = {**findings.document(), "good_end": between.good, "between": between.kind}
        place = findings.output_dir
        if between.kind == "revisions" and len(findings.culprits) == 1 and place is not None:
            patch = Repository.on_host(between.directory).patch(str(findings.culprits[0]["bad"]))
            write_atomically(Path(place) / PATCH, patch)
        if findings.exit_code == Exit.BUDGET:
            return StageResult(
                self.name, "budget", "stopped before it was sure", place, answer=answer
            )
        if findings.exit_code == Exit.INFRASTRUCTURE:
            return StageResult(self.name, "failed", _last(findings), place, answer=answer)
        if findings.status not in {"found", "range", "pair"}:
            return StageResult(
                self.name,
                "no_answer",
                f"{findings.status}: {_last(findings)}",
                place,
                answer=answer,
            )
        if reduced_spec(state) is None:  # then all of this was seen on the original
            return StageResult(self.name, "done", "", place, answer=answer)
        if state.is_spent:
            why = f"not checked on the original: {state.is_spent}"
            return StageResult(self.name, "done", why, place, answer=answer)
        holds, why = self._checked(state, findings, between)
        status: Status = "done" if holds else "no_answer"
        return StageResult(self.name, status, why, place, answer={**answer, "original": holds})

    def _checked(self, state: State, findings: Findings, between: _Between) -> tuple[bool, str]:
        """The original, and not its reduction, between the two ends that are one change apart:
        whether it says the same, and what to say of that.
        """
        nearest = _nearest(findings, between)
        if nearest is None:
            return True, _NOT_ON_THE_ORIGINAL
        first = original(state)
        found = self._bisected(state, nearest, first.text, first.env, check=True)
        if found.status in {"found", "pair"}:
            return True, ""
        if found.exit_code in {Exit.BUDGET, Exit.INFRASTRUCTURE}:
            return True, f"not checked on the original: {_last(found) or found.status}"
        brings = f"{str(findings.culprits[0]['bad'])[:12]} brings the failure of the reduced"
        said = f"{found.status}: {_last(found)}"
        return False, f"{brings} reproducer, and not that of the original: {said}"


def _refuted(state: State, revision: str) -> Path:
    """Where the bisection lies that saw its good end fail."""
    return state.path / f"{state.folder('bisect').name}-not-good-{revision[:12]}"


def _given(state: State) -> _Between | None:
    """Between what `--good` names and what it fails in now; None where nothing was given."""
    asked, cwd = state.request, original(state).cwd
    if asked.good is None:
        return None
    containers = good_containers(asked)
    if containers is not None:
        mounts = tuple(f"{place}:{place}" for place in (cwd, state.path))
        containers = containers.model_copy(update={"mounts": (*containers.mounts, *mounts)})
        return _Between("containers", asked.good, cwd, {"containers": containers})
    environment = good_environment(asked)
    if environment is None:
        repository = repository_of(cwd)
        assert repository is not None  # or it would have been refused
        return _revisions(repository, asked.good)
    environments = EnvironmentsSpec(
        good=str(environment),
        bad=str(_environment_here(state)),
        index_url=asked.index_url,
        find_links=asked.find_links,
        no_index=asked.no_index,
    )
    return _Between("environments", asked.good, cwd, {"environments": environments})


def _revisions(repository: Repository, good: str, bad: str = "HEAD") -> _Between:
    top = Path(repository.where)
    package = PackageSpec(name=slug(top.name) or "repository", path=".", good=good, bad=bad)
    return _Between("revisions", good, top, {"packages": (package,)})


def _nearest(findings: Findings, between: _Between) -> _Between | None:
    """The two sides that a bisection found, as ends of another; None if unnamed."""
    if findings.status == "range" or findings.output_dir is None:
        return None
    if between.kind == "revisions":
        if len(findings.culprits) != 1:
            return None
        (culprit,) = findings.culprits
        top = Repository.on_host(between.directory)
        return _revisions(top, str(culprit["good"]), str(culprit["bad"]))
    if between.kind == "environments":
        sides = {side: str(Path(findings.output_dir) / f"{side}.txt") for side in ("good", "bad")}
        spec = {"environments": between.spec["environments"].model_copy(update=sides)}
        return replace(between, spec=spec)
    containers = between.spec["containers"]
    if containers.family is None or [c["package"] for c in findings.culprits] != ["container"]:
        return None
    (day,) = findings.culprits
    days = {"start_date": day["good"], "end_date": day["bad"]}
    return replace(between, spec={"containers": containers.model_copy(update=days)})


def _interpreter(state: State) -> Path:
    """The Python that the command names, else the program that it starts."""
    words = subject_of(state.request).words
    first = words_of(words)[0]
    return Path(python_of(words) or shutil.which(first) or first).absolute()


def _environment_here(state: State) -> Path:
    """The virtual environment of the command's program, or what its Python has."""
    program = _interpreter(state)
    environment = program.parent.parent
    if (environment / "pyvenv.cfg").is_file():
        return environment
    if "python" not in program.name or not program.is_file():
        raise _unknown_environment(program)
    freeze = (str(program), "-m", "pip", "freeze", "--all")
    listed = subprocess.run(freeze, capture_output=True, text=True, check=False)
    if listed.returncode:
        raise _unknown_environment(program)
    place = state.run.private / "environment.txt"
    write_atomically(place, listed.stdout)
    return place


def _unknown_environment(program: Path) -> UsageError:
    return UsageError(
        "what this command has installed is not known; name both with: aorta bisect --good-env A "
        "--bad-env B",
        where=str(program),
    )


@contextmanager
def _checkout(state: State, revision: str) -> Iterator[Path]:
    """The original's directory as it is in a revision, for as long as it is needed."""
    scratch = state.run.private / "trees"
    try:
        yield laid_out(revision, original(state).cwd, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _candidates(repository: Repository) -> Iterator[str]:
    """Older and older revisions, twice as far back each time; a tag where one lies about there."""
    history, tags = repository.main_line(), repository.tagged()
    distance, last = 1, len(history) - 1
    for _ in range(_MOST_ATTEMPTS):
        if distance >= last:
            yield history[last]
            return
        near = [at for at in range(distance, min(2 * distance, last)) if history[at] in tags]
        distance = near[0] if near else distance
        yield history[distance]
        distance *= 2


def _last(findings: Findings) -> str:
    return str(findings.warnings[-1]) if findings.warnings else ""
