"""The public API: packing a run, and trying what ships from another place, home and user name."""

import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta.bundle import pack
from aorta.bundle.archive import DEFAULT_MAX_BYTES, BundleReport, Checked, unpack, verify
from aorta.bundle.pack import BundleRequest, Prepared
from aorta.bundle.source import reduction_in
from aorta.core.axis import Point
from aorta.core.errors import AortaError, Terminated, UsageError
from aorta.core.failure import failure_from_elsewhere
from aorta.core.oracle import Deciding, known_failure
from aorta.core.trial import Outcome, TrialSpec
from aorta.engine.events import Reason
from aorta.engine.judge import HitCount, KOfN, SameJudge, misses_that_tell
from aorta.engine.question import Question
from aorta.engine.rundir import RunDir
from aorta.engine.session import Session
from aorta.executors.evidence import json_object
from aorta.executors.local import LocalExecutor
from aorta.registry.documents import load_document
from aorta.registry.environments import get_environment
from aorta.registry.sidecars import sidecars_beside
from aorta.search.repeated import EveryPoint
from aorta.workloads.trial import WorkloadExperiment, WorkloadRequest, workload_experiment

__all__ = ["SCHEMA", "BundleRequest", "bundle", "rehearse"]

SCHEMA = "aorta.bundle/1"
_ANY_SIZE = 1 << 50  # it is ours
SCRIPT, RECIPE = "shrunken/run_repro.sh", "shrunken/recipe.resolved.yaml"
_STRANGER = "stranger"
_BARE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MOST_TRIALS = 40
_MISSED = 0.01


def bundle(
    request: BundleRequest,
    agreed: Callable[[Prepared, Checked | None], bool] = lambda _prepared, _checked: True,
) -> BundleReport | None:
    """Scrub, try and pack it; None where `agreed`, called before anything is written, says no."""
    with pack.prepared(request) as prepared:
        is_tried = request.check and prepared.source.reproduces
        checked = _rehearsed(prepared, request.timeout) if is_tried else None
        if not agreed(prepared, checked):
            return None
        path = pack.write(prepared, request.output, checked)
    return verify(path, max_bytes=_ANY_SIZE)


def _rehearsed(prepared: Prepared, timeout: float | None) -> Checked | None:
    about = RunDir(reduction_in(prepared.source.root)).about()
    with tempfile.TemporaryDirectory(prefix="aorta-bundle-") as scratch:
        path = pack.write(prepared, Path(scratch))
        programs = [str(place) for place in about.get("programs", [])]
        return rehearse(path, programs=programs, python=about.get("python"), timeout=timeout)


def rehearse(
    bundle: Path,
    *,
    programs: Sequence[str] = (),
    python: str | None = None,
    timeout: float | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Checked | None:
    """Unpack and run it; None where there is nothing in it to run. `programs` go first on the path;
    `python` is the one that the original ran in, else this one.
    """
    with tempfile.TemporaryDirectory(prefix="aorta-rehearsal-") as scratch:
        _verified, folder = unpack(bundle, Path(scratch) / "unpacked", max_bytes)
        folder = reduction_in(folder)
        if not (folder / SCRIPT).is_file() or not (folder / RECIPE).is_file():
            return None
        home = Path(scratch) / "home"
        home.mkdir()
        try:
            variables = _variables(home, programs, python or sys.executable)
            return _run(folder, Path(scratch) / "trials", variables, timeout)
        except AortaError as wrong:
            return Checked(reproduced=0, of=0, why=wrong.message)


def _run(
    folder: Path, results: Path, variables: Mapping[str, str], timeout: float | None
) -> Checked:
    result = json_object(folder / "result.json") or {}
    experiment = _experiment(folder / RECIPE, variables, timeout)
    point = Point.of({})
    question = Question(
        search=EveryPoint([point]),
        judges=SameJudge(KOfN(1, _enough(result))),
        experiment=_Recipe(experiment),
        fingerprint={"bundle": str(folder)},
        expected=known_failure(experiment.oracle) or failure_from_elsewhere(result.get("failure")),
        private_trials=True,
    )
    with Session.fresh(results, "rehearsal") as session, closing(LocalExecutor()) as executor:
        answer = session.answer(question, executor)
    if answer.ending.reason is Reason.INTERRUPTED:
        raise KeyboardInterrupt  # nothing is known of it
    if answer.ending.reason is Reason.TERMINATED:
        raise Terminated
    outcomes = [one.outcome for one in answer.records if one.outcome is not Outcome.ERROR]
    reproduced = outcomes.count(Outcome.REPRODUCED)
    last = answer.records[-1].why if answer.records and not reproduced else ""
    return Checked(reproduced=reproduced, of=len(outcomes), why=last)


def _experiment(
    recipe: Path, variables: Mapping[str, str], timeout: float | None
) -> WorkloadExperiment:
    document: Any = load_document(recipe)
    cells = document.get("cells") if isinstance(document, dict) else None
    if not cells:
        raise UsageError("its recipe names nothing to run", where=RECIPE)
    environment = cells[0].get("environment", "local")
    name = f"image:{environment['docker']}" if isinstance(environment, dict) else environment
    return workload_experiment(
        WorkloadRequest(
            workload=document["workload"],
            config=document.get("workload_config", {}),
            environment=get_environment(name, sidecars_beside(recipe)),
            extra_env=[dict(variables)],
            timeout=timeout,
            base=recipe.parent,
            file=RECIPE,
        )
    )


@dataclass(frozen=True)
class _Recipe:
    inner: WorkloadExperiment

    @property
    def oracle(self) -> Deciding:
        return self.inner.deciding

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        return self.inner.trial(point, index, trial_dir)


def _enough(result: Mapping[str, Any]) -> int:
    # A copy that fails as often is missed in less than 1 of 100 cases.
    rate = result.get("confirmed") or result.get("original") or {}
    seen = HitCount(rate.get("reproduced") or 0, rate.get("of") or 0)
    return min(_MOST_TRIALS, misses_that_tell(seen, _MISSED))


def _variables(home: Path, programs: Sequence[str], python: str) -> dict[str, str]:
    """Another home and user, and a bare path with the run's own programs and interpreter."""
    path = os.pathsep.join([*programs, str(Path(python).parent), _BARE_PATH])
    names = {"USER": _STRANGER, "LOGNAME": _STRANGER}
    return {**names, "HOME": str(home), "PATH": path, "PYTHON": python}
