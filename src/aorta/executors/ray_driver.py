"""The process in which Ray lives: it submits tasks, and says over a socket what became of them.

Run as `ray_driver.py DESCRIPTOR OPTIONS`. Ray ships this package to its workers (`py_modules`) and,
where nodes see none of our files, the working directory (`working_dir`).
"""

import io
import json
import os
import shutil
import socket
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray

_PACKAGE = Path(__file__).parents[1]
sys.path.insert(0, str(_PACKAGE.parent))

from aorta.executors.supervisor import Line, OwnerGoneError  # noqa: E402 - found only now

_untyped: Any = ray  # for those of its functions that carry no types
_NODES_EVERY = 1.0
_TICK = 0.2
_LAST_SECONDS = 3.0  # for what was cancelled to end, beyond the grace of its trial
_LEFT_AT_HOME = [".git", ".aorta", ".venv", "__pycache__"]


def run_trial(content: Mapping[str, Any], files: bytes | None, grace: float) -> dict[str, Any]:
    """In a process of Ray's: one trial, as on any machine. `files`: what its own directory holds,
    where the node sees none of it; then the working directory is Ray's copy.
    """
    from aorta.executors.local import LocalExecutor
    from aorta.executors.messages import end_to_json, trial_from_json, without_place
    from aorta.executors.ray import moved

    trial, node = trial_from_json(content), ray.get_runtime_context().get_node_id()
    if files is None and not (trial.cwd.is_dir() and trial.trial_dir.is_dir()):
        return {"unseen": True, "node": node}
    search = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in search if "runtime_resources" not in p)
    if not os.environ["PYTHONPATH"]:
        del os.environ["PYTHONPATH"]
    scratch = Path(tempfile.mkdtemp(prefix="aorta-trial-")) if files is not None else None
    executor = LocalExecutor(1, grace=grace)
    try:
        if scratch is not None and files is not None:
            # Ray shares its copy among the tasks of a node; a trial may write into its own.
            shutil.copytree(Path.cwd(), scratch / "cwd", symlinks=True)
            _unpack(files, scratch / "trial")
            trial = moved(trial, scratch / "cwd", scratch / "trial")
        executor.start(trial)
        while not (ended := executor.wait(_TICK)):  # a cancel is heard between two looks
            pass
        found = {"end": end_to_json(ended[0]), "node": node}
        if scratch is not None:
            found["end"]["result"] = without_place(ended[0].result) if ended[0].result else None
            found["files"] = pack(trial.trial_dir)
        return found
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
    """Commands in, news out, until the owner closes the socket."""

    def __init__(self, line: Line, grace: float, *, carries: bool) -> None:
        self._line, self._grace, self._carries = line, grace, carries
        self._tasks: dict[Any, Mapping[str, Any]] = {}  # reference -> command
        self._nodes: list[dict[str, Any]] = []
        self._nodes_at = 0.0
        self._run = _untyped.remote(max_calls=0)(run_trial)

    def serve(self) -> None:
        while True:
            self._tell_nodes()
            for command in self._line.receive(_TICK / 4 if self._tasks else _TICK):
                if command["op"] == "run":
                    self._submit(command)
                else:
                    for task, started in self._tasks.items():
                        if started["id"] == command["id"]:
                            ray.cancel(task, force=False, recursive=False)
            self._tell_ends()

    def cancel_all(self) -> None:
        """Ray would not wait for their trials to end."""
        tasks = list(self._tasks)
        for task in tasks:
            ray.cancel(task, force=False, recursive=False)
        if tasks:
            ray.wait(tasks, num_returns=len(tasks), timeout=self._grace + _LAST_SECONDS)

    def _submit(self, command: Mapping[str, Any]) -> None:
        avoided, trial = command["avoid"], command["trial"]
        task = self._run.options(
            num_cpus=trial["resources"]["cpus"],
            num_gpus=trial["resources"]["gpus"],
            max_retries=0,  # the engine tries again, and counts it
            label_selector={"ray.io/node-id": f"!in({','.join(avoided)})"} if avoided else None,
            name="aorta trial",
        ).remote(trial, pack(Path(trial["trial_dir"])) if self._carries else None, self._grace)
        self._tasks[task] = command

    def _tell_ends(self) -> None:
        tasks = list(self._tasks)
        for task in ray.wait(tasks, num_returns=len(tasks), timeout=_TICK)[0] if tasks else ():
            command = self._tasks.pop(task)
            found = _end_of(task)
            if files := found.pop("files", None):
                _unpack(files, Path(command["trial"]["trial_dir"]))
            self._line.send({"op": "ended", "id": command["id"], **found})

    def _tell_nodes(self) -> None:
        if time.monotonic() - self._nodes_at < _NODES_EVERY:
            return
        self._nodes_at = time.monotonic()
        nodes = [_described(node) for node in _untyped.nodes() if node["Alive"]]
        if nodes != self._nodes:
            self._nodes = nodes
            self._line.send({"op": "nodes", "nodes": nodes})


def _end_of(task: Any) -> dict[str, Any]:
    """What the task returned, or why it returned nothing."""
    try:
        return dict(ray.get(task))
    except ray.exceptions.TaskCancelledError:
        return {"lost": "its task was cancelled"}
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError):
        return {"lost": "Ray lost its worker"}
    except ray.exceptions.RayError as wrong:
        return {"lost": f"Ray could not run it: {' '.join(str(wrong).split())[:300]}"}


def _described(node: Mapping[str, Any]) -> dict[str, Any]:
    resources = node["Resources"]
    return {
        "id": node["NodeID"],
        "cpus": int(resources.get("CPU", 0)),
        "gpus": int(resources.get("GPU", 0)),
    }


def _runtime_env(working_dir: str | None) -> dict[str, Any]:
    """Without run directories inside the working directory: they hold every earlier trial."""
    excludes = list(_LEFT_AT_HOME)
    if working_dir is None:
        return {"py_modules": [str(_PACKAGE)], "excludes": excludes}
    root = Path(working_dir)
    for place, folders, _ in os.walk(root):
        if ".aorta" in folders and Path(place) != root:
            excludes.append(f"/{Path(place).relative_to(root)}")
            folders.clear()
    return {"py_modules": [str(_PACKAGE)], "working_dir": working_dir, "excludes": excludes}


def main() -> None:
    number, options = int(sys.argv[1]), json.loads(sys.argv[2])
    with socket.socket(fileno=number) as control:
        control.set_inheritable(False)
        ray.init(
            address=options["address"],
            log_to_driver=False,
            include_dashboard=False if options["address"] is None else None,
            namespace="aorta",
            runtime_env=_runtime_env(options["working_dir"]),
        )
        carries = options["working_dir"] is not None
        driver = Driver(Line(control), options["grace"], carries=carries)
        try:
            driver.serve()
        except (OwnerGoneError, ConnectionError):
            driver.cancel_all()
        finally:
            ray.shutdown()


if __name__ == "__main__":
    main()
