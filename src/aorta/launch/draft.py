"""The draft of `aorta.yaml` for a failure: run the same script on this machine, and look for the same failure."""

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml

from aorta.core.errors import UsageError
from aorta.core.oracle import checked_pattern
from aorta.launch.decide import LastWords
from aorta.launch.nouns import Evidence
from aorta.launch.options import Options

_HEADER = """\
# Drafted from {cycle_id}: {reason}
# Next:  aorta reduce --spec {file} --output reduce
# Axes are what may shrink: variables with whole numbers that the script reads, and the number of ranks. Add what you know.
"""
_LONGEST_PATTERN = 160
_READS_VARIABLE = re.compile(
    r"""(?:environ(?:\.get)?\s*[\[(]|getenv\s*\()\s*["'](?P<name>\w+)["'](?:\s*,\s*["']?(?P<default>\d+))?"""
)
_LAUNCHER_SETS = re.compile(
    r"(?:LOCAL_|GROUP_|ROLE_)?(?:RANK|WORLD_SIZE)|ROLE_NAME|MASTER_\w+|TORCH\w*|AORTA_\w+|OMP_NUM_THREADS|CUDA_\w+"
)
_VARYING = re.compile(r"(?P<address>0x[0-9a-fA-F]+)|\d+(?:\.\d+)?")


def draft_spec(words: LastWords, options: Options, file: Path) -> str:
    ranks = sum(len(piece.ranks) for piece in words.failed.evidence) or options.torch.nproc_per_node
    if torch.cuda.is_available():
        ranks = min(ranks, torch.cuda.device_count())
    spec = {
        "workload": {"command": _command(options, ranks), "cwd": str(Path.cwd())},
        "oracle": _oracle(words, options),
        "axes": list(_axes(options, ranks)),
    }
    header = _HEADER.format(
        cycle_id=words.failed.start.cycle_id,
        reason=" ".join(words.ruling.verdict.reason.split()),
        file=shlex.quote(str(file)),
    )
    return header + yaml.safe_dump(spec, sort_keys=False, allow_unicode=True, width=1000)


def _command(options: Options, ranks: int) -> str:
    """Plain torchrun on one node: a reproducer must not restart what it is to reproduce."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    script = list(options.command)
    if script[0] == sys.executable:
        script = script[1:]
    else:
        torchrun.append("--no-python")
    return shlex.join([*torchrun, "--nproc-per-node", str(ranks), *script])


def _oracle(words: LastWords, options: Options) -> dict[str, Any]:
    if any(piece.hung for piece in words.failed.evidence):
        return {"kind": "hang", "silent_for": f"{options.settings.hang_timeout_seconds or 60:g}s"}
    pattern = _pattern(words.ruling.verdict.finding) or _signal_pattern(words.failed.evidence)
    if pattern is None:
        return {"kind": "exit_code"}
    return {"kind": "regex", "pattern": pattern, "stream": "both"}


def _pattern(finding: Mapping[str, Any] | None) -> str | None:
    """The line that tells the failure, with the numbers that differ from run to run left open."""
    lines = (finding or {}).get("evidence") or []
    logged = [line for line in lines if str(line.get("file", "")).endswith((".err", ".out"))]
    text = str(logged[0].get("text", "")).strip()[:_LONGEST_PATTERN] if logged else ""
    try:
        return checked_pattern(_left_open(text)) if text else None
    except UsageError:  # a line of numbers alone would match anything
        return None


def _left_open(text: str) -> str:
    """A pattern for this text whose numbers and addresses may be others."""
    pattern, end = "", 0
    for match in _VARYING.finditer(text):
        pattern += _literal(text[end : match.start()])
        pattern += "0x[0-9a-fA-F]+" if match["address"] else r"[\d.]+"
        end = match.end()
    return pattern + _literal(text[end:])


def _literal(text: str) -> str:
    return re.escape(text).replace(r"\ ", " ")  # people will read and edit it


def _signal_pattern(evidence: Sequence[Evidence]) -> str | None:
    """Torchrun tells the signal a rank died of, whatever the rank itself wrote."""
    failures = [end for piece in evidence for end in piece.failures]
    signals = [end.signal for end in failures if end.signal is not None]
    return rf"exitcode\s*: -{signals[0]}\b" if signals else None


def _axes(options: Options, ranks: int) -> Iterator[dict[str, Any]]:
    numbers = _numbers_the_script_reads(options)
    for name, value in numbers.items():
        yield {"name": name, "kind": "env", "type": "int", "initial": value, "floor": 1}
    if ranks > 1 or not numbers:
        yield {"name": "ranks", "kind": "world_size", "initial": ranks, "floor": 1}


def _numbers_the_script_reads(options: Options) -> dict[str, int]:
    """Environment variables that the script names and that hold, or default to, a whole number above 1."""
    found: dict[str, int] = {}
    for match in _READS_VARIABLE.finditer(_source_of(options)):
        name = match["name"]
        value = os.environ.get(name, match["default"] or "")
        if not _LAUNCHER_SETS.fullmatch(name) and value.isdecimal() and int(value) > 1:
            found.setdefault(name, int(value))
    return found


def _source_of(options: Options) -> str:
    script = next((Path(word) for word in options.command if word.endswith(".py")), None)
    try:
        return script.read_text(errors="replace") if script is not None else ""
    except OSError:
        return ""
