"""The case: everything the next person needs when a job has stopped for good, and the command to type next.

`<log-dir>/case/` holds the finding, the machine, the failing ranks' logs and an `aorta.yaml` whose oracle is this very
failure; `workload/` holds the files that the job opened, and `elsewhere.yaml` runs them on another machine. It is written by the agent that decided, after every other agent has been told to leave.
"""

import json
import os
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

from aorta.attribution.documents import SCHEMA
from aorta.engine.atomic import write_whole
from aorta.executors.evidence import read_end
from aorta.launch.case_spec import ELSEWHERE, draft_spec, portable_spec
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
    """The directory appears complete or not at all; the case of an earlier run is kept beside it."""
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
    """The files of the working directory that the job opened or that its script names; False where they are too much."""
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
    """Logs of the ranks that failed, or of all where none did by itself; tails where the log is elsewhere."""
    failed = {failure.rank for failure in piece.failures}
    wanted = [Path(path) for path in piece.log_paths if not failed or _rank(path) in failed]
    here = [path for path in wanted if path.exists()]
    for path in (*here, *_existing(piece.dumps)):
        (folder / path.name).write_bytes(read_end(path, _LARGEST_LOG))
    if not here:
        for rank, tail in piece.tails.items():
            (folder / f"rank_{rank}.err").write_text(tail)


def _existing(paths: Iterable[str]) -> list[Path]:
    return [path for path in map(Path, paths) if path.exists()]


def _rank(path: str) -> int:
    return int(Path(path).stem.removeprefix("rank_"))
