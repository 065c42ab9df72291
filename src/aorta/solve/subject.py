"""What stages run: the original or its reduced reproducer, and trials of either."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aorta.core.errors import UsageError
from aorta.core.oracle import Oracle, naming, oracle_from_json
from aorta.core.trial import LOCAL, Environment
from aorta.engine.judge import NOTHING, HitCount, misses_that_tell
from aorta.engine.rundir import RunDir
from aorta.executors.evidence import json_object
from aorta.reduce.launcher import argv_of
from aorta.reduce.spec import load_spec
from aorta.registry.documents import load_document
from aorta.registry.environments import INLINE_IMAGE, EnvironmentLayers, get_environment
from aorta.run.request import RunReport, RunRequest, run
from aorta.solve.request import SolveRequest
from aorta.solve.state import State, Stopped

Command = str | tuple[str, ...]
_MISSED = 0.01
_MOST = 60


@dataclass(frozen=True)
class Subject:
    """A command that fails: the original, or the reproducer that it was reduced to."""

    command: Command
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    oracle: Mapping[str, Any] | None = None
    environment: str = LOCAL.name  # where it runs, by its name in the registry
    spec: Path | None = None  # that somebody wrote
    reduction: Path | None = None  # a run directory of reduce to go on with
    seen: HitCount = NOTHING  # how often it was seen to fail
    original: HitCount | None = None  # of a reproducer: how often the original was

    @property
    def words(self) -> tuple[str, ...]:
        return argv_of(self.command)

    @property
    def text(self) -> str:
        """The command for a shell."""
        return self.command if isinstance(self.command, str) else shlex.join(self.command)

    @property
    def name(self) -> str:
        return "original" if self.original is None else "reduced"

    def enough_clean(self, chance: float = _MISSED) -> int:
        """So many clean trials in a row are luck in less than so many cases, at either rate."""
        rates = [self.seen, self.original or self.seen]
        return min(_MOST, max(misses_that_tell(seen, chance) for seen in rates))


def oracle_of(content: Mapping[str, Any] | None) -> Oracle | None:
    if content is None:
        return None
    plain = {key: value for key, value in content.items() if key != "ranks"}
    return oracle_from_json(plain, file="oracle")


def environment_of(request: SolveRequest) -> Environment:
    return get_environment(subject_of(request).environment, request.mitigations_files)


def subject_of(request: SolveRequest) -> Subject:
    """The original, wherever its command was written."""
    subject = _subject(request)
    return replace(subject, environment=request.environment or subject.environment)


def _subject(request: SolveRequest) -> Subject:
    if request.command:
        return Subject(request.command, request.directory, oracle=request.oracle)
    if request.spec is not None:
        return _of_spec(request.spec, request)
    assert request.source is not None
    return _of_directory(request.source, request)


def _of_spec(path: Path, request: SolveRequest) -> Subject:
    spec = load_spec(path)
    workload = spec.content.workload
    if workload.command is None:
        raise UsageError(
            "solve takes specs of commands; expected workload.command", where=str(path)
        )
    first = {
        name: value
        for axis in spec.document.get("axes", [])
        for name, value in initial_variables(axis)
    }
    return Subject(
        workload.command,
        (spec.base / Path(workload.cwd).expanduser()).resolve(),
        {**first, **spec.content.extra_env},
        request.oracle or spec.document.get("oracle"),
        spec.content.environment or LOCAL.name,
        path,
    )


def initial_variables(axis: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The variables of an axis as in the original; ranks stand in the command."""
    kind, initial = axis.get("kind"), axis.get("initial")
    if kind in {"world_size", "ranks"}:
        return []
    if kind == "window" and isinstance(initial, list):
        return [(axis["start"], str(initial[0])), (axis["length"], str(initial[1]))]
    if initial is None:
        initial = (axis.get("choices") or [""])[0]
    text = ",".join(map(str, initial)) if isinstance(initial, list) else str(initial)
    return [(str(axis.get("name")), text)]


