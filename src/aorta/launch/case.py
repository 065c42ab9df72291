"""The case: everything the next person needs when a job has stopped for good, and the command to
type next.

`<log-dir>/case/` holds the finding, the machine, the failing ranks' logs and an `aorta.yaml` whose
oracle is this very failure; `workload/` holds the files that the job opened, and `elsewhere.yaml`
runs them on another machine. It is written by the agent that decided, after every other agent has
been told to leave.
"""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml

from aorta.attribution.documents import SCHEMA
from aorta.core.errors import UsageError
from aorta.core.oracle import checked_pattern
from aorta.engine.atomic import write_whole
from aorta.executors.evidence import read_end
from aorta.launch.cycle_dir import CycleDir
from aorta.launch.decision import LastWords
from aorta.launch.options import Options
from aorta.launch.records import CycleEvidence
from aorta.probe import collect_env
from aorta.reduce.files import MOST_BYTES_TAKEN, needed_files, with_files
from aorta.version import __version__

_WORKLOAD = "workload"
_LARGEST_LOG = 10 << 20  # of each file, the end


def write_case(
    log_dir: Path, words: LastWords, options: Options, opened: Collection[str] = ()
) -> Path:
    """The directory appears complete or not at all; the case of an earlier run is kept beside
    it.
    """
    case = log_dir / "case"
    fresh = log_dir / f".case.{os.getpid()}"
    shutil.rmtree(fresh, ignore_errors=True)
    (fresh / "logs").mkdir(parents=True)
    start = words.failed.start
    _write_finding(fresh, words)
    write_whole(fresh / "env.json", collect_env().to_json())
    shutil.copy2(CycleDir(log_dir, start.cycle).info, fresh / "cycle_info.json")
    for piece in words.failed.evidence:
        _copy_logs(piece, fresh / "logs")
    elsewhere = f"On another machine:  aorta reduce --spec {ELSEWHERE} --output reduce"
    if _copy_workload(options, opened, log_dir, fresh / _WORKLOAD):
        write_whole(fresh / ELSEWHERE, portable_spec(words, options, _WORKLOAD))
    else:
        elsewhere = (
            f"It runs on this machine alone: its files take more than {MOST_BYTES_TAKEN >> 20} MiB."
        )
    write_whole(fresh / "aorta.yaml", draft_spec(words, options, case / "aorta.yaml", elsewhere))
    if case.exists():
        case.rename(log_dir / f"case_before_cycle_{start.first_cycle}")
    fresh.rename(case)
    return case


def _copy_workload(options: Options, opened: Collection[str], log_dir: Path, target: Path) -> bool:
    """The files of the working directory that the job opened or that its script names; False where
    they are too much.
    """
    here = Path.cwd()
    files = needed_files(here, options.command, None, [log_dir])
    if files is None:
        return False
    (with_files(files, sorted(opened), [log_dir]) or files).copy_to(target)
    target.mkdir(exist_ok=True)
    return True


def _write_finding(folder: Path, words: LastWords) -> None:
    content = {
        "schema": SCHEMA,
        "aorta_version": __version__,
        "finding": words.ruling.verdict.finding,
        "decision": words.ruling.document,
        "elapsed_ms": words.ruling.elapsed_ms,
        "ending": {"exit_code": words.ending.exit_code, "reason": words.ending.reason},
    }
    write_whole(folder / "finding.json", json.dumps(content, indent=2) + "\n")


def _copy_logs(piece: CycleEvidence, folder: Path) -> None:
    """Logs of the ranks that failed, or of all where none did by itself; tails where the log is
    elsewhere.
    """
    failed = {failure.rank for failure in piece.failures}
    wanted = [Path(path) for path in piece.log_paths if not failed or _rank(path) in failed]
    here = [path for path in wanted if path.exists()]
    for path in (*here, *(path for path in map(Path, piece.dumps) if path.exists())):
        (folder / path.name).write_bytes(read_end(path, _LARGEST_LOG))
    if not here:
        for rank, tail in piece.tails.items():
            (folder / f"rank_{rank}.err").write_text(tail)


