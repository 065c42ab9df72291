"""One run: what was asked, its directory with the logs, its searches one after the other, and what
is written in the end.

Checkouts, containers and images are the business of those who use it.
"""

import json
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from aorta.bisect.findings import Findings, differently, without_contradictions
from aorta.bisect.investigation import MakeVersionSets, SearchSetup
from aorta.bisect.metric import Metric, is_measured
from aorta.bisect.report import ShownStates, headline, link_probes, link_side, report_lines
from aorta.bisect.spec import BisectSpec, only_the_same_failure
from aorta.bisect.stages import Stages, files_named_in, open_session
from aorta.bisect.summary import SUMMARY, summary_of
from aorta.bisect.trials import ProbedCommand, for_bisection
from aorta.bisect.watching import (
    MISTAKES,
    MISTAKES_IN_ENVIRONMENTS,
    Builds,
    FirstFailure,
    LogFiles,
    Say,
    StepsLeft,
)
from aorta.core.errors import ResumeError
from aorta.core.oracle import known_failure
from aorta.core.trial import LOCAL
from aorta.engine.events import Listener, Reason
from aorta.engine.question import Budget
from aorta.engine.rundir import RunDir, write_atomically, write_json
from aorta.engine.session import Resume
from aorta.executors import Executor
from aorta.runtimes.git import without_credentials
from aorta.search.bisection import Bisection

_ASKED = "request.json"


@dataclass(frozen=True)
class ResolvedRequest:
    """Everything a run needs. `executor` is for the whole run; `listeners` for each stage."""

    spec: BisectSpec
    directory: Path
    prefix: Path
    executor: Callable[[], Executor]
    listeners: Callable[[], Sequence[Listener]] = tuple
    say: Say = lambda _: None
    resume: Resume | None = None
    is_named: bool = True  # the prefix, by whoever asks
    checks: bool = True
    budget: Budget = field(default_factory=Budget)
    summary: bool = False


class _OneInterrupt:
    """While this lasts the first Ctrl-C stops the search, and a second one does not stop what is
    written then: the result and how to go on. A third one does.
    """

    def __init__(self, say: Say) -> None:
        self._say, self._count = say, 0
        self._before: Any = None

    def begin(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._interrupted)

    def end(self) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _interrupted(self, *_: object) -> None:
        self._count += 1
        if self._count == 2:
            self._say("it is being stopped; what is known is written first")
        else:
            raise KeyboardInterrupt


