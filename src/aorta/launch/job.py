"""One launch, from the command line to the exit code."""

import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import (
    ChildFailedError,
    ProcessFailure,
    get_error_handler,
)

from aorta.core.errors import AortaError, Exit, UsageError
from aorta.core.names import slug
from aorta.executors.process_tree import watch_opened
from aorta.launch.agent import DecidingAgent, raise_on_signals, signals_to_handle, where_known
from aorta.launch.decision import AttributionSources, LeaderDecides, build_sources
from aorta.launch.options import Options, parse
from aorta.launch.output import CycleLogs
from aorta.launch.records import CaseRequest, FailedCycle, JobEnding, LogDir, Ruling
from aorta.launch.rendezvous import DecidingRendezvous
from aorta.launch.store import StoreLostError, connect

log = logging.getLogger(__name__)

_EXEC_WORKER = Path(__file__).with_name("exec_worker.py")
_FOLDERS_WATCHED = 256  # walking through more would be felt at the start
_CASE_WITHIN = 300.0  # seconds; usually one
_LEAVE_WITHIN = 1.5  # seconds for telling the others; a store that is silent is not waited for


def launch(arguments: Sequence[str]) -> int:
    """Run one agent to its end; returns the exit code."""
    options = parse(arguments)
    try:
        raise_on_signals(_heard(signals_to_handle(options.torch)))
        job = _Launch(options, LogDir(_log_dir(options.log_dir)))
        with watch_opened(Path(), _FOLDERS_WATCHED) as opened:
            return job.run(opened)
    except SignalException as interrupted:
        log.warning("stopped by %s", interrupted.sigval.name)
        return 128 + interrupted.sigval


class _Launch:
    """The parts of one agent, put together, run, and taken apart whatever happens."""

    def __init__(self, options: Options, log_dir: LogDir) -> None:
        self._options = options
        self._log_dir = log_dir
        settings = options.settings
        attribution = settings.attribution
        self._sources = AttributionSources(build_sources(settings), attribution.aggregation)
        self._decider = LeaderDecides(
            self._sources, settings, _job_id(options), options.torch.max_restarts, log_dir
        )
        self._rendezvous = DecidingRendezvous(
            options.meeting,
            *connect(options.meeting),
            self._decider,
            attribution.decision_timeout_seconds,
        )
        self._agent = _agent(options, self._rendezvous, self._sources, log_dir)

    def run(self, opened: Collection[str]) -> int:
        """Until the job has ended; returns its exit code. `opened`: files that it opens."""
        agent = self._agent
        try:
            result = agent.run()
            ending = agent.ending
            assert ending is not None, "an agent returns only after the job has ended"
            level = logging.INFO if ending.exit_code == Exit.OK else logging.ERROR
            log.log(level, "%s", ending.reason)
            self._take_leave(opened)
        except SignalException as interrupted:
            why = f"stopped by {interrupted.sigval.name}"
            agent.record_interruption(JobEnding(128 + interrupted.sigval, why))
            _without_waiting(lambda: agent.leave_job(f"was {why}"))
            raise
        except StoreLostError as lost:
            what = (
                f"the rendezvous store at {self._options.meeting.endpoint} was lost: the agent "
                "that hosts it is gone or silent; the workers here were stopped"
            )
            agent.record_interruption(JobEnding(Exit.INFRASTRUCTURE, what))
            raise StoreLostError(what) from lost
        except AortaError:  # a wrong option: the others find it themselves
            raise
        except Exception as wrong:  # this agent broke: the others must not wait
            ending = JobEnding(Exit.FAILED, f"an agent failed: {type(wrong).__name__}: {wrong}")
            agent.record_interruption(ending)
            _without_waiting(lambda: agent.end_for_everybody(ending))
            raise
        finally:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                signal.signal(number, signal.SIG_IGN)
            agent.kill_leftovers()
            self._log_dir.sign_off()
        if ending.exit_code != Exit.OK:
            _report(_name_of(self._options), result.failures)
        return ending.exit_code

    def _take_leave(self, opened: Collection[str]) -> None:
        """Tell what is left to tell. The ending is known, so a lost store changes nothing."""
        self._agent.finish_triggers()
        with suppress(StoreLostError):
            self._rendezvous.job_store.left(more=1)
        if self._decider.last is not None:
            _write_case(self._log_dir.path, *self._decider.last, self._options, opened)
        with suppress(StoreLostError):
            self._rendezvous.linger()


