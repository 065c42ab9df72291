"""`aorta diverge`: how many of the planted divergences it names, and what recording costs a step.

`python -m benchmarks diverge` takes the GPU where there is one;
`python -m benchmarks.diverge cpu` says which. With the hook of another checkout, both in turn:
`python -m benchmarks.diverge cuda cost [HOOK]` measures the cost alone;
`python -m benchmarks.diverge cpu operation [HOOK]` what recording takes of the CPU for each
recorded operation, on tensors so small that nothing else counts;
`python -m benchmarks.diverge launches [HOOK]` the cost where there is no GPU: with a CUDA build of
torch and a GPU that takes launches and computes nothing (tools/stand_in_cuda.c), as a step 256 wide
waits for launches alone.
"""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

from aorta.diverge.comparing import Parting, self_difference
from aorta.diverge.stream import HOOK, read_streams
from benchmarks.divergences import is_named, planted, run_planted

_STEP = """
    import os, sys, time
    import torch
    from torch import nn
    from torch.utils._python_dispatch import TorchDispatchMode

    class Empty(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    device = os.environ["DEVICE"]
    clock = getattr(time, os.environ["CLOCK"])
    torch.set_num_threads(1)
    if sys.argv[1] == "dispatched":
        Empty().__enter__()
    wide = int(os.environ["WIDE"])
    layer = nn.TransformerEncoderLayer(wide, 4, 4 * wide, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 4).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(16, 64 if wide < 1000 else 1024, wide, device=device)

    def several(steps):
        began = clock()
        for _ in range(steps):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        return (clock() - began) / steps

    is_short = device == "cuda" and wide < 1000
    several(12 if is_short else 3)  # until all caches and memory are filled
    # What waits to be summed up is so every few steps: all of them count.
    times = [several(24) for _ in range(5)] if is_short else [several(5)]
    print(sorted(times)[len(times) // 2])
"""


_SMALL = """
    import sys, time
    import torch
    from torch import nn

    flushed, recorder = [0.0], None
    torch.set_num_threads(1)
    if sys.argv[1] != "plain":
        import aorta_recorder
        flush = aorta_recorder.Recorder.flush

        def timed(self):
            began = time.thread_time()
            flush(self)
            flushed[0] += time.thread_time() - began

        aorta_recorder.Recorder.flush = timed
        recorder = aorta_recorder.Recorder.current
    layer = nn.TransformerEncoderLayer(16, 4, 64, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 4)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    x = torch.randn(2, 4, 16)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    times = []
    for _ in range(10):
        step()
    flushed[0] = 0.0
    for _ in range(100):
        before, began = flushed[0], time.thread_time()
        step()
        times.append(time.thread_time() - began - (flushed[0] - before))
    print(1e6 * min(times), 1e4 * flushed[0], recorder.count / 110 if recorder else 0)
"""


_DISPATCHED: dict[str, str | None] = {"dispatched": None}  # through a mode that does nothing


def _in_turn(
    out: Path,
    script: str,
    turns: int,
    hooks: dict[str, str | None],
    more: dict[str, str] | None = None,
    python: str = sys.executable,
) -> dict[str, list[list[float]]]:
    """What each turn printed, plain first: what else the machine does hits all of them."""
    times: dict[str, list[list[float]]] = {"plain": [], **{name: [] for name in hooks}}
    for turn in range(turns):
        for name, found in times.items():
            place = out / f"{turn}-{name}".replace(" ", "-")
            found.append(_run_script(place, script, name, hooks.get(name), more, python))
    return times


def _hooks(other: str | None) -> dict[str, str | None]:
    return {"recorded": str(HOOK), **({"the other hook": other} if other else {})}


def _operation(out: Path, other: str | None) -> None:
    """The least of many steps, and of turns: whatever else the machine does only adds to it."""
    times = _in_turn(out, _SMALL, 3, _hooks(other))
    plain = min(times.pop("plain"))[0]
    print(f"a step: {plain:.0f} us")
    for name, found in times.items():
        took, _, records = min(found)
        flush = min(flushed for _, flushed, _ in found)
        print(
            f"  {name}: {(took - plain) / records:.2f} us more for each of {records:.0f} recorded "
            f"operations, and {flush / records:.2f} us to sum them up and write them"
        )


_ROOT = Path(__file__).parent.parent
_STAND_IN = _ROOT / ".venv-torch-stand-in"
_TORCH = "torch==2.11.0"  # for CUDA 13, whose runtime the stand-in is one of
_HEADERS = ("nvidia-cuda-runtime==13.0.*", "nvidia-cuda-crt==13.0.*")


def _python_with_stand_in() -> str:
    """Of an environment with a CUDA build of torch, made where it is not there yet."""
    python, headers = _STAND_IN / "bin" / "python", _STAND_IN / "headers"
    if not (_STAND_IN / ".installed").exists():
        pip = (str(python), "-m", "pip", "install", "--quiet")
        others = ("filelock", "fsspec", "jinja2", "networkx", "numpy<2", "sympy", "setuptools")
        stub = _ROOT / "tools" / "stub_cuda_libraries.py"
        for command in (
            (sys.executable, "-m", "venv", "--clear", str(_STAND_IN)),
            (*pip, "--no-deps", _TORCH),
            (*pip, *others, "typing-extensions"),
            (*pip, "--no-deps", "--target", str(headers), *_HEADERS),
            (sys.executable, str(stub), str(python), str(headers / "nvidia/cu13/include")),
        ):
            subprocess.run(command, check=True)
        (_STAND_IN / ".installed").touch()
    return str(python)


