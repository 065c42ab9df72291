"""Which change brought it? Between a good end that is given, or found among older revisions, and what fails now."""

import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
from aorta.engine.judge import KOfN
from aorta.engine.rundir import write_atomically
from aorta.run.running import RunPlan, run_trials
from aorta.runtimes.git import Repository, laid_out
from aorta.solve.good_end import good_environment, repository_of
from aorta.solve.reproducer import original, reduced_command, smallest
from aorta.solve.state import StageResult, State, Status, Stopped
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
        if state.request.good is not None:
            return ""
        repository = repository_of(original(state).cwd)
        if repository is None:
            return "no good end is known, and this is no git checkout: give what worked with --good"
        return "" if len(repository.main_line()) > 1 else "the repository has no older revision"

    def __call__(self, state: State) -> StageResult:
        environment = good_environment(state.request)
        if environment is not None:
            findings = self._bisected(state, original(state).cwd, _environments(state, environment))
            return self._result(state, findings, str(environment))
        repository = repository_of(original(state).cwd)
        assert repository is not None
        top = Path(repository.where)
        if state.request.good is not None:
            good = state.request.good
            return self._result(state, self._bisected(state, top, _revisions(top, good)), good)
        for good in self._good_revisions(state, repository):
            findings = self._bisected(state, top, _revisions(top, good))
            if findings.status != "inconsistent":
                return self._result(state, findings, good)
            state.folder(self.name).rename(_refuted(state, good))
        if state.is_spent:
            return StageResult(self.name, "budget", f"no good revision yet: {state.is_spent}")
        tried = ", ".join(revision[:12] for revision in _candidates(repository))
        return StageResult(self.name, "no_answer", f"no revision was good of {tried}")

    def _good_revisions(self, state: State, repository: Repository) -> Iterator[str]:
        """Of older and older revisions those that never show the failure, on the reduced reproducer. One that a bisection
        then saw fail is not good after all, and an older one is next.
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
                request = workload_request(
                    command, cwd, state.request, env=env, oracle=first.oracle
                )
                tally = self._tried(state, request, enough, f"good-{revision[:12]}")
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
        seen, why = self._checked(state, findings)
        answer["original"] = seen
        refuted = [side for side in seen if (seen[side]["reproduced"] > 0) is not (side == "bad")]
        status: Status = "no_answer" if refuted else "done"
        return StageResult(self.name, status, why, place, answer=answer)

    def _checked(self, state: State, findings: Findings) -> tuple[dict[str, Any], str]:
        """The original, and not its reduction, at both sides of the one change that was found; and what to say of it."""
        first = original(state)
        if len(findings.culprits) != 1 or not state.is_done("reduce"):
            return {}, ""
        if good_environment(state.request) is not None:
            return {}, "seen on the reduced reproducer, not on the original"
        if state.is_spent:
            return {}, f"not checked on the original: {state.is_spent}"
        (culprit,) = findings.culprits
        seen: dict[str, Any] = {}
        why = ""
        for side, wanted in (("bad", True), ("good", False)):
            with _checkout(state, str(culprit[side])) as cwd:
                request = workload_request(
                    first.command, cwd, state.request, env=first.env, oracle=first.oracle
                )
                tally = self._tried(state, request, first.enough_clean(), f"original-{side}")
            seen[side] = {"reproduced": tally.reproduced, "of": tally.evidence}
            if (tally.reproduced > 0) is not wanted:
                how = "does not fail" if wanted else "fails too"
                why = (
                    f"{str(culprit['bad'])[:12]} brings the failure of the reduced reproducer, and not that of "
                    f"the original: {str(culprit[side])[:12]} {how} there"
                )
        return seen, why


def _refuted(state: State, revision: str) -> Path:
    """Where the bisection lies that saw its good end fail."""
    return state.path / f"{state.folder('bisect').name}-not-good-{revision[:12]}"


def _environments(state: State, good: Path) -> dict[str, Any]:
    """From the good one to the one that the command runs in now."""
    asked = state.request
    return {
        "environments": EnvironmentsSpec(
            good=str(good),
            bad=str(_environment_here(state)),
            index_url=asked.index_url,
            find_links=asked.find_links,
            no_index=asked.no_index,
        )
    }


def _environment_here(state: State) -> Path:
    """The virtual environment of the program that the command starts, or what its Python has installed."""
    words = subject_of(state.request).words
    named = next((word for word in words if "python" in Path(word).name), words[0])
    program = Path(shutil.which(named) or named).absolute()
    environment = program.parent.parent
    if (environment / "pyvenv.cfg").is_file():
        return environment
    if "python" not in program.name or not program.is_file():
        raise _unknown_environment(named)
    freeze = (str(program), "-m", "pip", "freeze", "--all")
    listed = subprocess.run(freeze, capture_output=True, text=True, check=False)
    if listed.returncode:
        raise _unknown_environment(named)
    place = state.run.private / "environment.txt"
    write_atomically(place, listed.stdout)
    return place


def _unknown_environment(program: str) -> UsageError:
    return UsageError(
        "what this command has installed is not known; name both with: aorta bisect --good-env A --bad-env B",
        where=program,
    )


def _revisions(top: Path, good: str) -> dict[str, Any]:
    name = slug(top.name) or "repository"
    return {"packages": (PackageSpec(name=name, path=".", good=good, bad="HEAD"),)}


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
