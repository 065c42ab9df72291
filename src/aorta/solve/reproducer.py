"""What stages run: the original, the reduced reproducer where there is one that fails by itself,
and trials of either.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta.core.oracle import naming
from aorta.engine.events import Listener
from aorta.engine.judge import NOTHING, HitCount, misses_that_tell
from aorta.engine.rundir import RunDir
from aorta.reduce.spec import load_spec
from aorta.registry.documents import load_document
from aorta.registry.environments import EnvironmentLayers
from aorta.run.request import RunReport, RunRequest, run
from aorta.solve.state import State, Stopped
from aorta.solve.subject import Command, Subject, initial_variables, oracle_of, subject_of

_MISSED = 0.01
_MOST = 60


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
    command = what.command
    report = run(
        RunRequest(
            command=command if isinstance(command, str) else tuple(command),
            cwd=what.cwd,
            trials=trials,
            seen=seen,
            stop_at_failure=True,
            layers=EnvironmentLayers(
                subject_of(asked).environment, mitigations, asked.mitigations_files, what.env
            ),
            oracle=oracle_of(what.oracle),
            timeout=asked.timeout,
            max_wall_clock=state.seconds_left(counted_as),
            retries=retries,
            executor=state.executor(counted_as),
            results_dir=folder.parent,
            run_dir=folder,
            resume=state.resume(folder),
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
    """The reduced one as it ships, or the original."""
    reduced = state.known("reduce")
    shipped = reduced.get("shipped_copy") or {}
    if not reduced or shipped.get("self_contained") is not True:
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
        command = first.command
        return command if isinstance(command, str) else shlex.join(command), dict(first.env)
    spec = load_spec(place)
    env = {name: str(value) for name, value in spec.content.extra_env.items()}
    for axis in spec.document.get("axes", []):
        for name, value in initial_variables(axis):
            laid_out = axis["kind"] in {"file_subset", "dir_subset"}
            env[name] = str(place.parent / value) if laid_out else value
    words = spec.content.workload.command
    assert words is not None
    return words if isinstance(words, str) else shlex.join(words), env
