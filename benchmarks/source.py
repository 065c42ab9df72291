"""How short does `aorta reduce --source` make real programs, and is it still their failure?

The programs are public repositories, of which nothing is here: `AORTA_SOURCE_CHECKOUTS` names a
folder of checkouts, each called `owner+name`; what is not there is skipped and said. A failure is
planted in each by a fixed substitution, written down before anything was reduced: a shape, a type of
numbers, an index, a key, an assertion, a device, a NaN.

*kept*: the script fails with the same last line as the original. *repaired*: with the planted
expression in the script put back as it was (its variables may be called otherwise), the script ends
well. Target: median <= 30 lines, 90 % kept and repaired, <= 400 trials, <= 15 minutes on two cores.

Beside it stands shrinkray, on the program as one file, and, for failures of `torch.compile` (kind
`compile`: bugs that torch itself has in store for tests of its minifier), torch's minifier. Each
reducer has two jobs a case and the same seconds, `AORTA_SOURCE_SECONDS`; `AORTA_SOURCE_AT_ONCE`
cases run side by side, so give it half of the machine's cores at most.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aorta.reduce.source.repair import fixes_between
from benchmarks.source_peers import Peer, by_shrinkray, by_torch_minifier, last_words
from benchmarks.source_repair import repaired

PLACE = "AORTA_SOURCE_CHECKOUTS"
# Part of the names of the cases that are run.
ONLY = "AORTA_SOURCE_ONLY"
# How many cases run side by side.
AT_ONCE = "AORTA_SOURCE_AT_ONCE"
# What each reducer may take for a case.
SECONDS = "AORTA_SOURCE_SECONDS"


@dataclass(frozen=True)
class Case:
    """`was` becomes `planted` at its first place in `file`; both are expressions."""

    repository: str
    kind: str
    command: tuple[str, ...]
    file: str
    was: str
    planted: str
    folder: str = "."
    env: dict[str, str] = field(default_factory=dict)
    prepare: str = ""  # Python that makes the data which the repository would download
    minify_after: str = ""  # TORCHDYNAMO_REPRO_AFTER, where torch's minifier covers the failure

    @property
    def name(self) -> str:
        return f"{self.repository} {self.command[0]} {self.kind}"


_HERE = {"PYTHONPATH": "."}
_SMALL_GPT = (
    "train.py --device=cpu --compile=False --dataset=shakespeare_char --eval_iters=1 --max_iters=1"
    " --block_size=16 --batch_size=2 --n_layer=1 --n_head=2 --n_embd=8"
)
_ADDER = "projects/adder/adder.py --trainer.max_iters=2"
_WRONG_CPP = 'options={"cpp.inject_relu_bug_TESTING_ONLY": "compile_error"}'
_WRONG_BACKEND = 'backend="non_leaf_compile_error_TESTING_ONLY"'
_RANDOM_TEXT = (
    "import numpy; [numpy.random.randint(0, 60, 4000).astype(numpy.uint16).tofile("
    "f'data/shakespeare_char/{name}.bin') for name in ('train', 'val')]"
)

# repository, kind, command, file, what it was, what is planted, and how it differs from the rest.
_PLANTED: tuple[tuple[Any, ...], ...] = (
    (
        ("joelgrus+joelnet", "shape", "fizzbuzz.py", "fizzbuzz.py"),
        ("Linear(input_size=50, output_size=4)", "Linear(input_size=51, output_size=4)"),
    ),
    (
        ("joelgrus+joelnet", "shape", "xor.py", "joelnet/layers.py"),
        (
            "np.random.randn(input_size, output_size)",
            "np.random.randn(input_size, output_size, 1)",
        ),
    ),
    (
        ("joelgrus+joelnet", "key", "xor.py", "joelnet/layers.py"),
        (
            'self.params["b"] = np.random.randn(output_size)',
            'self.params["bias"] = np.random.randn(output_size)',
        ),
    ),
    (
        ("joelgrus+joelnet", "index", "fizzbuzz.py", "joelnet/data.py"),
        ("targets[start:end]", "targets[start:end, :, 0]"),
    ),
    (
        ("joelgrus+joelnet", "dtype", "xor.py", "joelnet/layers.py"),
        ("np.random.randn(output_size)", "np.zeros(output_size, dtype=int)"),
    ),
    (
        ("jcjohnson+pytorch-examples", "shape", "two_layer_net_numpy.py", "two_layer_net_numpy.py"),
        ("np.random.randn(H, D_out)", "np.random.randn(H + 1, D_out)"),
        {"folder": "tensor"},
    ),
    (
        ("jcjohnson+pytorch-examples", "shape", "two_layer_net_optim.py", "two_layer_net_optim.py"),
        ("torch.nn.Linear(H, D_out)", "torch.nn.Linear(H + 1, D_out)"),
        {"folder": "nn"},
    ),
    (
        (
            "jcjohnson+pytorch-examples",
            "dtype",
            "two_layer_net_module.py",
            "two_layer_net_module.py",
        ),
        ("torch.randn(N, D_in)", "torch.randn(N, D_in, dtype=torch.float64)"),
        {"folder": "nn"},
    ),
    (
        ("pytorch+examples", "shape", "main.py", "main.py"),
        ("torch.nn.Linear(W_target.size(0), 1)", "torch.nn.Linear(W_target.size(0) + 1, 1)"),
        {"folder": "regression"},
    ),
    (
        ("pytorch+examples", "key", "invert.py", "invert.py"),
        ("env[node.args[0].name] = new_node", "env[node.name] = new_node"),
        {"folder": "fx"},
    ),
    (
        ("karpathy+minGPT", "shape", _ADDER, "mingpt/model.py"),
        (
            "nn.Linear(4 * config.n_embd, config.n_embd)",
            "nn.Linear(4 * config.n_embd + 1, config.n_embd)",
        ),
        {"env": _HERE},
    ),
    (
        ("karpathy+minGPT", "index", _ADDER, "mingpt/model.py"),
        (
            "nn.Embedding(config.block_size, config.n_embd)",
            "nn.Embedding(config.block_size - 1, config.n_embd)",
        ),
        {"env": _HERE},
    ),
    (
        ("karpathy+minGPT", "assertion", _ADDER, "mingpt/model.py"),
        ("config.n_embd % config.n_head == 0", "config.n_embd % config.n_head == 1"),
        {"env": _HERE},
    ),
    (
        ("karpathy+minGPT", "key", _ADDER, "mingpt/model.py"),
        ("'gpt-nano'", "'gpt-nan0'"),
        {"env": _HERE},
    ),
    (
        (
            "karpathy+makemore",
            "index",
            "makemore.py --type mlp --max-steps 3 -n 0",
            "makemore.py",
        ),
        (
            "nn.Embedding(config.vocab_size + 1, config.n_embd)",
            "nn.Embedding(config.vocab_size - 1, config.n_embd)",
        ),
    ),
    (
        ("karpathy+makemore", "shape", "makemore.py --max-steps 3", "makemore.py"),
        (
            "nn.Linear(config.n_embd, 3 * config.n_embd)",
            "nn.Linear(config.n_embd + 1, 3 * config.n_embd)",
        ),
    ),
    (
        ("karpathy+nanoGPT", "shape", _SMALL_GPT, "model.py"),
        (
            "nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)",
            "nn.Linear(4 * config.n_embd + 1, config.n_embd, bias=config.bias)",
        ),
        {"prepare": _RANDOM_TEXT},
    ),
    (
        ("karpathy+ng-video-lecture", "shape", "gpt.py", "gpt.py"),
        (
            "nn.Linear(head_size * num_heads, n_embd)",
            "nn.Linear(head_size * num_heads + 1, n_embd)",
        ),
    ),
    (
        ("karpathy+ng-video-lecture", "index", "bigram.py", "bigram.py"),
        ("nn.Embedding(vocab_size, vocab_size)", "nn.Embedding(vocab_size - 9, vocab_size)"),
    ),
    (
        ("karpathy+minbpe", "key", "train.py", "minbpe/basic.py"),
        (
            "vocab[idx] = vocab[pair[0]] + vocab[pair[1]]",
            "vocab[idx + 1] = vocab[pair[0]] + vocab[pair[1]]",
        ),
    ),
    (
        ("graykode+nlp-tutorial", "shape", "Seq2Seq.py", "Seq2Seq.py"),
        ("nn.Linear(n_hidden, n_class)", "nn.Linear(n_hidden + 1, n_class)"),
        {"folder": "4-1.Seq2Seq"},
    ),
    (
        ("graykode+nlp-tutorial", "device", "Seq2Seq.py", "Seq2Seq.py"),
        (
            "torch.zeros(1, batch_size, n_hidden)",
            "torch.zeros(1, batch_size, n_hidden, device='meta')",
        ),
        {"folder": "4-1.Seq2Seq"},
    ),
    (
        ("graykode+nlp-tutorial", "index", "TextCNN.py", "TextCNN.py"),
        ("len(word_dict)", "len(word_dict) - 1"),
        {"folder": "2-1.TextCNN"},
    ),
    (
        (
            "locuslab+TCN",
            "shape",
            "TCN/adding_problem/add_test.py --cuda --seq_len 20 --levels 2 --epochs 1",
            "TCN/adding_problem/model.py",
        ),
        (
            "nn.Linear(num_channels[-1], output_size)",
            "nn.Linear(num_channels[-1] + 1, output_size)",
        ),
        {"env": _HERE},
    ),
    (
        (
            "rtqichen+torchdiffeq",
            "shape",
            "examples/ode_demo.py --niters 2",
            "examples/ode_demo.py",
        ),
        ("nn.Linear(50, 2)", "nn.Linear(51, 2)"),
        {"env": _HERE},
    ),
    (
        ("rtqichen+torchdiffeq", "nan", "examples/ode_demo.py --niters 2", "examples/ode_demo.py"),
        ("self.net(y**3)", "self.net(y**3 / 0)"),
        {"env": _HERE},
    ),
    (
        ("tanelp+tiny-diffusion", "shape", "ddpm.py", "ddpm.py"),
        ("nn.Linear(size, size)", "nn.Linear(size + 1, size)"),
    ),
    (
        (
            "eriklindernoren+ML-From-Scratch",
            "shape",
            "mlfromscratch/examples/logistic_regression.py",
            "mlfromscratch/supervised_learning/logistic_regression.py",
        ),
        ("(y - y_pred).dot(X)", "(y - y_pred).dot(X.T)"),
        {"env": _HERE},
    ),
    (
        ("hunkim+PyTorchZeroToAll", "index", "12_4_hello_rnn_emb.py", "12_4_hello_rnn_emb.py"),
        (
            "nn.Embedding(input_size, embedding_size)",
            "nn.Embedding(input_size - 2, embedding_size)",
        ),
    ),
    (
        ("MorvanZhou+PyTorch-Tutorial", "dtype", "403_RNN_regressor.py", "403_RNN_regressor.py"),
        (
            "np.linspace(start, end, TIME_STEP, dtype=np.float32, endpoint=False)",
            "np.linspace(start, end, TIME_STEP, dtype=np.float64, endpoint=False)",
        ),
        {"folder": "tutorial-contents"},
    ),
    (
        (
            "lucidrains+x-transformers",
            "index",
            "train_copy.py",
            "x_transformers/x_transformers.py",
        ),
        ("nn.Embedding(num_tokens, dim)", "nn.Embedding(num_tokens - 2, dim)"),
    ),
    (
        (
            "jcjohnson+pytorch-examples",
            "compile",
            "two_layer_net_optim.py",
            "two_layer_net_optim.py",
        ),
        ("model(x)", f"torch.compile(model, {_WRONG_CPP})(x)"),
        {"folder": "nn", "minify_after": "aot"},
    ),
    (
        ("graykode+nlp-tutorial", "compile", "TextCNN.py", "TextCNN.py"),
        ("model(inputs)", f"torch.compile(model, {_WRONG_CPP})(inputs)"),
        {"folder": "2-1.TextCNN", "minify_after": "aot"},
    ),
    (
        ("karpathy+ng-video-lecture", "compile", "bigram.py", "bigram.py"),
        (
            "F.cross_entropy(logits, targets)",
            f"torch.compile(F.cross_entropy, {_WRONG_BACKEND})(logits, targets)",
        ),
        {"minify_after": "dynamo"},
    ),
    (
        ("karpathy+minGPT", "compile", _ADDER, "mingpt/model.py"),
        ("F.cross_entropy(", f"torch.compile(F.cross_entropy, {_WRONG_BACKEND})("),
        {"env": _HERE, "minify_after": "dynamo"},
    ),
)


def _case(where: Sequence[str], texts: Sequence[str], more: dict[str, Any] | None = None) -> Case:
    (repository, kind, command, file), (was, planted) = where, texts
    return Case(repository, kind, tuple(command.split()), file, was, planted, **(more or {}))


CASES = tuple(_case(*one) for one in _PLANTED)


@dataclass(frozen=True)
class Row:
    case: Case
    before: int = 0
    lines: int = 0
    files: int = 0
    trials: int = 0
    seconds: float = 0.0
    kept: bool = False
    repaired: bool = False
    note: str = ""
    script: str = ""
    peers: tuple[Peer, ...] = ()


def main() -> None:
    place = os.environ.get(PLACE)
    if not place:
        print(f"skipped: {PLACE} names no folder of checkouts")
        return
    wanted = [case for case in CASES if os.environ.get(ONLY, "") in case.name]
    for missing in sorted({c.repository for c in wanted if not _checkout(place, c).is_dir()}):
        print(f"skipped: there is no {missing} in {place}")
    rows: list[Row] = []
    with ThreadPoolExecutor(int(os.environ.get(AT_ONCE, "1"))) as pool:
        there = [case for case in wanted if _checkout(place, case).is_dir()]
        for done in as_completed(pool.submit(_measured, c, _checkout(place, c)) for c in there):
            rows.append(done.result())
            _show(rows[-1])
    if rows:
        _summarise(rows)


def _checkout(place: str, case: Case) -> Path:
    return Path(place) / case.repository


def _seconds() -> float:
    return float(os.environ.get(SECONDS, "900"))


def _measured(case: Case, checkout: Path) -> Row:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        place = Path(made) / "program"
        shutil.copytree(checkout / case.folder, place, symlinks=True)
        planted = place / case.file
        text = planted.read_text("utf-8")
        if case.was not in text:
            return Row(case, note="the planted place is not there")
        if case.prepare:
            _run([sys.executable, "-c", case.prepare], place, dict(os.environ))
        planted.write_text(text.replace(case.was, case.planted, 1), "utf-8")
        env = {**os.environ, **case.env, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *case.command]
        first = _run(command, place, env)
        if first.returncode == 0:
            return Row(case, note="the planted failure does not show")
        if last_words(first.stderr).startswith("ModuleNotFoundError"):
            return Row(case, note=last_words(first.stderr))
        began = time.monotonic()
        words = ["reduce", "--source", "--json", "-q", "--jobs", "2"]
        words += ["--max-wall-clock", f"{_seconds():g}s"]
        given = [word for pair in case.env.items() for word in ("--extra-env", "=".join(pair))]
        done = _run([sys.executable, "-m", "aorta", *words, *given, "--", *command], place, env)
        seconds = time.monotonic() - began
        try:
            result = json.loads(done.stdout)
            run_dir = place / result["run_dir"]
            script = (run_dir / "shrunken" / "repro.py").read_text("utf-8")
        except (ValueError, OSError):
            return Row(case, seconds=seconds, note=done.stderr.strip()[-200:] or "no script")
        row = result["axes"][-1]
        alone = Path(made) / "alone"
        shutil.copytree(run_dir / "shrunken", alone)
        again = _run([sys.executable, "repro.py"], alone, env)
        facts = run_dir.parent / ".aorta" / run_dir.name / "source" / "original.0.jsonl"
        return Row(
            case,
            row["initial_lines"],
            row["final_lines"],
            row["final_files"],
            result["trials"],
            seconds,
            again.returncode != 0 and last_words(again.stderr) == last_words(first.stderr),
            _is_cured(text, planted.read_text("utf-8"), script, alone, env),
            "" if result["status"] == "reduced" else result["status"],
            script,
            (
                by_shrinkray(place, facts, command, env, _seconds()),
                by_torch_minifier(place, command, env, _seconds(), case.minify_after),
            ),
        )


def _is_cured(good: str, bad: str, script: str, alone: Path, env: dict[str, str]) -> bool:
    """Whether the script ends well with what was planted put back, whatever its variables are
    called there.
    """
    text = repaired(script, fixes_between(bad, good))
    if text is None:
        return False
    (alone / "repro.py").write_text(text, "utf-8")
    return _run([sys.executable, "repro.py"], alone, env).returncode == 0


def _run(words: list[str], place: Path, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        words,
        cwd=place,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * _seconds() + 60,
    )


def _show(row: Row) -> None:
    print(
        f"{row.script}\n{row.case.name}: {row.before} -> {row.lines} lines in {row.files} files, "
        f"{row.trials} trials, {row.seconds:.0f} s, kept {row.kept}, repaired {row.repaired}"
        f"{f' ({row.note})' if row.note else ''}",
        flush=True,
    )
    for peer in row.peers:
        figures = f"{peer.lines} lines, {peer.executions} executions, {peer.seconds:.0f} s, "
        figures = f"{figures}kept {peer.kept}" if peer.lines else "none"
        print(f"  {peer.name}: {figures}{f' ({peer.note})' if peer.note else ''}", flush=True)


def _summarise(rows: list[Row]) -> None:
    """Of those that were reduced; the others, which could not be run, are counted apart."""
    ran = [row for row in rows if row.lines]
    print(f"{len(rows) - len(ran)} of {len(rows)} programs could not be run or not be reduced")
    if not ran:
        return
    good = sum(row.kept and row.repaired for row in ran)
    print(
        f"{len(ran)} programs: median {statistics.median(r.lines for r in ran):g} lines, "
        f"median {statistics.median(r.trials for r in ran):g} trials, "
        f"kept {sum(r.kept for r in ran)}, kept and repaired {good}, "
        f"at most {max(r.trials for r in ran)} trials, at most {max(r.seconds for r in ran):.0f} s"
    )
    for name in sorted({peer.name for row in ran for peer in row.peers}):
        peers = [peer for row in ran for peer in row.peers if peer.name == name and peer.lines]
        if peers:
            print(
                f"{name} on {len(peers)} of them: median "
                f"{statistics.median(p.lines for p in peers):g} lines, median "
                f"{statistics.median(p.executions for p in peers):g} executions, "
                f"{sum(p.kept for p in peers)} kept, "
                f"{sum(p.note == 'stopped' for p in peers)} stopped at their limit"
            )


if __name__ == "__main__":
    main()
