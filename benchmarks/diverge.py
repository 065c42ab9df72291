"""`aorta diverge`: how many of the planted divergences it names, and what recording costs a step.

On a machine with a GPU also two real ones: a product in TF32 against the same in full precision,
and an overflow in half precision.
"""

import json
import linecache
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from aorta.diverge.comparing import Parting, compare, self_difference
from aorta.diverge.stream import HOOK, read_streams
from benchmarks.divergences import PLANTED, TWO_OF_EACH, run_planted

_STEP = """
    import os, time
    import torch
    from torch import nn

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)
    wide = int(os.environ["WIDE"])
    layer = nn.TransformerEncoderLayer(wide, 4, 4 * wide, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 4).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(16, 64 if wide < 1000 else 1024, wide, device=device)
    times = []
    for _ in range(6):
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    print(sorted(times[1:])[2])
"""
_TF32 = """
    import os, torch

    torch.backends.cuda.matmul.allow_tf32 = os.environ["SIDE"] == "bad"
    torch.manual_seed(1)
    x = torch.randn(512, 512, device="cuda")
    w = torch.randn(512, 512, device="cuda") / 512**0.5
    for _ in range(3):
        x = torch.tanh(x)
        x = x @ w  # parts here
"""
_HALF = """
    import os, torch

    kind = torch.bfloat16 if os.environ["SIDE"] == "bad" else torch.float32
    torch.manual_seed(1)
    x = (torch.rand(4096, device="cuda") * 1000).to(kind)
    squares = x * x
    total = squares - squares.mean()
    y = torch.exp(x.to(torch.float16) / 50) if kind is torch.bfloat16 else torch.exp(x / 50)  # overflows
    y.float().sum()
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="aorta-bench-") as folder:
        _table(Path(folder))
        _cost(Path(folder))
        if _has_gpu():
            _gpu(Path(folder))


def _table(out: Path) -> None:
    run_planted(dict.fromkeys(PLANTED, TWO_OF_EACH), out)
    right = 0
    for name, planted in PLANTED.items():
        bad, good = (
            [read_streams(path) for path in sorted((out / name).glob(f"{side}-*"))]
            for side in ("bad", "good")
        )
        own = self_difference(bad) or self_difference(good)
        found = own if planted.status == "nondeterministic" else compare(bad, good).first
        is_right = (
            _is_named(found, planted.op, planted.line) if planted.status != "same" else not found
        )
        right += is_right
        print(f"  {'right' if is_right else 'WRONG':<6} {name:<26} {_words(found)}")
    print(f"planted divergences named right: {right} of {len(PLANTED)}")


def _is_named(found: Parting | None, op: str, line: str) -> bool:
    if found is None:
        return False
    at = found.operation
    return op in ("", at.op) and line in linecache.getline(at.file, at.line)


def _words(found: Parting | None) -> str:
    if found is None:
        return "no operation parts"
    at = found.operation
    return (
        f"{at.op}, line {at.line}, step {at.step}: {found.judged.difference:.3g} (expected "
        f"{found.judged.expected:.3g})"
    )


def _cost(out: Path) -> None:
    for wide in ("256", "2048") if _has_gpu() else ("256",):
        plain, recorded = (
            float(_run(_STEP, out / f"step-{wide}-{record}", record=record, wide=wide))
            for record in (False, True)
        )
        print(
            f"a step of a transformer {wide} wide: {1000 * plain:.1f} ms, recorded "
            f"{1000 * recorded:.1f} ms: {recorded / plain:.2f} times (goal: at most 3)"
        )


def _run(program: str, out: Path, *, record: bool, side: str = "bad", wide: str = "") -> str:
    out.mkdir(parents=True, exist_ok=True)
    script = out / "program.py"
    script.write_text(textwrap.dedent(program))
    env = {**os.environ, "SIDE": side, "WIDE": wide}
    if record:
        env["PYTHONPATH"] = str(HOOK)
        env["AORTA_DIVERGE"] = json.dumps({"out": str(out / "operations")})
    done = subprocess.run(
        (sys.executable, str(script)), env=env, capture_output=True, text=True, check=True
    )
    return done.stdout


def _has_gpu() -> bool:
    asked = "import torch; raise SystemExit(not torch.cuda.is_available())"
    return subprocess.run((sys.executable, "-c", asked), check=False).returncode == 0


def _gpu(out: Path) -> None:
    for name, program, op, line in (
        ("TF32", _TF32, "aten::mm", "parts here"),
        ("half precision", _HALF, "", "overflows"),
    ):
        for side in ("bad", "good"):
            for number in range(2):
                _run(program, out / f"{name}-{side}-{number}", record=True, side=side)
        bad, good = (
            [read_streams(out / f"{name}-{side}-{n}" / "operations") for n in range(2)]
            for side in ("bad", "good")
        )
        found = compare(bad, good).first
        where = (
            linecache.getline(found.operation.file, found.operation.line).strip() if found else ""
        )
        print(
            f"  {'right' if _is_named(found, op, line) else 'WRONG':<6} {name} on a GPU: "
            f"{_words(found)}: {where}"
        )
