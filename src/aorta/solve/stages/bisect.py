"""Which change brought it? Between a good end that is given, or found among older revisions, and what fails now."""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta.bisect.entry import bisect
from aorta.bisect.findings import Findings
from aorta.bisect.run import Request
from aorta.bisect.spec import BisectSpec, EnvironmentsSpec, PackageSpec
from aorta.core.documents import validated
from aorta.core.errors import UsageError
from aorta.core.exits import Exit
from aorta.core.names import slug
from aorta.core.outcome import Tally
from aorta.diverge.sides import laid_out
from aorta.engine.judge import KOfN
from aorta.engine.rundir import write_atomically
from aorta.run.running import RunPlan, run_trials
from aorta.solve.reproducer import original, reduced_command, smallest
from aorta.solve.state import StageResult, State, Stopped
from aorta.solve.subject import subject_of, workload_request
from aorta.workloads.trial import WorkloadRequest

CHECK = "bisect-original"
_STOPPED = {Exit.INTERRUPTED, Exit.TERMINATED}
_MOST_ATTEMPTS = 14
_WRONGLY_GOOD = 0.002  # of one revision that fails as often as the reproducer; a dozen are tried


@dataclass(frozen=True)
class Bisect:
    name: str = "bisect"

    def why_not(self, state: State) -> str:
        if not state.is_done("reproduce"):
            return "there is no failure to look for"
        if good_environment(state) is not None:
            return ""
        top, good = repository_of(original(state).cwd), state.request.good
        if top is None:
            return (
                "no good end is known, and this is no git checkout: give what worked with --good"
                if good is None
                else f"--good {good}: this is no file, and there is no git checkout to find it in"
            )
        if good is None and not _older(top, 1):
            return "the repository has no older revision"
        return ""

    def __call__(self, state: State) -> StageResult:
        environment = good_environment(state)
        if environment is not None:
            findings = self._bisected(state, original(state).cwd, _environments(state, environment))
            return self._result(state, findings, str(environment))
        top = repository_of(original(state).cwd)
        assert top is not None
        if state.request.good is not None:
            good = state.request.good
            return self._result(state, self._bisected(state, top, _revisions(top, good)), good)
        for good in self._good_revisions(state, top):
            findings = self._bisected(state, top, _revisions(top, good))
            if findings.status != "inconsistent":
                return self._result(state, findings, good)
            state.folder(self.name).rename(_refuted(state, good))
        if state.is_spent:
            return StageResult(self.name, "budget", f"no good revision yet: {state.is_spent}")
        tried = ", ".join(revision[:12] for revision in _candidates(top))
        return StageResult(self.name, "no_answer", f"no revision was good of {tried}")

    def _good_revisions(self, state: State, top: Path) -> Iterator[str]:
        """Of older and older revisions those that never show the failure, on the reduced reproducer. One that a bisection
        then saw fail is not good after all, and an older one is next.
        """
        command, env = reduced_command(state)
        first = original(state)
        enough = smallest(state).enough_clean(_WRONGLY_GOOD)
        for revision in _candidates(top):
            if state.is_spent:
                return
            if _refuted(state, revision).exists():
                continue
            tree = laid_out(revision, first.cwd, state.run.private / "trees")
            request = workload_request(command, tree, state.request, env=env, oracle=first.oracle)
            tally = self._tried(state, request, enough, f"good-{revision[:12]}")
            shutil.rmtree(tree, ignore_errors=True)
            if not tally.reproduced and tally.clean >= enough:
                yield revision

    def _tried(self, state: State, request: WorkloadRequest, enough: int, name: str) -> Tally:
        """Up to so many trials, fewer where one shows the failure."""
        folder = state.path / f"{state.folder(self.name).name}-{name}"
        plan = RunPlan(
            request,
            trials=1,
            results_dir=state.path,
            judge=KOfN(1, enough),
            run_dir=folder,
            budget=state.budget(CHECK),
        )
        report = run_trials(
            plan,
            state.executor(CHECK),
            state.means.listeners(self.name),
            resume=state.resume(folder),
        )
        if report.ending.exit_code in _STOPPED:
            raise Stopped(report.ending.exit_code)
        return report.tally

    def _bisected(self, state: State, directory: Path, between: Mapping[str, Any]) -> Findings:
        place = state.folder(self.name)
        command, env = reduced_command(state)
        first = original(state)
        inside = first.cwd.resolve().relative_to(directory.resolve())
        text = command if inside == Path() else f"cd {shlex.quote(str(inside))} && {command}"
        spec = validated(
            BisectSpec,
            {
                "command": ("/bin/bash", "-c", text),
                "oracle": dict(first.oracle),
                "env": dict(env),
                "same_failure": True,
                "timeout": state.request.timeout,
                **between,
            },
            file="solve",
        )
        findings = bisect(
            Request(
                spec=spec,
                directory=directory,
                prefix=place,
                executor=state.executor(self.name),
                listeners=lambda: state.means.listeners(self.name),
                say=lambda _text: None,
                resume=state.resume(place),
                budget=state.budget(self.name),
            )
        )
        if findings.exit_code in _STOPPED:
            raise Stopped(Exit(findings.exit_code))
        return findings

    def _result(self, state: State, findings: Findings, good: str) -> StageResult:
        answer = {**findings.document(), "good_end": good}
        place = findings.output_dir
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
        checked = self._checked(state, findings)
        return StageResult(
            self.name, "done", checked.pop("why", ""), place, answer={**answer, "original": checked}
        )

    def _checked(self, state: State, findings: Findings) -> dict[str, Any]:
        """The original, and not its reduction, at both sides of the one change that was found."""
        first = original(state)
        if len(findings.culprits) != 1 or not state.is_done("reduce"):
            return {}
        if good_environment(state) is not None:
            return {"why": "seen on the reduced reproducer, not on the original"}
        if state.is_spent:
            return {"why": f"not checked on the original: {state.is_spent}"}
        (culprit,) = findings.culprits
        seen: dict[str, Any] = {}
        for side, wanted in (("bad", True), ("good", False)):
            tree = laid_out(str(culprit[side]), first.cwd, state.run.private / "trees")
            request = workload_request(
                first.command, tree, state.request, env=first.env, oracle=first.oracle
            )
            tally = self._tried(state, request, first.enough_clean(), f"original-{side}")
            shutil.rmtree(tree, ignore_errors=True)
            seen[side] = {"reproduced": tally.reproduced, "of": tally.evidence}
            if (tally.reproduced > 0) is not wanted:
                how = "does not fail" if wanted else "fails too"
                seen["why"] = f"on the original it is otherwise: {culprit[side][:12]} {how} there"
        return seen


