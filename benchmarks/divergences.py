"""Planted divergences: small programs with two sides, and the line at which the sides part, marked
beforehand.

Each program is a function of its side. It runs in a child forked from a process that has torch and
the recorder already, so that a table of sixty costs one import.
"""

import gc
import importlib
import json
import linecache
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta.diverge.comparing import Comparison, Parting, compare
from aorta.diverge.stream import HOOK, Stream


@dataclass(frozen=True)
class Planted:
    """`op`, where only one is right, and the words of the line where the sides part."""

    program: Callable[[bool], None]
    op: str
    line: str = ""
    step: int | None = None
    module: str | None = None
    status: str = "found"
    ranks: int = 1
    dtype: str = ""  # what is requested of the good side

    def runs(self) -> list["Run"]:
        """Two of each side."""
        if not self.dtype:
            return TWO_OF_EACH
        drawn: dict[str, Any] = {"same_random": True}
        return [*[("bad", drawn)] * 2, *[("good", {**drawn, "dtype": self.dtype})] * 2]

    def compared(
        self, bad: Sequence[Sequence[Stream]], good: Sequence[Sequence[Stream]]
    ) -> Comparison:
        return compare(bad, good, any_type=bool(self.dtype))


def planted() -> dict[str, Planted]:
    """All of them, by name: thirty written before the code they measure, the others after it."""
    modules = (
        "divergences_before",
        "divergences_after",
        "divergences_unseen",
        "divergences_blind",
        "divergences_recurrent",
        "divergences_fresh",
        "divergences_sealed",
        "divergences_accumulated",
        "divergences_libraries",
        "divergences_lived",
        "divergences_training",
        "divergences_last",
        "divergences_second",
        "divergences_reported",
    )
    return {
        name: one
        for module in (f"benchmarks.{name}" for name in modules)
        for name, one in importlib.import_module(module).PLANTED.items()
    }


def is_named(found: Parting | None, one: Planted) -> bool:
    """Whether what was found is what was planted."""
    if one.status == "same" or found is None:
        return one.status == "same" and found is None
    at = found.operation
    # Where torch has the choice, it does for a list of tensors at once what it does for each.
    return (
        one.op in ("", at.op, at.op.replace("_foreach_", ""))
        and one.line in linecache.getline(at.file, at.line)
        and one.step in (None, at.step)
        and one.module in (None, found.module)
    )


Run = tuple[str, dict[str, Any]]  # side, further orders
TWO_OF_EACH: list[Run] = [("bad", {}), ("bad", {}), ("good", {}), ("good", {})]


def run_planted(runs: Mapping[str, Sequence[Run]], out: Path, device: str = "cpu") -> None:
    """Record the runs of each program, given by its name."""
    told = {"runs": runs, "out": str(out), "device": device}
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HOOK), *sys.path]),
        "AORTA_DIVERGE": json.dumps({"out": str(out / "driver")}),
        "TORCHDYNAMO_DISABLE": "1",
        "OMP_NUM_THREADS": "1",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }
    argv = (sys.executable, __file__, json.dumps(told))
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def _drive(told: dict[str, Any]) -> None:
    """In the process that has torch: every run in a child of its own."""
    torch = importlib.import_module("torch")
    programs = planted()
    _step_once(torch)
    gc.freeze()  # no child looks through it
    at_once = 1 if told["device"] == "cpu" else _AT_ONCE
    children: dict[int, str] = {}
    failed: list[str] = []
    for name, runs in told["runs"].items():
        for number, (side, orders) in enumerate(runs):
            out = Path(told["out"]) / name / f"{side}-{number}"
            for rank in range(programs[name].ranks):
                if len(children) >= at_once * programs[name].ranks:
                    _wait_for_one(children, failed)
                child = os.fork()
                if child == 0:
                    _set_rank(rank, programs[name].ranks, out)
                    _record(
                        torch, programs[name], side, {"out": str(out), **orders}, told["device"]
                    )
                children[child] = f"{name} {side}"
    while children:
        _wait_for_one(children, failed)
    if failed:
        raise SystemExit("\n".join(failed))


_AT_ONCE = 8  # on a GPU: each child starts a context of its own


def _wait_for_one(children: dict[int, str], failed: list[str]) -> None:
    child, status = os.wait()
    name = children.pop(child)
    if status:
        failed.append(f"{name}: ended with {status}")


def _step_once(torch: Any) -> None:
    """The first optimizer makes torch import its compiler, 1.4 s: once, for all children. Without a
    backward pass: its threads would not live on in them.
    """
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    torch.optim.SGD([parameter]).step()


def _set_rank(rank: int, ranks: int, out: Path) -> None:
    if ranks > 1:
        out.mkdir(parents=True, exist_ok=True)
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "STORE": str(out / "store")}


def _record(torch: Any, one: Planted, side: str, orders: dict[str, Any], device: str) -> None:
    aorta_recorder: Any = importlib.import_module("aorta_recorder")
    torch.set_num_threads(1)
    if device != "cpu":
        torch.set_default_device(device)
    recorder = aorta_recorder.begin(aorta_recorder.RecorderSettings(**orders))
    torch.manual_seed(0)
    code = 1
    try:
        one.program(side == "bad")
        code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        recorder.close()
        os._exit(code)


if __name__ == "__main__":
    gc.disable()
    _drive(json.loads(sys.argv[1]))
    os._exit(0)  # to take torch apart takes a second
