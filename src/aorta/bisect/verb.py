"""The verb as a library: a request in, findings and a directory of artifacts out."""

import errno
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from aorta.bisect.cache import OutcomeCache, files_named_in
from aorta.bisect.experiment import ProbedCommand
from aorta.bisect.findings import Findings, findings_of, levels_found
from aorta.bisect.git import no_repository_named
from aorta.bisect.host import (
    host_packages,
    imported_from_the_checkout,
    reproduce_on_host,
    with_own_files,
)
from aorta.bisect.investigation import Outcome, Setting, investigate
from aorta.bisect.links import link_probes, link_side
from aorta.bisect.meaning import for_bisection
from aorta.bisect.metric import Metric, check_samples, is_measured
from aorta.bisect.package import Package
from aorta.bisect.report import headline, report_lines
from aorta.bisect.spec import BisectSpec
from aorta.bisect.stages import Stages, Workplace, open_session
from aorta.bisect.trees import HostTrees
from aorta.bisect.watching import FirstFailure, LogFiles, Say, StepsLeft
from aorta.core.errors import InfrastructureError, ResumeError, UsageError
from aorta.core.oracle import ExitCodeOracle
from aorta.core.trial import LOCAL
from aorta.engine.events import Listener
from aorta.engine.question import Budget
from aorta.engine.rundir import PRIVATE, RunDir, write_atomically, write_json
from aorta.engine.session import Resume
from aorta.executors import Executor
from aorta.search.belief import Weights
from aorta.search.bisecting import Bisection

_ASKED = "request.json"
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})


@dataclass(frozen=True)
class Request:
    """Everything a run needs. `executor` and `listeners` make fresh ones for each stage."""

    spec: BisectSpec
    directory: Path
    prefix: Path
    executor: Callable[[], Executor]
    listeners: Callable[[], Sequence[Listener]] = tuple
    say: Say = lambda _: None
    resume: Resume | None = None
    cache: Path | None = None
    checks: bool = True
    budget: Budget = field(default_factory=Budget)
    on_belief: Callable[[Weights], None] = lambda _: None  # for a view of it


def bisect(request: Request) -> Findings:
    """Run it to its end. Checkouts, containers and images of the run are gone afterwards, however it ended."""
    _check(request.spec)
    with no_repository_named():
        return _bisect(request)


def _bisect(request: Request) -> Findings:
    try:
        if request.spec.containers is not None:
            from aorta.bisect.containers import bisect_in_containers

            return bisect_in_containers(request)
        return _bisect_on_host(request)
    except OSError as wrong:
        if wrong.errno not in _DISK:
            raise
        place = str(wrong.filename or request.prefix)
        raise InfrastructureError(f"{wrong.strerror}; mend that and resume", where=place) from None


def _check(spec: BisectSpec) -> None:
    if not spec.command:
        raise UsageError("there is no command to test with; write it after --")
    if not spec.packages and spec.containers is None:
        raise UsageError("there is nothing to bisect; give --good and --bad, --container or --spec")
    dated = spec.containers is not None and spec.containers.family is not None
    if is_measured(spec.oracle) and (dated or spec.skip_precondition_checks):
        check_samples(spec.oracle)


def _bisect_on_host(request: Request) -> Findings:
    spec = request.spec
    packages = host_packages(
        spec.packages,
        request.directory,
        find_fix=spec.find_fix,
        first_parent=spec.first_parent,
    )
    with Run(request) as run:
        root = run.stages.path / PRIVATE / "trees"
        trees = HostTrees(root, packages, build_timeout=spec.build_timeout)
        command = replace(run.command(), command=_own_command(run, packages))
        setting = run.setting(
            lambda those: HostTrees(root, those, build_timeout=spec.build_timeout), command=command
        )
        try:
            outcome = investigate(setting, packages)
        finally:
            trees.remove()
        findings = findings_of(outcome, list(run.stages.answers.values()))
        reproduce = {
            side: reproduce_on_host(outcome.last.packages, command.command, versions)
            for side, versions in (("good", findings.good), ("bad", findings.bad))
        }
        return run.write(replace(findings, reproduce=reproduce), shown_of(outcome))


def _own_command(run: "Run", packages: Sequence[Package]) -> tuple[str, ...]:
    request = run.request
    given = request.spec.command
    package = next((p for p in packages if p.repository), None)
    if package is None or package.repository is None:
        return given
    command = with_own_files(given, package, request.directory)
    for word, whole in zip(given, command, strict=True):
        if word != whole:
            run.say(f"{word} is not in every commit: every state is tested with {whole}")
    if name := imported_from_the_checkout(command, package.repository):
        run.say(
            f"!!! {name} is installed in place from {package.repository.where}: every state may import "
            "your own checkout instead of its own. Put the state's sources first, as with PYTHONPATH=src."
        )
    return tuple(command)


Shown = Mapping[str, tuple[str, str]]
"""The two states that matter, by side: the stage that tried one, and the key of its configuration there."""


def shown_of(outcome: Outcome) -> Shown:
    """Whichever search tried a state last; none where its ends are alike, or a state was never tried."""
    interval = outcome.last.interval
    if interval is None or outcome.main.alike:
        return {}
    shown: dict[str, tuple[str, str]] = {}
    for side, vector in (("good", interval.good), ("bad", interval.bad)):
        wanted = frozenset(outcome.last.versions(vector).items())
        for found in outcome.searched:
            for record in found.answer.records:
                if found.version_set(record.point) == wanted:
                    shown[side] = (found.stage, record.point.config_key)
    return shown


