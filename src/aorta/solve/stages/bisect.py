"""Which change brought it? Between a good end, given or found, and what fails now."""

import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from aorta.bisect.findings import Findings
from aorta.bisect.request import run_bisection
from aorta.bisect.run import ResolvedRequest
from aorta.bisect.spec import BisectSpec, ContainersSpec, EnvironmentsSpec, PackageSpec
from aorta.core.documents import validated
from aorta.core.errors import Exit, UsageError
from aorta.core.names import slug
from aorta.core.trial import Environment
from aorta.engine.events import Reason
from aorta.engine.question import Budget
from aorta.engine.rundir import write_atomically
from aorta.reduce.launcher import python_of, words_of
from aorta.runtimes import image_registry
from aorta.runtimes.engine import ENGINES, is_at_hand
from aorta.runtimes.git import Repository, laid_out
from aorta.solve.request import SolveRequest
from aorta.solve.state import Stage, StageResult, State, Status, Stopped
from aorta.solve.subject import (
    Subject,
    environment_of,
    original,
    reduced_in_place,
    reduced_spec,
    run_command,
    smallest,
    subject_of,
)

PATCH = "culprit.diff"
CHECK = "bisect-original"
_NOT_ON_THE_ORIGINAL = "seen on the reduced reproducer, not on the original"
_STOPPED = {Exit.INTERRUPTED: Reason.INTERRUPTED, Exit.TERMINATED: Reason.TERMINATED}
_MOST_ATTEMPTS = 14
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_WRONGLY_GOOD = 0.002  # of one revision that fails as often as the reproducer; a dozen are tried


@dataclass(frozen=True)
class Between:
    """What worked, what fails now, and what of a bisection's spec says so."""

    kind: Literal["revisions", "environments", "containers"]
    good: str
    directory: Path
    spec: Mapping[str, Any]


class Bisect(Stage):
    name = "bisect"

    def why_never(self, request: SolveRequest) -> str:
        if request.good is not None:
            return ""
        if environment_of(request).isolated:
            return "no good end is known: give the container that worked with --good"
        repository = repository_of(subject_of(request).cwd)
        if repository is None:
            return "no good end is known, and this is no git checkout: give what worked with --good"
        return "" if len(repository.main_line()) > 1 else "the repository has no older revision"

    def __call__(self, state: State) -> StageResult:
        between = good_end(state.request)
        if between is None:
            repository = repository_of(original(state).cwd)
            assert repository is not None
            good = self._good_revision(state, repository)
            if good is None and state.is_spent:
                return StageResult(self.name, "budget", f"no good revision yet: {state.is_spent}")
            if good is None:
                tried = ", ".join(revision[:12] for revision in _candidates(repository))
                return StageResult(self.name, "no_answer", f"no revision was good of {tried}")
            between = _revisions(repository, good)
        findings = self._bisected(state, between, reduced_in_place(state), self.name)
        return self._result(state, findings, between)

    def _good_revision(self, state: State, repository: Repository) -> str | None:
        """The first of older and older revisions that never shows the failure."""
        enough, reduced = smallest(state).enough_clean(_WRONGLY_GOOD), reduced_in_place(state)
        for revision in _candidates(repository):
            if state.is_spent:
                return None
            with _checkout(state, revision) as cwd:
                tally = run_command(
                    state,
                    replace(reduced, cwd=cwd),
                    stage=self.name,
                    counted_as=CHECK,
                    folder=state.path / f"{state.folder(self.name).name}-good-{revision[:12]}",
                    trials=enough,
                ).tally
            if not tally.reproduced and tally.clean >= enough:
                return revision
        return None

    def _bisected(self, state: State, between: Between, what: Subject, counted_as: str) -> Findings:
        """Of the reduced reproducer, or of the original, whose trials are counted as `CHECK`."""
        place, command = state.folder(self.name), what.text
        if counted_as == CHECK:
            place = place.with_name(f"{place.name}-original")
        inside = what.cwd.resolve().relative_to(between.directory.resolve())
        where = what.cwd if between.kind == "containers" else inside
        # An interpreter by its path would be the one that fails, in each of them.
        if between.kind == "environments":
            command = command.replace(f"{_interpreter(subject_of(state.request)).parent}/", "")
        more = dict(between.spec)
        if images := more.get("containers"):
            mounts = (f"{place}:{place}" for place in (what.cwd, state.path))
            more["containers"] = images.model_copy(update={"mounts": (*images.mounts, *mounts)})
        text = command if where == Path() else f"cd {shlex.quote(str(where))} && {command}"
        spec = validated(
            BisectSpec,
            {
                # Nobody knows whether an image has a bash.
                "command": ("/bin/sh" if between.kind == "containers" else "/bin/bash", "-c", text),
                "oracle": dict(what.oracle or {}),
                "env": dict(what.env),
                "same_failure": True,
                "timeout": state.request.timeout,
                **more,
            },
            file="solve",
        )
        findings = run_bisection(
            ResolvedRequest(
                spec=spec,
                directory=between.directory,
                prefix=place,
                executor=state.executor(counted_as).open,
                listeners=state.listeners(self.name),
                say=lambda _text: None,
                resume=state.resume(place),
                budget=Budget(max_seconds=state.seconds_left(counted_as)),
            )
        )
        if reason := _STOPPED.get(Exit(findings.exit_code)):
            raise Stopped(reason)
        return findings

    def _result(self, state: State, findings: Findings, between: Between) -> StageResult:
        answer = {**findings.document(), "good_end": between.good, "between": between.kind}
        place = findings.output_dir
        if between.kind == "revisions" and len(findings.culprits) == 1 and place is not None:
            patch = Repository.on_host(between.directory).patch(str(findings.culprits[0]["bad"]))
            write_atomically(Path(place) / PATCH, patch)
        status, why = _ended(findings)
        # Without a reduction all of this was seen on the original.
        if status == "done" and reduced_spec(state) is not None:
            holds, why = self._checked(state, findings, between)
            status, answer = "done" if holds else "no_answer", {**answer, "original": holds}
        return StageResult(self.name, status, why, place, answer=answer)

    def _checked(self, state: State, findings: Findings, between: Between) -> tuple[bool, str]:
        """Whether the original says the same on both sides of the change, and what to say of it."""
        if state.is_spent:
            return True, f"not checked on the original: {state.is_spent}"
        nearest = _nearest(findings, between)
        if nearest is None:
            return True, _NOT_ON_THE_ORIGINAL
        found = self._bisected(state, nearest, original(state), CHECK)
        if found.status in {"found", "pair"}:
            return True, ""
        if found.exit_code in {Exit.BUDGET, Exit.INFRASTRUCTURE}:
            return True, f"not checked on the original: {_last(found) or found.status}"
        brings = f"{str(findings.culprits[0]['bad'])[:12]} brings the failure of the reduced"
        said = f"{found.status}: {_last(found)}"
        return False, f"{brings} reproducer, and not that of the original: {said}"


