"""Process in which Ray lives (`ray_driver.py DESCRIPTOR`): submits tasks and reports their ends."""

import io
import os
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import ray

_PACKAGE = Path(__file__).parents[1]
sys.path.insert(0, str(_PACKAGE.parent))

from aorta.core.trial import TrialSpec  # noqa: E402 - found only now
from aorta.executors.ray import TaskEnd, moved  # noqa: E402

_untyped: Any = ray  # for those of its functions that carry no types
_NODES_EVERY = 1.0
_TICK = 0.2
_LAST_SECONDS = 3.0  # for what was cancelled to end, beyond the grace of its trial
_LEFT_AT_HOME = [".git", ".aorta", ".venv", "__pycache__"]


def run_trial(trial: TrialSpec, files: bytes | None, grace: float) -> tuple[TaskEnd, bytes | None]:
    """In a process of Ray's: one trial, as on any machine. `files`: what its own directory holds,
    where the node sees none of it; then the working directory is Ray's copy, and what the trial
    left in its own comes back.
    """
    from aorta.executors.local import LocalExecutor

    if files is None and not (trial.cwd.is_dir() and trial.trial_dir.is_dir()):
        return TaskEnd(trial.id, unseen=True), None
    search = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in search if "runtime_resources" not in p)
    if not os.environ["PYTHONPATH"]:
        del os.environ["PYTHONPATH"]
    scratch = Path(tempfile.mkdtemp(prefix="aorta-trial-")) if files is not None else None
    executor = LocalExecutor(1, grace=grace)
    there = trial
    try:
        if scratch is not None and files is not None:
            # Ray shares its copy among the tasks of a node; a trial may write into its own.
            shutil.copytree(Path.cwd(), scratch / "cwd", symlinks=True)
            _unpack(files, scratch / "trial")
            there = moved(trial, scratch / "cwd", scratch / "trial")
        executor.start(there)
        while not (ended := executor.wait(_TICK)):  # a cancel is heard between two looks
            pass
        out, err = (
            replace(stream, path=trial.trial_dir / stream.path.name)
            for stream in (ended[0].stdout, ended[0].stderr)
        )
        end = replace(ended[0], stdout=out, stderr=err)
        left = None if scratch is None else pack(there.trial_dir)
        return TaskEnd(trial.id, end), left
    finally:  # also where the task is cancelled: the trial ends first
        executor.close()
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def pack(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() or path.is_dir():  # no sockets, no pipes
                archive.add(path, path.relative_to(folder), recursive=False)
    return buffer.getvalue()


def _unpack(content: bytes, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        archive.extractall(folder, filter="data")


class Driver:
    """Commands in; ends of tasks and the nodes that live out, until the owner closes the pipe."""

    def __init__(self, line: "Connection[Any, Any]", grace: float, *, carries: bool) -> None:
        self._line, self._grace, self._carries = line, grace, carries
        self._tasks: dict[Any, TrialSpec] = {}  # by reference
        self._nodes: list[tuple[int, int]] = []
        self._nodes_at = 0.0
        self._run = _untyped.remote(max_calls=0)(run_trial)

    def serve(self) -> None:
        """EOFError or OSError at the end of the pipe."""
        while True:
            self._tell_nodes()
            if self._line.poll(_TICK / 4 if self._tasks else _TICK):
                match self._line.recv():
                    case "run", trial:
                        self._submit(trial)
                    case "cancel", trial_id:
                        tasks = self._tasks.items()
                        self._cancel([task for task, trial in tasks if trial.id == trial_id])
            else:
                self._tell_ends()

    def cancel_all(self) -> None:
        """Ray would not wait for their trials to end."""
        tasks = list(self._tasks)
        self._cancel(tasks)
        if tasks:
            ray.wait(tasks, num_returns=len(tasks), timeout=self._grace + _LAST_SECONDS)

    def _cancel(self, tasks: Iterable[Any]) -> None:
        for task in tasks:
            ray.cancel(task, force=False, recursive=False)

    def _submit(self, trial: TrialSpec) -> None:
        task = self._run.options(
            num_cpus=trial.resources.cpus,
            num_gpus=trial.resources.gpus,
            max_retries=0,  # the engine tries again, and counts it
            name="aorta trial",
        ).remote(trial, pack(trial.trial_dir) if self._carries else None, self._grace)
        self._tasks[task] = trial

    def _tell_ends(self) -> None:
        tasks = list(self._tasks)
        for task in ray.wait(tasks, num_returns=len(tasks), timeout=_TICK)[0] if tasks else ():
            trial = self._tasks.pop(task)
            try:
                end, files = ray.get(task)
            except ray.exceptions.RayError as wrong:
                end, files = TaskEnd(trial.id, lost=_why(wrong)), None
            if files is not None:
                _unpack(files, trial.trial_dir)
            self._line.send(end)

    def _tell_nodes(self) -> None:
        if time.monotonic() - self._nodes_at < _NODES_EVERY:
            return
        self._nodes_at = time.monotonic()
        nodes = [_size(node) for node in _untyped.nodes() if node["Alive"]]
        if nodes != self._nodes:
            self._nodes = nodes
            self._line.send(nodes)


def _why(wrong: Exception) -> str:
    """Why a task returned nothing."""
    if isinstance(wrong, ray.exceptions.TaskCancelledError):
        return "its task was cancelled"
    if isinstance(wrong, (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError)):
        return "Ray lost its worker"
    return f"Ray could not run it: {' '.join(str(wrong).split())[:300]}"


def _size(node: Mapping[str, Any]) -> tuple[int, int]:
    """CPUs and GPUs."""
    resources = node["Resources"]
    return int(resources.get("CPU", 0)), int(resources.get("GPU", 0))


def _runtime_env(root: Path | None) -> dict[str, Any]:
    """Without run directories inside the working directory: they hold every earlier trial."""
    excludes = list(_LEFT_AT_HOME)
    if root is None:
        return {"py_modules": [str(_PACKAGE)], "excludes": excludes}
    for place, folders, names in os.walk(root):
        if ".aorta" in (*folders, *names) and Path(place) != root:
            excludes.append(f"/{Path(place).relative_to(root)}")
            folders.clear()
    return {"py_modules": [str(_PACKAGE)], "working_dir": str(root), "excludes": excludes}


def main() -> None:
    line: Connection[Any, Any] = Connection(int(sys.argv[1]))
    os.set_inheritable(line.fileno(), False)
    address, working_dir, grace = line.recv()
    ray.init(
        address=address,
        log_to_driver=False,
        include_dashboard=False if address is None else None,
        namespace="aorta",
        runtime_env=_runtime_env(working_dir),
    )
    driver = Driver(line, grace, carries=working_dir is not None)
    try:
        driver.serve()
    except (EOFError, OSError):
        driver.cancel_all()
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
