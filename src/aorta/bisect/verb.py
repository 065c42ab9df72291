"""The verb as a library: a request in, findings and a directory of artifacts out."""

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from aorta.bisect.cache import OutcomeCache, files_named_in
from aorta.bisect.experiment import ProbedCommand
from aorta.bisect.findings import Findings, findings_of, levels_found
from aorta.bisect.host import host_packages, reproduce_on_host, with_own_files
from aorta.bisect.investigation import Outcome, Setting, investigate
from aorta.bisect.links import link_probes, link_sides
from aorta.bisect.meaning import for_bisection
from aorta.bisect.metric import Metric, check_samples, is_measured
from aorta.bisect.package import Package
from aorta.bisect.report import headline, report_lines
from aorta.bisect.spec import BisectSpec
from aorta.bisect.stages import MAIN, Stages, Workplace, open_session
from aorta.bisect.trees import HostTrees
from aorta.bisect.watching import FirstFailure, LogFiles, Say, StepsLeft
from aorta.core.errors import InfrastructureError, UsageError
from aorta.core.oracle import ExitCodeOracle
from aorta.core.point import Point
from aorta.core.trial import LOCAL
from aorta.engine.events import Listener
from aorta.engine.question import Budget
from aorta.engine.rundir import PRIVATE, write_atomically, write_json
from aorta.engine.session import Resume
from aorta.executors import Executor
from aorta.search.belief import Weights
from aorta.search.bisection import TimelineBisection

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
    packages = host_packages(spec.packages, request.directory, find_fix=spec.find_fix)
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
        shown = outcome.inner or outcome.main
        findings.reproduce = {
            side: reproduce_on_host(shown.packages, command.command, versions)
            for side, versions in (("good", findings.good), ("bad", findings.bad))
        }
        run.write(findings, shown_of(outcome, run.stages))
    return findings


def _own_command(run: "Run", packages: Sequence[Package]) -> tuple[str, ...]:
    request = run.request
    given = request.spec.command
    repository = next((p.repository for p in packages if p.repository), None)
    command = with_own_files(given, repository, request.directory) if repository else given
    for word, whole in zip(given, command, strict=True):
        if word != whole:
            run.say(f"{word} is in no commit: every state is tested with {whole}")
    return tuple(command)


@dataclass(frozen=True)
class Shown:
    """The two states that matter: their stage, and by side the key of their configuration."""

    stage: str
    keys: Mapping[str, str]


def shown_of(outcome: Outcome, stages: Stages) -> Shown | None:
    found = outcome.inner or outcome.main
    interval = found.interval
    if interval is None or outcome.main.alike:
        return None
    stage = MAIN if outcome.inner is None else _last_merge(stages)
    vectors = {"good": interval.good, "bad": interval.bad}
    versions = found.search.timeline.versions
    return Shown(stage, {s: Point.of(versions(v)).config_key for s, v in vectors.items()})


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
            into_merges=not request.spec.first_parent,
            on_search=self._show_search,
            metric=self.metric,
            say=self.say,
        )

    def cache_of_image(self, digest: str) -> OutcomeCache:
        """Outcomes of an image as it is."""
        root = self.request.cache if self.metric is None else None
        return OutcomeCache(root, {**_question(self.request), "image": digest})

    def _show_search(self, search: TimelineBisection) -> list[Listener]:
        """The first search is over the whole timeline; later ones look closer at a part of it."""
        place = self.stages.path / "timeline.json"
        if not place.exists():
            write_json(place, "aorta.timeline/1", search.timeline.to_json())
        self.request.on_belief(lambda: list(search.belief.atoms()))
        return [StepsLeft(search, self.say)]

    def write(self, findings: Findings, shown: Shown | None) -> None:
        """The artifacts; also of a run that was cut short."""
        path = self.stages.path
        findings.output_dir = str(path)
        findings.metric = levels_found(self.metric) if self.metric else None
        for name, answer in self.stages.answers.items():
            link_probes(path, self.stages.stage_path(name), answer.records)
        sides: dict[str, Path] = {}
        if shown is not None:
            records = self.stages.answers[shown.stage].records
            sides = link_sides(path, self.stages.stage_path(shown.stage), records, shown.keys)
        records = [r for answer in self.stages.answers.values() for r in answer.records]
        write_json(path / "result.json", "aorta.bisect/1", findings.document())
        write_atomically(
            path / "report.md", "\n".join(report_lines(findings, records, sides)) + "\n"
        )
        self.logs.say(headline(findings))
        self.session.run.describe(status=findings.status)

    def _workplace(self) -> Workplace:
        first_failure = FirstFailure(lambda: self.stages.current, self.say)

        def listeners() -> list[Listener]:
            kept = self.logs.listeners(lambda: self.stages.current)
            return [*self.request.listeners(), *kept, first_failure]

        return Workplace(self.request.executor, listeners, self.request.budget)


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


def _last_merge(stages: Stages) -> str:
    return max(name for name in stages.answers if name.startswith("merge-"))


__all__ = ["Request", "Run", "Shown", "bisect", "fingerprint", "shown_of"]
