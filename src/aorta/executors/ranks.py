"""A trial of several ranks: one command on every node and task of its job, each rank with logs of
its own.

The ranks go through srun, whose output is that of all of them, so that whoever watches the trial
watches every rank. Beside that each rank leaves `rank_<r>.out` and `rank_<r>.err` in the trial's
directory. Standard library only.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from aorta.core.trial import RuntimeKind, TrialSpec
from aorta.executors import process_tree
from aorta.runtimes.launch import ANY_CODE, Launch, Refusal

_GRACE = 3.0
_DRAIN_SECONDS = 1.0
_CHUNK = 256 * 1024

# A node that lacks our files, or the command, is no failure of the program.
_NEVER_BEGAN = Refusal(
    ANY_CODE, r"^aorta: (?:\S+ cannot be seen here|could not start )", "a rank did not begin"
)
# In a container there may be no Python. The command's exit code goes through a file because a pipe
# has that of `tee`.
_RANK_IN_CONTAINER = """
rank="$AORTA_TRIAL_DIR/rank_${SLURM_PROCID:-0}"
{ { "$@"; echo $? > "$rank.exit"; } 2>&1 >&3 3>&- | tee "$rank.err" >&2; } 3>&1 | tee "$rank.out"
code=$(cat "$rank.exit"); rm -f "$rank.exit"; exit "$code"
"""


def across_ranks(launch: Launch, trial: TrialSpec, srun: Sequence[str] | None) -> Launch:
    """The launch on all tasks of the trial through `srun OPTIONS`; unchanged without any."""
    if srun is None:
        return launch
    if trial.environment.kind is RuntimeKind.PYXIS:  # its launch is an srun already
        own = launch.argv[1 : len(launch.argv) - len(trial.argv)]
        wrapped = ("sh", "-c", _RANK_IN_CONTAINER, "rank") if trial.resources.tasks > 1 else ()
        return replace(launch, argv=(launch.argv[0], *srun, *own, *wrapped, *trial.argv))
    # With all that knows containers, which one process for each trial of Slurm need not load.
    from aorta.runtimes.launch import ENDED_BY_SLURM

    return replace(
        launch,
        argv=("srun", *srun, *process_tree.own_program(__name__), *launch.argv),
        refusals=(*launch.refusals, *ENDED_BY_SLURM, _NEVER_BEGAN),
    )


def main() -> None:
    """One rank: run the command, copy its output to the rank's logs, leave no process behind."""
    directory = Path(os.environ["AORTA_TRIAL_DIR"])
    if not directory.is_dir():
        sys.exit(process_tree.unseen(str(directory)))
    name = f"rank_{os.environ.get('SLURM_PROCID', '0')}"
    process_tree.adopt_orphans()
    wanted = [True]
    signal.signal(signal.SIGTERM, lambda *_: wanted.clear())
    pipes = {"out": os.pipe(), "err": os.pipe()}
    with (
        (directory / f"{name}.out").open("wb", 0) as out,
        (directory / f"{name}.err").open("wb", 0) as err,
    ):
        try:
            pid = process_tree.start(
                sys.argv[1:], os.environ, str(Path.cwd()), pipes["out"][1], pipes["err"][1]
            )
        except OSError as wrong:
            sys.exit(f"aorta: could not start {sys.argv[1]!r}: {wrong.strerror}")
        for _, write_end in pipes.values():
            os.close(write_end)
        targets = {pipes["out"][0]: (1, out.fileno()), pipes["err"][0]: (2, err.fileno())}
        status = _copy_until_end(pid, targets, wanted)
        process_tree.end_all(_GRACE)
        _copy(targets, time.monotonic() + _DRAIN_SECONDS)
    _end_as(status)


def _copy_until_end(pid: int, targets: dict[int, tuple[int, int]], wanted: list[bool]) -> int:
    """The command's wait status, or TERM's if the rank was told to stop."""
    while wanted:
        _copy(targets, time.monotonic() + 0.05)
        if not targets:  # it closed its output, and goes on
            time.sleep(0.05)
        status = process_tree.reap().get(pid)
        if status is not None:
            return status
    return int(signal.SIGTERM)


def _copy(targets: dict[int, tuple[int, int]], until: float) -> None:
    """What comes until then, or until nothing can come any more."""
    while targets and (left := until - time.monotonic()) > 0:
        ready = select.select(list(targets), [], [], left)[0]
        for end in ready:
            data = os.read(end, _CHUNK)
            for target in targets[end]:
                with suppress(OSError):  # a full disk or a closed srun must not end the copying
                    _write_all(target, data)
            if not data:
                del targets[end]


def _write_all(target: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(target, rest) :]


def _end_as(status: int) -> None:
    """As the command ended: srun tells a signal from an exit code."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    sys.exit(os.WEXITSTATUS(status))