def _rank(path: str) -> int:
    return int(Path(path).stem.removeprefix("rank_"))


# -- the draft of aorta.yaml: run the same script on this machine, and look for the same failure


_HEADER = """\
# Drafted from {cycle_id}: {reason}
# Next:  aorta reduce --spec {file} --output reduce
# {elsewhere}
# Axes are what may shrink: whole numbers on the command line, variables that the script reads, the number of ranks.
# Add what you know.
"""
ELSEWHERE = "elsewhere.yaml"
_LONGEST_PATTERN = 160
_ALONE = {  # what a script may expect of its launcher; port 0 is a free one
    "RANK": "0",
    "LOCAL_RANK": "0",
    "GROUP_RANK": "0",
    "ROLE_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "GROUP_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
    "TORCHELASTIC_RESTART_COUNT": "0",
}
_READS_VARIABLE = re.compile(
    r"""(?:environ(?:\.get)?\s*[\[(]|getenv\s*\()\s*["'](?P<name>\w+)["'](?:\s*,\s*["']?(?P<default>\d+))?"""
)
_LAUNCHER_SETS = re.compile(
    r"(?:LOCAL_|GROUP_|ROLE_)?(?:RANK|WORLD_SIZE)|ROLE_NAME|MASTER_\w+|TORCH\w*|AORTA_\w+|"
    r"OMP_NUM_THREADS|CUDA_\w+"
)
_FIXED_ARGUMENT = re.compile(r"seed|port|rank|device|gpu|id\b", re.IGNORECASE)
_VARYING = re.compile(r"(?P<address>0x[0-9a-fA-F]+)|\d+(?:\.\d+)?")


def draft_spec(words: LastWords, options: Options, file: Path, elsewhere: str) -> str:
    """`elsewhere` says in a line how it runs on another machine."""
    spec = _spec(words, options)
    spec["workload"]["cwd"] = os.path.relpath(Path.cwd(), file.absolute().parent)
    return _written(spec, words, file, elsewhere)


def portable_spec(words: LastWords, options: Options, workload: str) -> str:
    """The same failure in the folder `workload` beside the file, with the Python of whoever runs
    it.
    """
    spec = _spec(words, options)
    here = f"{Path.cwd()}/"
    command = spec["workload"]["command"].replace(shlex.quote(sys.executable), "python3")
    if command.startswith(f"{interpreter()} "):
        command = f"python3 {command.partition(' ')[2]}"
    spec["workload"] = {"command": command.replace(here, ""), "cwd": workload}
    return _written(spec, words, Path(ELSEWHERE), "Its files are in the folder beside this file.")


def _spec(words: LastWords, options: Options) -> dict[str, Any]:
    ranks = sum(len(piece.ranks) for piece in words.failed.evidence) or options.torch.nproc_per_node
    if torch.cuda.is_available():
        ranks = min(ranks, torch.cuda.device_count())
    words_of_script, arguments = _with_variables(options.command)
    numbers = {**_numbers_the_script_reads(options), **arguments}
    launched = ranks > 1 or not numbers
    spec: dict[str, Any] = {
        "workload": {"command": _command(words_of_script, ranks, launched), "cwd": "."},
        "oracle": _oracle(words, options, launched=launched),
        "axes": [_number_axis(name, value) for name, value in numbers.items()],
    }
    if launched:
        spec["axes"].append({"name": "ranks", "kind": "world_size", "initial": ranks, "floor": 1})
    else:
        spec["extra_env"] = _ALONE
    return spec


def _written(spec: Mapping[str, Any], words: LastWords, file: Path, elsewhere: str) -> str:
    header = _HEADER.format(
        cycle_id=words.failed.start.cycle_id,
        reason=" ".join(words.ruling.verdict.reason.split()),
        file=shlex.quote(str(file)),
        elsewhere=elsewhere,
    )
    return header + yaml.safe_dump(dict(spec), sort_keys=False, allow_unicode=True, width=1000)