def _of_directory(source: Path, request: SolveRequest) -> Subject:
    """A launch's case, or what another verb wrote: it goes on from what is known."""
    if (source / "case" / "aorta.yaml").is_file():
        source = source / "case"
    if (source / "finding.json").is_file() and (source / "aorta.yaml").is_file():
        return _of_spec(source / "aorta.yaml", request)
    about = RunDir(source).about()
    if about.get("verb") == "reduce" and Path(str(about.get("spec"))).is_file():
        return replace(_of_spec(Path(about["spec"]), request), reduction=source)
    if (source / "shrunken" / "aorta.yaml").is_file():
        return _of_spec(source / "shrunken" / "aorta.yaml", request)
    config: Mapping[str, Any] = {}
    place: Any = LOCAL.name
    if (recipe := source / "recipe.resolved.yaml").is_file():
        document: Any = load_document(recipe)
        config = document.get("workload_config") or {}
        place = document["cells"][0]["environment"]
    elif trials := sorted(source.glob("trial_*.json")):
        config = (json_object(trials[0]) or {}).get("config", {})
    if "command" not in config:
        raise UsageError(
            "this is no case and no run of a command; expected a directory of launch, run, reduce "
            "or triage",
            where=str(source),
        )
    command = config["command"]
    return Subject(
        command if isinstance(command, str) else tuple(command),
        source / (config.get("cwd") or request.directory),
        oracle=request.oracle or config.get("oracle"),
        environment=f"{INLINE_IMAGE}{place['docker']}" if isinstance(place, dict) else str(place),
    )


# -- trials of the original, or of its reproducer


def run_command(
    state: State,
    what: Subject,
    *,
    stage: str,
    counted_as: str,
    folder: Path,
    trials: int | None,
    seen: HitCount = NOTHING,
    retries: int = 2,
    mitigations: tuple[str, ...] = (),
) -> RunReport:
    """Up to so many trials, fewer at a failure; None: until the failure rate is known."""
    requested = state.request
    report = run(
        RunRequest(
            command=what.command,
            cwd=what.cwd,
            trials=trials,
            seen=seen,
            stop_at_failure=True,
            layers=EnvironmentLayers(
                subject_of(requested).environment,
                mitigations,
                requested.mitigations_files,
                what.env,
            ),
            oracle=oracle_of(what.oracle),
            retries=retries,
            results_dir=folder.parent,
            run_dir=folder,
            **state.how(counted_as, folder),
        ),
        state.listeners(stage),
    )
    Stopped.check(report.ending.reason)
    return report


def original(state: State) -> Subject:
    known = state.known("reproduce")
    rate, oracle = known["rate"], naming(known["oracle"], known.get("failure"))
    seen = HitCount(rate["reproduced"], rate["of"])
    return replace(subject_of(state.request), oracle=oracle, seen=seen)


def smallest(state: State) -> Subject:
    """The reduced one as it ships, where it was seen to fail on this machine; or the original."""
    reduced, first = state.known("reduce"), original(state)
    shipped = reduced.get("shipped_copy") or {}
    if not (shipped.get("self_contained") or shipped.get("in_original_directory")):
        return first
    confirmed = reduced.get("confirmed") or reduced["original"]
    seen = (HitCount(count["reproduced"], count["of"]) for count in (confirmed, shipped))
    run_dir = Path(reduced["run_dir"])
    python = RunDir(run_dir).about().get("python")
    # As the reduction hands it on: with what it learned of the failure.
    recipe: Any = load_document(run_dir / "shrunken" / "recipe.resolved.yaml")
    return replace(
        first,
        command="bash run_repro.sh",
        cwd=run_dir / "shrunken",
        env={"PYTHON": str(python)} if python else {},
        oracle=dict(recipe["workload_config"]["oracle"]),
        seen=sum(seen, NOTHING),
        original=first.seen,
    )


def reduced_spec(state: State) -> Path | None:
    """What other checkouts and containers run in place of the original; None: the original."""
    reduced = state.known("reduce")
    place = Path(str(reduced.get("run_dir", ""))) / "shrunken" / "aorta.yaml"
    return place if reduced.get("confirmed") and place.is_file() else None


def reduced_in_place(state: State) -> Subject:
    """The original with its reduced values as variables, for other checkouts and containers."""
    place, first = reduced_spec(state), original(state)
    if place is None:
        return first
    spec = load_spec(place)
    env = {name: str(value) for name, value in spec.content.extra_env.items()}
    for axis in spec.document.get("axes", []):
        for name, value in initial_variables(axis):
            laid_out = axis["kind"] in {"file_subset", "dir_subset"}
            env[name] = str(place.parent / value) if laid_out else value
    words = spec.content.workload.command
    assert words is not None
    return replace(first, command=words if isinstance(words, str) else tuple(words), env=env)
