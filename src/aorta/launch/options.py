"""The command line: torchrun's own parser, so that options, defaults and `PET_*` variables are
those of the installed torch, with the fault-tolerance flags beside it.
"""

import logging
import os
import sys
import uuid
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from torch.distributed import run as torchrun
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from torch.distributed.launcher.api import LaunchConfig

from aorta.core.errors import UsageError
from aorta.launch.config import (
    DESCRIPTION,
    FT_LAUNCHER_DEFAULTS,
    NAMED_FT_LAUNCHER,
    USAGE,
    FaultTolerance,
    add_flags,
    fault_tolerance,
)
from aorta.launch.output import Shown
from aorta.launch.store import Meeting

log = logging.getLogger(__name__)

_STATIC_PORT = 29500
# Of torchrun, for logs in other places.
_NOT_USED = ("logs-specs", "duplicate-stdout-filters", "duplicate-stderr-filters")


@dataclass(frozen=True)
class Options:
    """One launch, checked."""

    torch: LaunchConfig
    words: tuple[str, ...]  # what torchrun would start for each rank
    settings: FaultTolerance
    log_dir: Path | None
    shown: Shown
    meeting: Meeting
    command: tuple[str, ...]  # the user's own command, as torchrun would run it


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (try 'aorta launch --help')")


def parser(*, as_ft_launcher: bool = False) -> ArgumentParser:
    combined = _Parser(
        prog="aorta launch",
        parents=[torchrun.get_args_parser()],
        add_help=False,
        conflict_handler="resolve",
        usage=USAGE,
        description=DESCRIPTION,
    )
    add_flags(combined)
    if "PET_MASTER_PORT" not in os.environ:  # before 2.10 its default looks like a chosen one
        combined.set_defaults(master_port=None)
    for name, value in FT_LAUNCHER_DEFAULTS.items() if as_ft_launcher else ():
        if f"PET_{name.upper()}" not in os.environ:
            combined.set_defaults(**{name: value})
    return combined


def parse(arguments: Sequence[str]) -> Options:
    given = parser(as_ft_launcher=NAMED_FT_LAUNCHER in arguments[:1]).parse_args(list(arguments))
    settings = fault_tolerance(given)
    _choose_rendezvous(given)
    torch_config, words = _torch_config(given)
    meeting = _meeting(given, torch_config)
    no_logs = given.log_dir in {None, "", os.devnull}
    decision = settings.attribution.decision_timeout_seconds
    if decision >= meeting.join_timeout:  # the others would not wait for what the leader decides
        raise UsageError(
            f"the decision timeout ({decision:g} s) must be smaller than the rendezvous join "
            f"timeout ({meeting.join_timeout:g} s); "
            "lower --ft-attribution-decision-timeout or raise --rdzv-conf join_timeout"
        )
    python = () if given.no_python else (sys.executable, *(["-m"] if given.module else []))
    return Options(
        torch=torch_config,
        words=words,
        settings=settings,
        log_dir=None if no_logs else Path(given.log_dir).absolute(),
        shown=_shown(given),
        meeting=meeting,
        command=(*python, given.training_script, *given.training_script_args),
    )


def _choose_rendezvous(given: Namespace) -> None:
    """As torchrun does: one node needs no address; `static` is what is left."""
    try:
        least, most = torchrun.parse_min_max_nnodes(given.nnodes)
    except (ValueError, RuntimeError):
        least, most = 0, 0
    if not 0 < least <= most:
        raise UsageError(f"--nnodes {given.nnodes}: expected N or MIN:MAX with 0 < MIN <= MAX")
    by_name = given.rdzv_backend == "static" or given.ft_launcher_defaults
    unaddressed = by_name and not given.rdzv_endpoint
    if given.standalone or (unaddressed and given.master_port is None and most == 1):
        given.rdzv_backend, given.rdzv_endpoint = "c10d", "localhost:0"
        given.rdzv_id = given.rdzv_id if given.rdzv_id != "none" else uuid.uuid4().hex
    if given.master_port is None:
        given.master_port = _STATIC_PORT
    if given.rdzv_backend not in {"c10d", "static"}:
        raise UsageError(
            f"--rdzv-backend {given.rdzv_backend} has no compare-and-set store to decide in; "
            "use c10d (or static with --master-addr and --node-rank)"
        )


def _torch_config(given: Namespace) -> tuple[LaunchConfig, tuple[str, ...]]:
    """Torchrun's own reading of its options, and the command of a rank."""
    given = Namespace(**{**vars(given), "run_path": False})
    if given.max_restarts < 0:  # of which older ones say nothing
        raise UsageError(f"max_restarts is {given.max_restarts}; --max-restarts takes 0 and more")
    for name in _NOT_USED:
        if getattr(given, name.replace("-", "_"), None):
            log.warning("--%s is not used here; the logs of every cycle lie in --log-dir", name)
    given.log_dir = os.devnull  # torch's own would make a directory of its own
    try:
        config, entrypoint, arguments = torchrun.config_from_args(given)
    except (AssertionError, ValueError, RuntimeError, OSError) as wrong:
        raise UsageError(str(wrong)) from None
    if config.nproc_per_node <= 0 or config.monitor_interval <= 0:
        raise UsageError("--nproc-per-node and --monitor-interval must be above 0")
    return config, (str(entrypoint), *arguments)


def _meeting(given: Namespace, config: LaunchConfig) -> Meeting:
    """Who meets where. All nodes must, where the user numbered them (a static rendezvous)."""
    static = given.rdzv_backend == "static"
    parameters = RendezvousParameters(
        backend="c10d",
        endpoint=config.rdzv_endpoint,
        run_id=config.run_id,
        min_nodes=config.max_nodes if static else config.min_nodes,
        max_nodes=config.max_nodes,
        local_addr=config.local_addr,
        **config.rdzv_configs,
    )
    try:
        node_rank, master = None, None
        if static:
            node_rank = given.node_rank
            master = parse_rendezvous_endpoint(config.rdzv_endpoint, default_port=_STATIC_PORT)
        workers = config.nproc_per_node
        return Meeting.of(parameters, node_rank, master=master, workers=workers, role=config.role)
    except ValueError as wrong:
        raise UsageError(str(wrong)) from None


def _shown(given: Namespace) -> Shown:
    ranks = {int(rank) for rank in given.local_ranks_filter.split(",") if rank}
    prefix = os.environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")
    shown = {"prefix": prefix} if prefix else {}
    return Shown(given.redirects, given.tee, frozenset(ranks), **shown)
