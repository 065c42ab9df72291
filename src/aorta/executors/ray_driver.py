"""The process in which Ray lives: it submits tasks, and says over a socket what became of them.

Ray prints where it likes, installs signal handlers and starts threads; a process of its own keeps
all of that out of Aorta's. It is run as a script, so that Ray sends `hold_place` to the workers by
value: they need no Aorta.
"""

import hashlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import ray

_PACKAGE = Path(__file__).parents[1]
sys.path.insert(0, str(_PACKAGE.parent))

from aorta.executors.framing import Frames, frame  # noqa: E402 - a script finds the package only now

_NEEDED = ("core", "executors", "runtimes")  # what an worker imports: standard library only
_untyped: Any = ray  # for those of its functions that carry no types
_NODES_EVERY = 1.0
_TICK = 0.2


def hold_place(
    archive: bytes, digest: str, variables: Mapping[str, str], names: Mapping[str, str]
) -> str:
    """In a process of Ray's: have a worker run one trial, from an archive of Aorta's own source.

    The worker lives as long as Ray's process, which is given task after task; the next one goes to
    it too.
    """
    private = Path(tempfile.gettempdir()) / f"aorta-{os.getuid()}"
    private.mkdir(mode=0o700, exist_ok=True)
    about = private.lstat()
    if about.st_uid != os.getuid() or about.st_mode & 0o077:  # somebody else's
        private = Path(tempfile.mkdtemp(prefix="aorta-"))
    source = private / digest
    # Unpacked, because Python keeps no compiled files for what it imports from an archive.
    if not source.exists():
        unfinished = private / f"{digest}.{os.getpid()}"
        zipfile.ZipFile(BytesIO(archive)).extractall(unfinished)
        try:
            unfinished.rename(source)
        except OSError:  # another worker was first
            shutil.rmtree(unfinished)
    program = (
        f"import sys; sys.path.insert(0, {str(source)!r}); "
        "from aorta.executors.worker import main_of_many; main_of_many()"
    )
    kept = vars(ray).setdefault("_aorta_workers", [])  # one at most
    if kept and kept[0].poll() is not None:
        kept.clear()
    if not kept:
        kept.append(
            subprocess.Popen(
                [sys.executable, "-S", "-E", "-s", "-c", program],
                env={**os.environ, names["parent"]: str(os.getpid())},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
    worker = kept[0]
    node = ray.get_runtime_context().get_node_id()
    mine = {**os.environ, **variables, names["node"]: node}
    try:
        worker.stdin.write(json.dumps(mine).encode() + b"\n")
        worker.stdin.flush()
        answer = worker.stdout.readline()
        if answer:
            return str(json.loads(answer))
    except BrokenPipeError:
        pass
    except BaseException:  # the task is cancelled: its worker ends the trial first
        worker.terminate()
        worker.wait(60)
        raise
    return bytes(worker.communicate()[1][-300:]).decode("utf-8", "replace").strip()


class Driver:
    """Commands in, news out, until the owner closes the socket."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._frames = Frames()
        self._tasks: dict[Any, str] = {}  # reference -> ticket
        self._nodes: list[dict[str, Any]] = []
        self._nodes_at = 0.0
        archive = _own_source()
        self._digest = hashlib.sha256(archive).hexdigest()[:32]
        self._archive = ray.put(archive)
        # Also where a task has GPUs, which Ray's process itself never uses, it is given the next
        # one.
        self._hold = _untyped.remote(max_calls=0)(hold_place)

    def serve(self) -> None:
        while True:
            self._tell_nodes()
            if select.select([self._control], [], [], _TICK)[0]:
                data = self._control.recv(1 << 20)
                if not data:
                    return
                self._frames.feed(data)
                for command in self._frames:
                    self._obey(command)
            self._tell_ends()

    def _obey(self, command: Mapping[str, Any]) -> None:
        if command["op"] == "submit":
            avoided = command["avoid"]
            selector = {"ray.io/node-id": f"!in({','.join(avoided)})"} if avoided else None
            task = self._hold.options(
                num_cpus=command["cpus"],
                num_gpus=command["gpus"],
                max_retries=0,  # the engine tries again, and counts it
                label_selector=selector,
                name="aorta trial",
            ).remote(self._archive, self._digest, command["variables"], command["names"])
            self._tasks[task] = command["ticket"]
        else:
            for task, ticket in self._tasks.items():
                if ticket in command["tickets"]:
                    ray.cancel(task, force=False, recursive=False)

    def _tell_ends(self) -> None:
        if not self._tasks:
            return
        tasks = list(self._tasks)
        for task in ray.wait(tasks, num_returns=len(tasks), timeout=0)[0]:
            self._tell({"op": "over", "ticket": self._tasks.pop(task), "why": _why(task)})

    def _tell_nodes(self) -> None:
        if time.monotonic() - self._nodes_at < _NODES_EVERY:
            return
        self._nodes_at = time.monotonic()
        nodes = [_described(node) for node in _untyped.nodes() if node["Alive"]]
        if nodes != self._nodes:
            self._nodes = nodes
            self._tell({"op": "nodes", "nodes": nodes})

    def _tell(self, news: Mapping[str, Any]) -> None:
        self._control.sendall(frame(news))


def _why(task: Any) -> str:
    """Why a task that is over gives no more: its worker's last words, or what Ray says of it."""
    try:
        said = ray.get(task)
    except ray.exceptions.TaskCancelledError:
        return "its task was cancelled"
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError):
        return "Ray lost its worker"
    except ray.exceptions.RayError as wrong:
        return f"Ray could not run it: {' '.join(str(wrong).split())[:300]}"
    return f"its task ended without a report{': ' if said else ''}{said}"


def _described(node: Mapping[str, Any]) -> dict[str, Any]:
    resources = node["Resources"]
    return {
        "id": node["NodeID"],
        "cpus": int(resources.get("CPU", 0)),
        "gpus": int(resources.get("GPU", 0)),
    }


def _own_source() -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for room in _NEEDED:
            for path in sorted((_PACKAGE / room).rglob("*.py")):
                inside = path.relative_to(_PACKAGE.parent)
                archive.writestr(zipfile.ZipInfo(str(inside)), path.read_bytes())
        for name in ("__init__.py", "version.py"):
            archive.writestr(zipfile.ZipInfo(f"aorta/{name}"), (_PACKAGE / name).read_bytes())
    return buffer.getvalue()


def main() -> None:
    number, address = int(sys.argv[1]), sys.argv[2] or None
    with socket.socket(fileno=number) as control:
        control.set_inheritable(False)
        ray.init(
            address=address,
            log_to_driver=False,
            include_dashboard=False if address is None else None,
            namespace="aorta",
        )
        try:
            home = _untyped.util.get_node_ip_address()
            control.sendall(frame({"op": "ready", "address": home}))
            Driver(control).serve()
        finally:
            ray.shutdown()


if __name__ == "__main__":
    main()