class Run:
    """One open run directory with its logs; used by every way in."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.session = open_session(request.prefix, request.resume)
        self.logs = LogFiles(self.session.path)
        self.stages = Stages(self.session, fingerprint(request), self._workplace())
        oracle = request.spec.oracle
        self.metric = Metric(oracle, request.spec.confidence) if is_measured(oracle) else None

    def __enter__(self) -> Self:
        self.session.__enter__()
        try:
            self.stages.check_question()
            keep_request(self.request, self.session.run)
        except BaseException as wrong:
            self.__exit__(type(wrong))
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
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
        self,
        workshop: Callable[[Sequence[Package]], Any],
        *,
        command: ProbedCommand | None = None,
        image: str | None = None,
    ) -> Setting:
        request = self.request
        return Setting(
            self.stages,
            command or self.command(),
            workshop,
            OutcomeCache(
                request.cache, {**_question(request), **_building(request), "image": image}
            ),
            request.spec.confidence,
            check_ends=not request.spec.skip_precondition_checks,
            checks=request.checks,
            on_search=self._show_search,
            metric=self.metric,
            say=self.say,
        )

    def cache_of_image(self, digest: str) -> OutcomeCache:
        """Outcomes of an image as it is."""
        root = self.request.cache if self.metric is None else None
        return OutcomeCache(root, {**_question(self.request), "image": digest})

    def _show_search(self, search: Bisection) -> list[Listener]:
        """The first search is over the whole timeline; later ones look closer at a part of it."""
        place = self.stages.path / "timeline.json"
        if not place.exists():
            write_json(place, "aorta.timeline/1", search.timeline.to_json())
        self.request.on_belief(search.atoms)
        return [StepsLeft(search, self.say)]

    def write(self, findings: Findings, shown: Shown) -> Findings:
        """The artifacts, also of a run that was cut short; and the findings as they were written."""
        path, answers = self.stages.path, self.stages.answers
        metric = levels_found(self.metric) if self.metric else None
        findings = replace(findings, output_dir=str(path), metric=metric)
        for name, answer in answers.items():
            link_probes(path, self.stages.stage_path(name), answer.records)
        sides = {
            side: link_side(path, side, self.stages.stage_path(stage), answers[stage].records, key)
            for side, (stage, key) in shown.items()
        }
        records = [r for answer in answers.values() for r in answer.records]
        write_json(path / "result.json", "aorta.bisect/1", findings.document())
        lines = report_lines(findings, records, sides)
        write_atomically(path / "report.md", "\n".join(lines) + "\n")
        self.logs.say(headline(findings))
        self.session.run.describe(status=findings.status)
        return findings

    def _workplace(self) -> Workplace:
        first_failure = FirstFailure(lambda: self.stages.current, self.say)

        def listeners() -> list[Listener]:
            kept = self.logs.listeners(lambda: self.stages.current)
            return [*self.request.listeners(), *kept, first_failure]

        request = self.request
        same = request.spec.same_failure
        return Workplace(request.executor, listeners, request.budget, same_failure=same)


def keep_request(request: Request, run: RunDir) -> None:
    """What was asked, so that `--resume` needs no more than the directory. Its variables may be secrets."""
    asked = {
        "spec": request.spec.model_dump_json(),
        "directory": str(request.directory),
        "checks": request.checks,
        "cache": str(request.cache) if request.cache else None,
    }
    place = run.private / _ASKED
    if not place.exists():
        place.touch(mode=0o600)
        place.write_text(json.dumps(asked), encoding="utf-8")
    if any((folder / ".git").exists() for folder in run.path.parents):
        write_atomically(
            run.path / ".gitignore", "*\n"
        )  # no untracked files in the user's repository


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
        "cache": Path(asked["cache"]) if asked["cache"] else None,
    }


def fingerprint(request: Request) -> dict[str, object]:
    """What makes two runs the same question; a resumed run must agree in all of it."""
    spec = request.spec
    content = spec.model_dump(mode="json", exclude={"command", "timeout", "build_timeout"})
    return {
        "command": list(spec.command),
        "files of the command": _files(request),
        "spec": content,
    }


def _question(request: Request) -> dict[str, object]:
    """What decides the outcome of a state, apart from its versions and its image."""
    spec = request.spec
    place = spec.containers
    return {
        "command": list(spec.command),
        "files": _files(request),
        "oracle": (spec.oracle or ExitCodeOracle()).model_dump(mode="json"),
        "env": dict(spec.env),
        "timeout": spec.timeout,
        "place": [place.runtime, place.mounts, place.options] if place else None,
    }


def _building(request: Request) -> dict[str, object]:
    """What decides how a version set is made."""
    spec = request.spec
    return {
        "builds": {p.name: [p.path, p.build, p.cherry_pick, p.env] for p in spec.packages},
        "repositories": [str(request.directory / p.path) for p in spec.packages if p.path],
    }


def _files(request: Request) -> dict[str, str]:
    containers = request.spec.containers
    mounts = containers.mounts if containers else ()
    return files_named_in(request.spec.command, request.directory, mounts)


__all__ = ["Request", "Run", "Shown", "bisect", "fingerprint", "shown_of"]