def _refuted(state: State, revision: str) -> Path:
    """Where the bisection lies that saw its good end fail."""
    return state.path / f"{state.folder('bisect').name}-not-good-{revision[:12]}"


def good_environment(state: State) -> Path | None:
    """`--good` as a requirements or lock file, an env.json or a virtual environment; None where it is a revision."""
    if state.request.good is None:
        return None
    path = state.request.directory / state.request.good
    return path if path.is_file() or (path / "pyvenv.cfg").is_file() else None


def _environments(state: State, good: Path) -> dict[str, Any]:
    """From the good one to the one that the command runs in now."""
    words = shlex.split(reduced_command(state)[0])
    named = [word for word in subject_of(state.request).words if "python" in Path(word).name]
    python = Path(shutil.which((named or words or ["python"])[0]) or sys.executable)
    here = python.absolute().parent.parent
    bad: Path = here
    if not (here / "pyvenv.cfg").is_file():
        bad = state.run.private / "environment.txt"
        listed = subprocess.run(
            (str(python), "-m", "pip", "freeze", "--all"),
            capture_output=True,
            text=True,
            check=False,
        )
        write_atomically(bad, listed.stdout)
    asked = state.request
    return {
        "environments": EnvironmentsSpec(
            good=str(good),
            bad=str(bad),
            index_url=asked.index_url,
            find_links=asked.find_links,
            no_index=asked.no_index,
        )
    }


def _revisions(top: Path, good: str) -> dict[str, Any]:
    name = slug(top.name) or "repository"
    return {"packages": (PackageSpec(name=name, path=".", good=good, bad="HEAD"),)}


def repository_of(directory: Path) -> Path | None:
    """The top of the checkout that this directory lies in."""
    try:
        return Path(_git(directory, "rev-parse", "--show-toplevel")).resolve()
    except UsageError:
        return None


def _candidates(top: Path) -> Iterator[str]:
    """Older and older revisions, twice as far back each time; a tag where one lies about there."""
    history = _git(top, "rev-list", "--first-parent", "HEAD").split()
    tags = _tags(top)
    distance, last = 1, len(history) - 1
    for _ in range(_MOST_ATTEMPTS):
        if distance >= last:
            yield history[last]
            return
        near = [at for at in range(distance, min(2 * distance, last)) if history[at] in tags]
        distance = near[0] if near else distance
        yield history[distance]
        distance *= 2


def _tags(top: Path) -> set[str]:
    listed = _git(top, "for-each-ref", "--format=%(objectname) %(*objectname)", "refs/tags")
    return {line.split()[-1] for line in listed.splitlines() if line.split()}


def _older(top: Path, count: int) -> bool:
    return int(_git(top, "rev-list", "--count", "HEAD") or 0) > count


def _git(directory: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ("git", "-C", str(directory), *words), capture_output=True, text=True, check=False
        )
    except OSError as wrong:
        raise UsageError(f"git cannot be run: {wrong.strerror}") from None
    if done.returncode:
        raise UsageError(f"git {words[0]} failed: {done.stderr.strip()}", where=str(directory))
    return done.stdout.strip()


def _last(findings: Findings) -> str:
    return str(findings.warnings[-1]) if findings.warnings else ""
