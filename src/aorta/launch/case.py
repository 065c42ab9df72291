"""The case of a job that has stopped for good: the finding, the machine, the failing ranks' logs
and an `aorta.yaml` whose oracle is this very failure; `workload/` holds the files that the job
opened or names, and `elsewhere.yaml` runs them on another machine.

`python -m aorta.launch.case` writes it after every agent knew the ending: no error in it changes
the job's exit code.
"""

import os
import pickle
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from aorta.attribution.documents import SCHEMA
from aorta.engine.atomic import write_whole
from aorta.engine.rundir import write_json
from aorta.executors.evidence import read_end
from aorta.launch.records import CaseRequest, CycleDir, CycleEvidence
from aorta.reduce.draft import pattern_for
from aorta.reduce.files import needed_files
from aorta.reduce.proposals import proposal_for

_PROBE_WITHIN = 60.0  # seconds; usually a tenth of one
_LARGEST_LOG = 10 << 20  # of each file, the end


def main() -> None:
    request: CaseRequest = pickle.load(sys.stdin.buffer)  # noqa: S301 - the agent wrote it
    try:
        write_case(request)
    except OSError as full:
        sys.exit(str(full.strerror))


def write_case(request: CaseRequest) -> None:
    """The directory appears complete or not at all; an earlier run's case is kept beside it."""
    log_dir, start = request.log_dir, request.failed.start
    case = log_dir / "case"
    fresh = log_dir / f".case.{os.getpid()}"
    shutil.rmtree(fresh, ignore_errors=True)
    (fresh / "logs").mkdir(parents=True)
    ruling = request.ruling
    content = {
        "finding": ruling.verdict.finding,
        "decision": ruling.document,
        "elapsed_ms": ruling.elapsed_ms,
        "ending": asdict(ruling.ending) if ruling.ending else None,
    }
    write_json(fresh / "finding.json", SCHEMA, content)
    _write_machine(fresh / "env.json")
    shutil.copy2(CycleDir(log_dir, start.cycle).info, fresh / "cycle_info.json")
    for piece in request.failed.evidence:
        _copy_logs(piece, fresh / "logs")
    write_whole(fresh / "aorta.yaml", draft_spec(request, case / "aorta.yaml"))
    if _copy_workload(request, fresh / "workload"):
        write_whole(fresh / "elsewhere.yaml", portable_spec(request))
    if case.exists():
        case.rename(log_dir / f"case_before_cycle_{start.first_cycle}")
    fresh.rename(case)


def _copy_workload(request: CaseRequest, target: Path) -> bool:
    """What the job opened or names of its working directory; False: nothing, or too much."""
    for opened in (request.opened, ()):
        files = needed_files(Path.cwd(), request.command, None, [request.log_dir], opened)
        if files.names and not files.left_out:
            files.copy_to(target)
            return True
    return False


def _write_machine(file: Path) -> None:
    """What `aorta env probe` says. A driver that hangs after the failure costs this file alone."""
    probe = (sys.executable, "-P", "-m", "aorta.probe")
    with suppress(subprocess.SubprocessError):
        done = subprocess.run(probe, capture_output=True, check=True, timeout=_PROBE_WITHIN)
        write_whole(file, done.stdout.decode())


def _copy_logs(piece: CycleEvidence, folder: Path) -> None:
    """Logs of the ranks that failed, or of all; tails where the log is elsewhere."""
    failed = {f"rank_{failure.rank}" for failure in piece.failures}
    wanted = [path for path in map(Path, piece.log_paths) if not failed or path.stem in failed]
    here = [path for path in wanted if path.exists()]
    for path in (*here, *(path for path in map(Path, piece.dumps) if path.exists())):
        (folder / path.name).write_bytes(read_end(path, _LARGEST_LOG))
    if not here:
        for rank, tail in piece.tails.items():
            (folder / f"rank_{rank}.err").write_text(tail)


# -- the draft of aorta.yaml: run the same script on this machine, and look for the same failure


_HEADER = """\
# Drafted from {cycle_id}: {reason}
# Next:  aorta reduce --spec {file} --output reduce
{hint}# Axes are what may shrink: whole numbers on the command line, variables that the
# script reads, the number of ranks. Add what you know.
"""
_HISTORY = 3  # cycles whose logs weigh in
_STARTED_BY_SLURM = (
    '--nnodes "$SLURM_NNODES" --node-rank "$SLURM_PROCID" --master-addr "${AORTA_NODES%%,*}"'
)


