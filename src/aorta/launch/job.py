"""One launch, from the command line to the exit code."""

import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.multiprocessing.api import (
    SignalException,
    _terminate_process_handler,
)
from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousParameters
from torch.distributed.elastic.rendezvous.utils import (
    _matches_machine_hostname,
    parse_rendezvous_endpoint,
)
from torch.distributed.launcher.api import LaunchConfig

from aorta.core.errors import UsageError
from aorta.core.exits import Exit
from aorta.core.names import slug
from aorta.launch.agent import DecidingAgent
from aorta.launch.case import write_case
from aorta.launch.decision import LastWords, LeaderDecides
from aorta.launch.logs import CycleLogs
from aorta.launch.options import Options, parse, rendezvous_parameters
from aorta.launch.presence import leave
from aorta.launch.records import Ending
from aorta.launch.rendezvous import DecidingRendezvous, create_rendezvous
from aorta.launch.sources.build import build_sources
from aorta.launch.sources.panel import Panel
from aorta.launch.store import StoreLostError

log = logging.getLogger(__name__)

_EXEC_WORKER = Path(__file__).with_name("exec_worker.py")


View = Callable[[Path], AbstractContextManager[str]]
"""Shows a log directory while it is entered, and says where."""


def launch(arguments: Sequence[str], view: View) -> int:
    """Run one agent to its end; returns the exit code."""
    options = parse(arguments)
    log_dir = _log_dir(options)
    if not options.watch:
        return _run_agent(options, log_dir)
    with view(log_dir) as address:
        log.info("watch it at %s", address)
        return _run_agent(options, log_dir)


def _run_agent(options: Options, log_dir: Path) -> int:
    panel = Panel(
        build_sources(options.settings, log_dir), options.settings.attribution.aggregation
    )
    decider = LeaderDecides(
        panel, options.settings, _job_id(options), options.torch.max_restarts, log_dir
    )
    parameters = rendezvous_parameters(options)
    rendezvous = create_rendezvous(parameters)
    rendezvous.connect(
        decider,
        options.settings.attribution.decision_timeout_seconds,
        options.fixed_rank,
    )
    agent = _agent(options, rendezvous, panel, log_dir)
    _raise_on_signals(options.torch.signals_to_handle)
    try:
        agent.run()
        agent.finish_telling()
        assert agent.ending is not None, "an agent returns only after the job has ended"
        with suppress(StoreLostError, RendezvousConnectionError):  # how it ended is known by now
            rendezvous.board.leave()
            _write_case(log_dir, decider.last_words, options)
            if _hosts_the_store(parameters):
                rendezvous.linger()
    except SignalException as interrupted:
        with suppress(StoreLostError, RendezvousConnectionError):
            agent.say_goodbye(interrupted.sigval)
        log.warning("stopped by %s", interrupted.sigval.name)
        return 128 + interrupted.sigval
    except (StoreLostError, RendezvousConnectionError) as lost:
        raise StoreLostError(
            f"the rendezvous store at {parameters.endpoint} was lost: the agent that hosts it is gone; "
            "the workers here were stopped"
        ) from lost
    finally:
        _ignore_signals()
        agent.kill_leftovers()
        leave(log_dir, "interrupted" if agent.ending is None else "done")
    _say(agent.ending)
    return agent.ending.exit_code


def _write_case(log_dir: Path, words: LastWords | None, options: Options) -> None:
    """Written by the agent that decided; a full disk must not change how the job ends."""
    if words is None:
        return
    try:
        case = write_case(log_dir, words, options)
    except OSError as full:
        log.warning("the case could not be written: %s", full.strerror)
    else:
        log.info("the case is in %s; next: aorta reduce --spec %s/aorta.yaml", case, case)


def _say(ending: Ending) -> None:
    level = logging.INFO if ending.exit_code == Exit.OK else logging.ERROR
    log.log(level, "%s", ending.reason)


def _agent(
    options: Options, rendezvous: DecidingRendezvous, panel: Panel, log_dir: Path
) -> DecidingAgent:
    config = options.torch
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = config.signals_to_handle
    address, port = options.master or (None, None)
    entrypoint, arguments = options.entrypoint, options.arguments
    if isinstance(entrypoint, str):
        wrapped = ("-I", "-S", str(_EXEC_WORKER), str(os.getpid()))
        entrypoint, arguments = sys.executable, (*wrapped, entrypoint, *arguments)
    spec = WorkerSpec(
        role=config.role,
        local_world_size=config.nproc_per_node,
        entrypoint=entrypoint,
        args=arguments,
        rdzv_handler=rendezvous,
        max_restarts=config.max_restarts,
        monitor_interval=config.monitor_interval,
        master_addr=address,
        master_port=port,
        local_addr=config.local_addr,
        event_log_handler=config.event_log_handler,
        numa_options=config.numa_options,
        duplicate_stdout_filters=config.duplicate_stdout_filters,
        duplicate_stderr_filters=config.duplicate_stderr_filters,
        virtual_local_rank=config.virtual_local_rank,
    )
    settings = options.settings
    logs = CycleLogs(
        log_dir,
        options.shown,
        merged=settings.merged_log,
        watch_hangs=settings.hang_timeout_seconds is not None,
    )
    return DecidingAgent(
        spec,
        logs,
        rendezvous,
        panel,
        settings.hang_timeout_seconds,
        start_method=config.start_method,
        log_line_prefix_template=config.log_line_prefix_template,
        **_shutdown_patience(config),
    )


def _shutdown_patience(config: LaunchConfig) -> dict[str, Any]:
    """How long workers may take to end; torch before 2.13 has no say in it."""
    given = getattr(config, "shutdown_timeout", None)
    return {} if given is None else {"shutdown_timeout": given}


def _log_dir(options: Options) -> Path:
    if options.log_dir is None or options.log_dir == Path(os.devnull):
        chosen = Path(tempfile.mkdtemp(prefix="aorta_launch_"))
        log.info("logs are in %s", chosen)
        return chosen
    try:
        options.log_dir.mkdir(parents=True, exist_ok=True)
    except OSError as wrong:
        raise UsageError(f"--log-dir {options.log_dir} cannot be made: {wrong.strerror}") from None
    return options.log_dir


def _job_id(options: Options) -> str:
    """The user's own id where there is one: it is what a shared service and the scheduler know the job by."""
    given = options.torch.run_id
    if given in {"", "none"}:
        given = os.environ.get("SLURM_JOB_ID", given or "none")
    return slug(given)


def _hosts_the_store(parameters: RendezvousParameters) -> bool:
    """Whether others may need this process to read how the job ended. Torch guesses the host in the same way."""
    told = parameters.get_as_bool("is_host")
    if told is not None:
        return told
    host, _ = parse_rendezvous_endpoint(parameters.endpoint, default_port=0)
    return bool(_matches_machine_hostname(host))


def _raise_on_signals(names: str) -> None:
    """From the first moment on, as torch does it once workers run: one way out for every signal."""
    for name in names.split(","):
        number = getattr(signal, name.strip(), None)
        if isinstance(number, signal.Signals):
            signal.signal(number, _terminate_process_handler)


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