def _ended(findings: Findings) -> tuple[Status, str]:
    if findings.exit_code == Exit.BUDGET:
        return "budget", "stopped before it was sure"
    if findings.exit_code == Exit.INFRASTRUCTURE:
        return "failed", _last(findings)
    if findings.status not in {"found", "range", "pair"}:
        return "no_answer", f"{findings.status}: {_last(findings)}"
    return "done", ""


# -- what worked


def good_end(request: SolveRequest) -> Between | None:
    """What `--good` names; None where nothing was given. Raises UsageError where it is nowhere."""
    good, environment = request.good, environment_of(request)
    if good is None:
        return None
    subject = subject_of(request)
    if environment.image is not None:
        return Between("containers", good, subject.cwd, {"containers": _images(good, environment)})
    path = request.directory / good
    if path.is_file() or (path / "pyvenv.cfg").is_file():
        program = _interpreter(subject)
        here = program.parent.parent
        if not (here / "pyvenv.cfg").is_file():
            raise UsageError(
                "this command runs in no virtual environment, and what it has installed is not "
                "known; name both with: aorta bisect --good-env A --bad-env B",
                where=str(program),
            )
        environments = EnvironmentsSpec(
            good=str(path),
            bad=str(here),
            index_url=request.index_url,
            find_links=request.find_links,
            no_index=request.no_index,
        )
        return Between("environments", good, subject.cwd, {"environments": environments})
    repository = None if environment.isolated else repository_of(subject.cwd)
    if repository is None:
        raise UsageError(
            f"found {good!r}, which is no file, and there is no git checkout to find it in; "
            "expected a revision, a requirements file, an env.json or a virtual environment, or, "
            "beside --environment image:REF, the image that worked",
            where="--good",
        )
    repository.resolve(good)
    return _revisions(repository, good)


def repository_of(directory: Path) -> Repository | None:
    """The checkout that this directory lies in."""
    try:
        return Repository.on_host(directory)
    except UsageError:
        return None


def _images(passing: str, failing: Environment) -> ContainersSpec:
    """Images whose tags differ by a date span the days between; any other must exist."""
    assert failing.image is not None
    about: dict[str, Any] = {
        "runtime": failing.kind.value,
        "mounts": failing.mounts,
        "options": failing.options,
    }
    template = _DATE.sub("{date}", failing.image)
    if template != failing.image and _DATE.sub("{date}", passing) == template:
        about |= {"family": "containers", "url_template": template}
        days = (_DATE.findall(image)[-1] for image in (passing, failing.image))
        return ContainersSpec(**about, **dict(zip(("start_date", "end_date"), days, strict=True)))
    there = failing.kind not in ENGINES or is_at_hand(replace(failing, image=passing))
    if not there and not image_registry.exists(passing):
        raise UsageError(
            f"found {passing!r}, which {ENGINES[failing.kind].command} does not have, and no "
            "registry says that it has it; expected the image that worked",
            where="--good",
        )
    return ContainersSpec(passing=passing, failing=failing.image, **about)


def _interpreter(subject: Subject) -> Path:
    """The Python that the command names, else the program that it starts."""
    first = words_of(subject.words)[0]
    return Path(python_of(subject.words) or shutil.which(first) or first).absolute()


def _revisions(repository: Repository, good: str, bad: str = "HEAD") -> Between:
    top = Path(repository.where)
    package = PackageSpec(name=slug(top.name) or "repository", path=".", good=good, bad=bad)
    return Between("revisions", good, top, {"packages": (package,)})


def _nearest(findings: Findings, between: Between) -> Between | None:
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


@contextmanager
def _checkout(state: State, revision: str) -> Iterator[Path]:
    """The original's directory as it is in a revision, for as long as it is needed."""
    scratch = state.run.private / "trees"
    try:
        yield laid_out(revision, original(state).cwd, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _candidates(repository: Repository) -> Iterator[str]:
    """Older and older revisions, twice as far back each time."""
    history = repository.main_line()
    for exponent in range(_MOST_ATTEMPTS):
        distance = min(2**exponent, len(history) - 1)
        yield history[distance]
        if distance == len(history) - 1:
            return


def _last(findings: Findings) -> str:
    return str(findings.warnings[-1]) if findings.warnings else ""