def _without_waiting(what: Callable[[], object]) -> None:
    """In a thread that is left behind: nobody waits for a store that does not answer."""

    def quietly() -> None:
        with suppress(StoreLostError):
            what()

    thread = threading.Thread(target=quietly, daemon=True)
    thread.start()
    thread.join(_LEAVE_WITHIN)


def _report(name: str, failures: dict[int, ProcessFailure]) -> None:
    """Say what failed, as torchrun would, without ranks that were ended because of another."""
    own = {rank: one for rank, one in failures.items() if one.exitcode != -signal.SIGTERM}
    if failures:
        failed = ChildFailedError(name, own or failures)
        log.error("%s", failed)
        _, first = failed.get_first_failure()
        with suppress(OSError, ValueError, KeyError, TypeError):
            get_error_handler().dump_error_file(first.error_file, first.exitcode)


def _write_case(
    log_dir: Path, failed: FailedCycle, ruling: Ruling, options: Options, opened: Collection[str]
) -> None:
    """By the agent that decided, in a process of its own: it changes not how the job ends."""
    request = CaseRequest(
        log_dir=log_dir,
        failed=failed,
        ruling=ruling,
        command=options.command,
        ranks_per_node=options.torch.nproc_per_node,
        devices=torch.cuda.device_count() if torch.cuda.is_available() else None,
        hang_timeout=options.settings.hang_timeout_seconds,
        opened=tuple(sorted(opened)),
    )
    program = (sys.executable, "-P", "-m", "aorta.launch.case")
    words = pickle.dumps(request)
    try:
        subprocess.run(program, input=words, capture_output=True, timeout=_CASE_WITHIN, check=True)
    except (OSError, subprocess.SubprocessError) as wrong:
        lines = (getattr(wrong, "stderr", None) or b"").decode(errors="replace").splitlines()
        log.warning("the case could not be written: %s", lines[-1] if lines else wrong)
    else:
        case = log_dir / "case"
        log.info("the case is in %s; next: aorta reduce --spec %s/aorta.yaml", case, case)


def _agent(
    options: Options, rendezvous: DecidingRendezvous, sources: AttributionSources, log_dir: LogDir
) -> DecidingAgent:
    config = options.torch
    if hasattr(config, "signals_to_handle"):
        os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = _heard(signals_to_handle(config))
    address, port = options.meeting.master or (None, None)
    newer = ("event_log_handler", "numa_options", "virtual_local_rank")
    spec = WorkerSpec(
        role=config.role,
        local_world_size=config.nproc_per_node,
        entrypoint=sys.executable,
        args=("-I", "-S", str(_EXEC_WORKER), str(os.getpid()), *options.words),
        rdzv_handler=rendezvous,
        max_restarts=config.max_restarts,
        monitor_interval=config.monitor_interval,
        master_addr=address,
        master_port=port,
        local_addr=config.local_addr,
        **where_known(config, WorkerSpec, *newer),
    )
    settings = options.settings
    logs = CycleLogs(log_dir, options.shown, watch_hangs=settings.hang_timeout_seconds is not None)
    return DecidingAgent(
        spec,
        logs,
        rendezvous,
        sources,
        settings.hang_timeout_seconds,
        **where_known(config, LocalElasticAgent, "shutdown_timeout"),
    )


def _name_of(options: Options) -> str:
    """As torchrun calls it in its summary."""
    words = (word for word in options.words if word != sys.executable)
    return next((word for word in words if not word.startswith("-")), "")


def _log_dir(given: Path | None) -> Path:
    """The user's; otherwise a temporary one, or none: a full disk is no reason not to run."""
    try:
        directory = given or Path(tempfile.mkdtemp(prefix="aorta_launch_"))
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as wrong:
        if given is not None:
            raise UsageError(f"--log-dir {given} cannot be made: {wrong.strerror}") from None
        log.warning("there is no room for logs; attribution has only the last words of each rank")
        return Path(os.devnull) / "logs"
    if given is None:
        log.info("logs are in %s; --log-dir has them elsewhere", directory)
    return directory


def _job_id(options: Options) -> str:
    """The user's own id where there is one: the service and the scheduler know it."""
    given = options.torch.run_id
    if given in {"", "none"}:
        given = os.environ.get("SLURM_JOB_ID", given or "none")
    return slug(given)


def _heard(names: str) -> str:
    """Without those ignored at the start, as `nohup` and background shells leave them."""
    heard = {
        name: signal.getsignal(getattr(signal, name, signal.SIGTERM))
        for name in map(str.strip, names.split(","))
    }
    return ",".join(name for name, handler in heard.items() if handler is not signal.SIG_IGN)
