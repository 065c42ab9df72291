"""What stages run: the original, wherever its command was written, the reduced reproducer where
there is one that fails by itself, and trials of either; and what worked, as `--good` says it: a
revision of the checkout, an environment, or a container where it fails in one.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aorta.bisect.spec import ContainersSpec
from aorta.core.errors import UsageError
from aorta.core.oracle import Oracle, naming, oracle_from_json
from aorta.core.trial import LOCAL, Environment
from aorta.engine.events import Listener
from aorta.engine.judge import NOTHING, HitCount, misses_that_tell
from aorta.engine.rundir import RunDir
from aorta.executors.evidence import json_object
from aorta.reduce.launcher import argv_of
from aorta.reduce.spec import load_spec
from aorta.registry.documents import load_document
from aorta.registry.environments import INLINE_IMAGE, EnvironmentLayers, get_environment
from aorta.run.request import RunReport, RunRequest, run
from aorta.runtimes import image_registry
from aorta.runtimes.engine import ENGINES, is_at_hand
from aorta.runtimes.git import Repository
from aorta.solve.request import SolveRequest
from aorta.solve.state import State, Stopped

Command = str | tuple[str, ...]
_MISSED = 0.01
_MOST = 60


@dataclass(frozen=True)
class Subject:
    """The original. `spec`: a spec somebody wrote; `finding`: what killed it."""

    command: Command
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    oracle: Mapping[str, Any] | None = None
    environment: str = LOCAL.name  # where it runs, by its name in the registry
    spec: Path | None = None
    finding: Mapping[str, Any] | None = None
    known: Mapping[str, Path] = field(default_factory=dict)  # stage -> run directory of its answer

    @property
    def words(self) -> tuple[str, ...]:
        return argv_of(self.command)


def oracle_of(content: Mapping[str, Any] | None) -> Oracle | None:
    if content is None:
        return None
    plain = {key: value for key, value in content.items() if key != "ranks"}
    return oracle_from_json(plain, file="oracle")


def environment_of(request: SolveRequest) -> Environment:
    return get_environment(subject_of(request).environment, request.mitigations_files)


def subject_of(request: SolveRequest) -> Subject:
    subject = _subject(request)
    if request.environment is None:
        return subject
    return replace(subject, environment=request.environment)


def _subject(request: SolveRequest) -> Subject:
    if request.command:
        return Subject(request.command, request.directory, oracle=request.oracle)
    if request.spec is not None:
        return _of_spec(request.spec, request)
    assert request.source is not None
    return _of_directory(request.source, request)


def _of_spec(path: Path, request: SolveRequest, **more: Any) -> Subject:
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
        **more,
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
        finding = json_object(source / "finding.json") or {}
        return _of_spec(source / "aorta.yaml", request, finding=finding)
    verb = str(RunDir(source).about().get("verb", ""))
    if verb == "reduce" or (source / "shrunken" / "aorta.yaml").is_file():
        spec = Path(str(RunDir(source).about().get("spec", "")))
        given = spec if spec.is_file() else source / "shrunken" / "aorta.yaml"
        status = (json_object(source / "result.json") or {}).get("status")
        done = status in {"reduced", "not_reduced"} and given == spec
        known = {"reduce": source} if done else {}
        return _of_spec(given, request, known=known)
    if (source / "recipe.resolved.yaml").is_file():
        return _of_recipe(source / "recipe.resolved.yaml", request)
    trials = sorted(source.glob("trial_*.json"))
    if trials:
        config = (json_object(trials[0]) or {}).get("config", {})
        if "command" in config:
            cwd = Path(config.get("cwd", request.directory))
            return Subject(_command_in(config), cwd, oracle=request.oracle)
    raise UsageError(
        "this is no case and no run of a command; expected a directory of launch, run, reduce or "
        "triage",
        where=str(source),
    )


def _command_in(config: Mapping[str, Any]) -> Command:
    """Of a document, which has lists."""
    command = config["command"]
    return command if isinstance(command, str) else tuple(command)


def _of_recipe(path: Path, request: SolveRequest) -> Subject:
    found = load_document(path)
    recipe: dict[str, Any] = found if isinstance(found, dict) else {}
    config = recipe.get("workload_config", {})
    if "command" not in config:
        raise UsageError("solve takes recipes of commands; expected one", where=str(path))
    cwd = (path.parent / config.get("cwd", ".")).resolve()
    (first, *_) = recipe.get("cells") or [{}]
    place = first.get("environment", LOCAL.name)
    return Subject(
        _command_in(config),
        cwd,
        oracle=request.oracle or config.get("oracle"),
        environment=f"{INLINE_IMAGE}{place['docker']}" if isinstance(place, dict) else str(place),
    )


# -- trials of the original, or of its reproducer


@dataclass(frozen=True)
class ReproducerFound:
    """A command that fails, with the rate at which it was seen to."""

    command: Command
    cwd: Path
    env: Mapping[str, str]
    oracle: Mapping[str, Any]
    seen: HitCount
    seconds: float | None
    is_reduced: bool
    also: HitCount | None = None  # of the original, where this is its reduction

    @property
    def text(self) -> str:
        """The command for a shell."""
        return self.command if isinstance(self.command, str) else shlex.join(self.command)

    def enough_clean(self, chance: float = _MISSED) -> int:
        """So many clean trials in a row are luck in less than so many cases, at either rate."""
        rates = [self.seen] if self.also is None else [self.seen, self.also]
        return min(_MOST, max(misses_that_tell(seen, chance) for seen in rates))


def run_command(
    state: State,
    what: "ReproducerFound | Subject",
    *,
    stage: str,
    counted_as: str,
    folder: Path,
    trials: int | None,
    seen: HitCount = NOTHING,
    retries: int = 2,
    mitigations: tuple[str, ...] = (),
    listeners: Sequence[Listener] = (),
) -> RunReport:
    """Up to so many trials, fewer at a failure; None: until the failure rate is known, of which so
    much was `seen` before.
    """
    asked = state.request
    report = run(
        RunRequest(
            command=what.command,
            cwd=what.cwd,
            trials=trials,
            seen=seen,
            stop_at_failure=True,
            layers=EnvironmentLayers(
                subject_of(asked).environment, mitigations, asked.mitigations_files, what.env
            ),
            oracle=oracle_of(what.oracle),
            retries=retries,
            results_dir=folder.parent,
            run_dir=folder,
            **state.how(counted_as, folder),
        ),
        lambda: [*state.views.listeners(stage), *listeners],
    )
    Stopped.check(report.ending)
    return report


def original(state: State) -> ReproducerFound:
    known = state.known("reproduce")
    subject = subject_of(state.request)
    rate = known["rate"]
    return ReproducerFound(
        subject.command,
        subject.cwd,
        subject.env,
        naming(known["oracle"], known.get("failure")),
        HitCount(rate["reproduced"], rate["of"]),
        known.get("median_sec"),
        is_reduced=False,
    )


def smallest(state: State) -> ReproducerFound:
    """The reduced one as it ships, where it was seen to fail on this machine; or the original."""
    reduced = state.known("reduce")
    shipped = reduced.get("shipped_copy") or {}
    if not (shipped.get("self_contained") or shipped.get("in_original_directory")):
        return original(state)
    confirmed = reduced.get("confirmed") or reduced["original"]
    python = RunDir(Path(reduced["run_dir"])).about().get("python")
    return ReproducerFound(
        "bash run_repro.sh",
        Path(reduced["run_dir"]) / "shrunken",
        {"PYTHON": str(python)} if python else {},
        _shipped_oracle(Path(reduced["run_dir"]) / "shrunken" / "recipe.resolved.yaml"),
        HitCount(confirmed["reproduced"], confirmed["of"]),
        (reduced.get("final") or {}).get("median_sec"),
        is_reduced=True,
        also=original(state).seen,
    )


def _shipped_oracle(recipe: Path) -> dict[str, Any]:
    """As the reduction hands it on: with what it learned of the failure."""
    document: Any = load_document(recipe)
    return dict(document["workload_config"]["oracle"])


def reduced_spec(state: State) -> Path | None:
    """What other checkouts and containers run in place of the original; None: the original."""
    reduced = state.known("reduce")
    place = Path(str(reduced.get("run_dir", ""))) / "shrunken" / "aorta.yaml"
    return place if reduced.get("confirmed") and place.is_file() else None


def reduced_command(state: State) -> tuple[str, dict[str, str]]:
    """The command with its reduced values as variables; else the original."""
    place = reduced_spec(state)
    if place is None:
        first = original(state)
        return first.text, dict(first.env)
    spec = load_spec(place)
    env = {name: str(value) for name, value in spec.content.extra_env.items()}
    for axis in spec.document.get("axes", []):
        for name, value in initial_variables(axis):
            laid_out = axis["kind"] in {"file_subset", "dir_subset"}
            env[name] = str(place.parent / value) if laid_out else value
    words = spec.content.workload.command
    assert words is not None
    return words if isinstance(words, str) else shlex.join(words), env


# -- what worked


_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def good_environment(request: SolveRequest) -> Path | None:
    """A requirements file, an env.json or a virtual environment; else None."""
    if request.good is None:
        return None
    path = request.directory / request.good
    return path if path.is_file() or (path / "pyvenv.cfg").is_file() else None


def good_containers(request: SolveRequest) -> ContainersSpec | None:
    """From the container that worked to the one it fails in. Two of one family with a date in their
    tags have those of the days between them.
    """
    failing = environment_of(request)
    if request.good is None or failing.image is None:
        return None
    about: dict[str, Any] = {
        "runtime": failing.kind.value,
        "mounts": failing.mounts,
        "options": failing.options,
    }
    passing = _image_of(request.good, failing)
    template = _DATE.sub("{date}", failing.image)
    if template == failing.image or _DATE.sub("{date}", passing) != template:
        return ContainersSpec(passing=passing, failing=failing.image, **about)
    return ContainersSpec(
        family="containers",
        url_template=template,
        start_date=_DATE.findall(passing)[-1],
        end_date=_DATE.findall(failing.image)[-1],
        **about,
    )


def _image_of(good: str, failing: Environment) -> str:
    """An image by its name, or the one of the same family that a day is the date of."""
    image = str(failing.image)
    if _DATE.fullmatch(good) is None:
        return good
    if len(_DATE.findall(image)) != 1:
        raise UsageError(
            f"found the date {good}, but the container it fails in has no date in its name: "
            f"{image}; expected the name of the one that worked",
            where="--good",
        )
    return _DATE.sub(good, image)


def _check_image(containers: ContainersSpec, failing: Environment) -> None:
    """A named image must exist; between two dates missing days are passed over."""
    passing = containers.passing
    if passing is None or failing.kind not in ENGINES:
        return
    if is_at_hand(replace(failing, image=passing)) or image_registry.exists(passing):
        return
    raise UsageError(
        f"found {passing!r}, which {ENGINES[failing.kind].command} does not have, and no registry "
        "says that it has it; expected the image that worked, or its date",
        where="--good",
    )


def repository_of(directory: Path) -> Repository | None:
    """The checkout that this directory lies in."""
    try:
        return Repository.on_host(directory)
    except UsageError:
        return None


def check_good(request: SolveRequest) -> None:
    """A good end that is nowhere is said before anything runs."""
    environment = environment_of(request)
    if request.good is None:
        return
    containers = good_containers(request)
    if containers is not None:
        _check_image(containers, environment)
        return
    if environment.isolated:
        raise UsageError(
            f"what worked before {environment.name!r} cannot be looked for; expected a command of "
            "this machine, or one in an image",
            where="--good",
        )
    if good_environment(request) is not None:
        return
    repository = repository_of(subject_of(request).cwd)
    if repository is None:
        raise UsageError(
            f"found {request.good!r}, which is no file, and there is no git checkout to find it "
            "in; expected a revision, a requirements file, an env.json or a virtual "
            "environment, or, beside --environment image:REF, the image or the date of one that "
            "worked",
            where="--good",
        )
    repository.resolve(request.good)