class BisectRun:
    """One open run directory with its logs; used by every way in."""

    def __init__(self, request: ResolvedRequest) -> None:
        self.request = request
        self.session = open_session(request.prefix, request.resume, is_named=request.is_named)
        self.logs = LogFiles(self.session.path)
        self._interrupts = _OneInterrupt(self.say)
        self.image_of: Callable[[str], str] = str  # of a day, once they are listed
        self.builds = Builds(self.say)
        self.stages = Stages(
            self.session,
            fingerprint(request),
            request.executor,
            self._listeners,
            self.builds,
            budget=request.budget,
            same_failure=only_the_same_failure(request.spec),
            expected=known_failure(request.spec.oracle),
        )
        between = request.spec.environments is not None
        mistakes = MISTAKES_IN_ENVIRONMENTS if between else MISTAKES
        self._first_failure = FirstFailure(lambda: self.stages.current, self.say, mistakes)
        oracle = request.spec.oracle
        self.metric = Metric(oracle, request.spec.confidence) if is_measured(oracle) else None

    def __enter__(self) -> Self:
        self.session.__enter__()
        self._interrupts.begin()
        try:
            self.stages.check_question()
            keep_request(self.request, self.session.run)
            self.say(f"whole outputs are written to {self.logs.debug_path}")
        except BaseException as wrong:
            self.__exit__(type(wrong))
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._interrupts.end()
        self.session.__exit__(kind)
        self.logs.close()

    def say(self, text: str) -> None:
        self.request.say(text)
        self.logs.say(text)

    def command(self) -> ProbedCommand:
        spec = self.request.spec
        return ProbedCommand(
            spec.command,
            for_bisection(self.metric or spec.oracle),
            LOCAL,
            self.stages.path,
            dict(spec.env),
            spec.timeout,
        )

    def setting(
        self, version_sets: MakeVersionSets, *, command: ProbedCommand | None = None
    ) -> SearchSetup:
        request = self.request
        return SearchSetup(
            self.stages,
            command or self.command(),
            version_sets,
            request.spec.confidence,
            check_bad_end=not request.spec.skip_precondition_checks,
            checks=request.checks,
            confirmations=request.spec.confirmations,
            on_search=self._show_search,
            metric=self.metric,
            say=self.say,
        )

    def _show_search(self, search: Bisection) -> list[Listener]:
        """The first search is over the whole timeline; later ones look closer at a part of it."""
        place = self.stages.path / "timeline.json"
        if not place.exists():
            write_json(place, "aorta.timeline/1", search.timeline.to_json())
        return [StepsLeft(search, self.say)]

    def write(self, findings: Findings, shown: ShownStates) -> Findings:
        """The artifacts, also of a run that was cut short; returns the findings as written."""
        path, answers = self.stages.path, self.stages.answers
        metric = self.metric.document() if self.metric else None
        records = [r for answer in answers.values() for r in answer.records]
        findings = replace(
            without_contradictions(findings, records),
            output_dir=str(path),
            metric=metric,
            failed_differently=differently(records),
            warnings=(*findings.warnings, *self._why_cut_short(findings)),
        )
        for name, answer in answers.items():
            link_probes(path, self.stages.stage_path(name), answer.records)
        sides = {
            side: link_side(path, side, self.stages.stage_path(stage), answers[stage].records, key)
            for side, (stage, key) in shown.items()
            if any(record.point.config_key == key for record in answers[stage].records)
        }
        write_json(path / "result.json", "aorta.bisect/1", findings.document())
        if self.request.summary:
            self._write_summary(findings)
        lines = report_lines(findings, records, sides)
        write_atomically(path / "report.md", "\n".join(lines) + "\n")
        self.logs.say(headline(findings.status, findings.culprits, findings.confidence))
        self.session.run.describe(status=findings.status)
        return findings

    def _write_summary(self, findings: Findings) -> None:
        content = summary_of(
            findings, self.stages.answers, self.image_of, self.stages.stage_path, self.builds.took
        )
        write_atomically(self.stages.path / SUMMARY, json.dumps(content))

    def _why_cut_short(self, findings: Findings) -> list[str]:
        """What was in the way, such as git that could not check a commit out."""
        cut = self.stages.interrupted
        if cut is None or cut.ending.reason is not Reason.INFRASTRUCTURE:
            return []
        detail = cut.ending.detail
        is_said = any(detail in warning for warning in findings.warnings)
        return [] if is_said or not detail else [detail]

    def _listeners(self) -> list[Listener]:
        kept = self.logs.listeners(lambda: self.stages.current)
        return [*self.request.listeners(), *kept, self._first_failure]


def keep_request(request: ResolvedRequest, run: RunDir) -> None:
    """The request, so that `--resume` needs the directory alone. Variables may be secrets."""
    asked = {
        "spec": _without_tokens(request.spec).model_dump_json(),
        "directory": str(request.directory),
        "checks": request.checks,
    }
    place = run.private / _ASKED
    if not place.exists():
        place.touch(mode=0o600)
        place.write_text(json.dumps(asked), encoding="utf-8")
    if any((folder / ".git").exists() for folder in run.path.parents):
        write_atomically(
            run.path / ".gitignore", "*\n"
        )  # no untracked files in the user's repository


def _without_tokens(spec: BisectSpec) -> BisectSpec:
    """Remotes without their credentials: those stay with whoever gave them."""
    packages = tuple(
        package.model_copy(update={"remote": without_credentials(package.remote)})
        if package.remote
        else package
        for package in spec.packages
    )
    return spec.model_copy(update={"packages": packages})


def kept_request(directory: Path) -> dict[str, Any]:
    """The fields of the request that a run directory was made for."""
    place = RunDir(directory).private / _ASKED
    try:
        asked = json.loads(place.read_text(encoding="utf-8"))
    except OSError:
        raise ResumeError(
            "it does not say what was asked; give the whole command line again",
            where=str(directory),
        ) from None
    return {
        "spec": BisectSpec.model_validate_json(asked["spec"]),
        "directory": Path(asked["directory"]),
        "checks": asked["checks"],
    }


def fingerprint(request: ResolvedRequest) -> dict[str, object]:
    """What makes two runs the same question; a resumed run must agree in all of it."""
    spec = request.spec
    content = _without_tokens(spec).model_dump(
        mode="json", exclude={"command", "timeout", "build_timeout"}
    )
    return {
        "command": list(spec.command),
        "files of the command": _files(request),
        "spec": content,
        **_sides_of(request),
    }


def _sides_of(request: ResolvedRequest) -> dict[str, object]:
    """Another content of a file is another environment."""
    spec = request.spec.environments
    if spec is None:
        return {}
    return {"environments": files_named_in((spec.good, spec.bad), request.directory)}


def _files(request: ResolvedRequest) -> dict[str, str]:
    containers = request.spec.containers
    mounts = containers.mounts if containers else ()
    return files_named_in(request.spec.command, request.directory, mounts)