def draft_spec(request: CaseRequest, file: Path) -> str:
    """For this machine."""
    cwd = os.path.relpath(Path.cwd(), file.absolute().parent)
    isolating = isolate_command(request)
    hint = f"# Is it one of the nodes?  {isolating}\n" if isolating else ""
    return _spec(request, file, interpreter(), request.command, cwd, hint)


def portable_spec(request: CaseRequest) -> str:
    """The same failure in the folder `workload` beside the file, with its user's Python."""
    command = [inside(Path.cwd(), word) for word in request.command]
    hint = "# Its files are in the folder workload beside this file.\n"
    return _spec(request, Path("elsewhere.yaml"), "python3", command, "workload", hint)


def inside(folder: Path, word: str) -> str:
    """The word with paths below `folder` made relative; longer names are other paths."""
    return re.sub(rf"(?<![\w./~-]){re.escape(str(folder))}/", "", word)


def _spec(
    request: CaseRequest, file: Path, python: str, command: Sequence[str], cwd: str, hint: str
) -> str:
    """Under plain torchrun: a reproducer must not restart what it reproduces."""
    command = [python if word == sys.executable else word for word in command]
    ranks = sum(len(piece.ranks) for piece in request.failed.evidence)
    ranks = ranks or request.ranks_per_node
    if request.devices is not None:
        ranks = min(ranks, request.devices)
    proposal = proposal_for(_under_torchrun(python, command, ranks), Path.cwd())
    one_rank = {"name": "ranks", "kind": "world_size", "initial": 1, "floor": 1}
    spec = {
        "workload": {"command": proposal.command, "cwd": cwd},
        "oracle": _oracle(request),
        "axes": [dict(axis) for axis in proposal.axes] or [one_rank],
    }
    header = _HEADER.format(
        cycle_id=request.failed.start.cycle_id,
        reason=" ".join(request.ruling.verdict.reason.split()),
        file=shlex.quote(str(file)),
        hint=hint,
    )
    return header + yaml.safe_dump(spec, sort_keys=False, allow_unicode=True, width=1000)


def _under_torchrun(python: str, command: Sequence[str], ranks: int) -> list[str]:
    torchrun = [python, "-m", "torch.distributed.run", "--standalone"]
    torchrun += ["--nproc-per-node", str(ranks)]
    if command[0] == python:
        return [*torchrun, *command[1:]]
    return [*torchrun, "--no-python", *command]


def isolate_command(request: CaseRequest) -> str | None:
    """How to find out, on a Slurm, whether it is a node or the job; None for a job of one node."""
    start = request.failed.start
    # Slurm knows a host by its first name; an address has none.
    short = (re.sub(r"^([a-zA-Z][\w-]*)\..*", r"\1", node) for node in start.nodes)
    hosts = list(dict.fromkeys(short))
    if len(hosts) < 2:
        return None
    ranks = request.ranks_per_node
    torchrun = shlex.join(_under_torchrun(interpreter(), request.command, ranks))
    failed = range(max(start.first_cycle, start.cycle - _HISTORY + 1), start.cycle + 1)
    history = (f"--history {shlex.quote(str(CycleDir(request.log_dir, n).path))}" for n in failed)
    job = shlex.quote(torchrun.replace("--standalone", _STARTED_BY_SLURM, 1))
    return (
        f"aorta isolate --nodes {','.join(hosts)} --ranks-per-node {ranks} {' '.join(history)} "
        f"--executor slurm -- bash -c {job}"
    )


def interpreter() -> str:
    """By its name where the path finds it under that: a case is also read on other machines."""
    name = Path(sys.executable).name
    found = shutil.which(name)
    is_ours = found is not None and Path(found).absolute() == Path(sys.executable).absolute()
    return name if is_ours else sys.executable


def _oracle(request: CaseRequest) -> dict[str, Any]:
    if any(piece.hung for piece in request.failed.evidence):
        return {"kind": "hang", "silent_for": f"{request.hang_timeout or 60:g}s"}
    # The line that shows the failure, with the numbers that differ from run to run left open.
    lines = (request.ruling.verdict.finding or {}).get("evidence") or []
    logged = [line for line in lines if str(line.get("file", "")).endswith((".err", ".out"))]
    pattern = pattern_for(str(logged[0].get("text", ""))) if logged else None
    if pattern is not None:
        return {"kind": "regex", "pattern": pattern, "stream": "both"}
    failures = [end for piece in request.failed.evidence for end in piece.failures]
    signal = next((end.signal for end in failures if end.signal is not None), None)
    if signal is None:
        return {"kind": "exit_code"}
    # Torchrun tells the signal a rank died of, whatever the rank itself wrote.
    return {"kind": "regex", "pattern": rf"exitcode\s*: -{signal}\b", "stream": "both"}


if __name__ == "__main__":
    main()