def _command(script: Sequence[str], ranks: int, launched: bool) -> str:
    """Text for a shell. Plain torchrun where a launcher is needed: a reproducer must not restart
    what it reproduces.
    """
    if not launched:
        return " ".join(script)
    python = interpreter()
    torchrun = [python, "-m", "torch.distributed.run", "--standalone"]
    torchrun += ["--nproc-per-node", str(ranks)]
    if script[0] == python:
        return " ".join([*torchrun, *script[1:]])
    return " ".join([*torchrun, "--no-python", *script])


def interpreter() -> str:
    """By its name where the path finds it under that: a case is also read on other machines."""
    name = Path(sys.executable).name
    found = shutil.which(name)
    is_ours = found is not None and Path(found).absolute() == Path(sys.executable).absolute()
    return name if is_ours else shlex.quote(sys.executable)


def _with_variables(command: Sequence[str]) -> tuple[list[str], dict[str, int]]:
    """The command as shell words, with `--name NUMBER` as `--name "$ARG_NAME"`, and these
    numbers.
    """
    numbers: dict[str, int] = {}
    shell: list[str] = []
    option = None
    for place, word in enumerate(command):
        if place == 0 and word == sys.executable:
            shell.append(interpreter())
            continue
        name, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        owner = name if equals else option
        option = word if word.startswith("--") and not equals else None
        if owner is None or not _is_worth_shrinking(value) or _FIXED_ARGUMENT.search(owner):
            shell.append(shlex.quote(word))
            continue
        variable = "ARG_" + re.sub(r"\W+", "_", owner.strip("-")).upper()
        numbers[variable] = int(value)
        shell.append(f'{shlex.quote(name)}="${variable}"' if equals else f'"${variable}"')
    return shell, numbers


def _is_worth_shrinking(value: str) -> bool:
    return value.isdecimal() and int(value) > 1


def _number_axis(name: str, value: int) -> dict[str, Any]:
    return {"name": name, "kind": "env", "type": "int", "initial": value, "floor": 1}


def _oracle(words: LastWords, options: Options, *, launched: bool) -> dict[str, Any]:
    if any(piece.hung for piece in words.failed.evidence):
        return {"kind": "hang", "silent_for": f"{options.settings.hang_timeout_seconds or 60:g}s"}
    pattern = _pattern(words.ruling.verdict.finding)
    if pattern is not None:
        return {"kind": "regex", "pattern": pattern, "stream": "both"}
    signal = _signal(words.failed.evidence)
    if signal is None:
        return {"kind": "exit_code"}
    if launched:  # torchrun tells the signal a rank died of, whatever the rank itself wrote
        return {"kind": "regex", "pattern": rf"exitcode\s*: -{signal}\b", "stream": "both"}
    return {"kind": "exit_code", "codes": [-signal, 128 + signal]}


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


def _signal(evidence: Sequence[CycleEvidence]) -> int | None:
    """The signal that a rank died of by itself."""
    failures = [end for piece in evidence for end in piece.failures]
    return next((end.signal for end in failures if end.signal is not None), None)


def _numbers_the_script_reads(options: Options) -> dict[str, int]:
    """Environment variables that the script names and that hold, or default to, a whole number
    above 1.
    """
    found: dict[str, int] = {}
    for match in _READS_VARIABLE.finditer(_source_of(options)):
        name = match["name"]
        value = os.environ.get(name, match["default"] or "")
        if not _LAUNCHER_SETS.fullmatch(name) and _is_worth_shrinking(value):
            found.setdefault(name, int(value))
    return found


def _source_of(options: Options) -> str:
    script = next((Path(word) for word in options.command if word.endswith(".py")), None)
    try:
        return script.read_text(errors="replace") if script is not None else ""
    except OSError:
        return ""