def _launches(out: Path, other: str | None) -> None:
    """By CPU time, and of all turns the least: what else the machine does only adds."""
    more = {"DEVICE": "cuda", "WIDE": "256", "CLOCK": "process_time"}
    hooks = {**_DISPATCHED, **_hooks(other)}
    times = _in_turn(out, _STEP, 7, hooks, more, _python_with_stand_in())
    plain, *others = (min(found)[0] for found in times.values())
    print(f"a step of a transformer 256 wide on a GPU that computes nothing: {1000 * plain:.2f} ms")
    for name, took in zip(hooks, others, strict=True):
        print(f"  {name}: {1000 * took:.2f} ms, {took / plain:.2f} times")


def main(device: str | None = None, what: str = "all", other: str | None = None) -> None:
    """On the GPU where there is one, unless told otherwise. `what`: all, or a cost alone."""
    if device == "launches":
        with tempfile.TemporaryDirectory(prefix="aorta-bench-") as folder:
            _launches(Path(folder), None if what == "all" else what)
        return
    device = device or ("cuda" if _has_gpu() else "cpu")
    with tempfile.TemporaryDirectory(prefix="aorta-bench-") as folder:
        if what == "operation":
            _operation(Path(folder), other)
            return
        if what == "all":
            _table(Path(folder), device)
        _cost(Path(folder), device, other)


def _table(out: Path, device: str) -> None:
    programs = planted()
    began = time.perf_counter()
    run_planted({name: one.runs() for name, one in programs.items()}, out, device)
    recorded = time.perf_counter() - began
    right = alarms = 0
    for name, one in programs.items():
        bad, good = (
            [read_streams(path) for path in sorted((out / name).glob(f"{side}-*"))]
            for side in ("bad", "good")
        )
        own = self_difference(bad) or self_difference(good)
        found = own if one.status == "nondeterministic" else one.compared(bad, good).first
        is_right = is_named(found, one)
        right += is_right
        alarms += one.status == "same" and not is_right
        print(f"  {'right' if is_right else 'WRONG':<6} {name:<30} {_words(found)}", flush=True)
    same = sum(one.status == "same" for one in programs.values())
    print(
        f"planted pairs named right on {device}: {right} of {len(programs)} (goal: at least 57 of 60)"
    )
    print(f"false alarms: {alarms} of {same} that are the same (goal: 0)")
    took = time.perf_counter() - began - recorded
    print(f"recorded in {recorded:.0f} s, compared in {took:.1f} s")


def _words(found: Parting | None) -> str:
    if found is None:
        return "no operation parts"
    at = found.operation
    return (
        f"{at.op}, line {at.line}, step {at.step}: {found.judged.difference:.3g} (expected "
        f"{found.judged.expected:.3g})"
    )


_GOALS = {256: 3.0, 2048: 1.5}


def _cost(out: Path, device: str, other: str | None) -> None:
    """Of several turns the one in the middle: from process to process it differs by a fifth."""
    hooks = {**_DISPATCHED, **_hooks(other)}
    for width, turns in ((256, 7), (2048, 3)) if device == "cuda" else ((256, 1),):
        more = {"DEVICE": device, "WIDE": str(width), "CLOCK": "perf_counter"}
        times = _in_turn(out / str(width), _STEP, turns, hooks, more)
        found = {name: sorted(1000 * took for (took,) in each) for name, each in times.items()}
        plain = found["plain"][turns // 2]
        for name, took in found.items():
            middle = took[turns // 2]
            words = f"{name}: {middle:.1f} ms (of {turns}: {took[0]:.1f} to {took[-1]:.1f})"
            goal = f" (goal: at most {_GOALS[width]})" if name == "recorded" else ""
            if name == "plain":
                print(f"a step of a transformer {width} wide, {words}")
            else:
                print(f"  {words}, {middle / plain:.2f} times{goal}", flush=True)


def _run_script(
    out: Path,
    text: str,
    how: str,
    hook: str | None,
    more: dict[str, str] | None = None,
    python: str = sys.executable,
) -> list[float]:
    """The numbers that it prints, recorded where a hook is given."""
    out.mkdir(parents=True, exist_ok=True)
    script = out / "program.py"
    script.write_text(textwrap.dedent(text))
    env = {**os.environ, **(more or {}), "TORCHDYNAMO_DISABLE": "1"}
    if hook is not None:
        env["PYTHONPATH"] = hook
        env["AORTA_DIVERGE"] = json.dumps({"out": str(out / "operations")})
    argv = (python, str(script), how)
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    return [float(number) for number in done.stdout.split()]


def _has_gpu() -> bool:
    asked = "import torch; raise SystemExit(not torch.cuda.is_available())"
    return subprocess.run((sys.executable, "-c", asked), check=False).returncode == 0


if __name__ == "__main__":
    main(*sys.argv[1:])
