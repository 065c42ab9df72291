"""The fault-tolerance settings: one YAML block, one flag per key, one list of sources.

Flags override YAML; a flag that was not given overrides nothing. Old spellings, and those of NVIDIA's ft_launcher, fold
into the new ones here and are unknown everywhere else. Nothing here needs torch.
"""

import logging
import warnings
from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import Field, field_validator

from aorta.core.documents import StrictModel, validated
from aorta.core.errors import SpecError, UsageError
from aorta.runtimes.http_get import without_credentials

log = logging.getLogger(__name__)

Aggregation = Literal["any", "all"]
USAGE = "aorta launch [torchrun's options] [--ft-...] script.py [arguments]"
DESCRIPTION = (
    "Runs a training script as torchrun does, and asks attribution whether to restart it when it "
    "fails. Exit codes: 0 done, 1 the job failed, 2 wrong command line, 5 the rendezvous store was lost, "
    "93 attribution decided STOP, 130/143 interrupted."
)


class AttributionConfig(StrictModel):
    """Whom to ask. With no source given, attribution runs in process on the leader."""

    attrsvc_url: str | None = None
    enable_mcp: bool = False
    mcp_server: str | None = Field(default=None, min_length=1)
    http_urls: tuple[str, ...] = ()
    timeout_seconds: float = Field(default=60.0, gt=0)
    decision_timeout_seconds: float = Field(default=10.0, gt=0)
    dry_run: bool = False
    aggregation: Aggregation = "any"

    @field_validator("http_urls", mode="before")
    @classmethod
    def _as_tuple(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("attrsvc_url")
    @classmethod
    def _one_url(cls, url: str | None) -> str | None:
        return None if url is None else _checked_url(url)

    @field_validator("http_urls")
    @classmethod
    def _urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_checked_url(url) for url in urls)


class FaultTolerance(StrictModel):
    attribution: AttributionConfig = AttributionConfig()
    hang_timeout_seconds: float | None = Field(default=None, gt=0)
    max_no_progress_cycles: int = Field(default=3, ge=0)  # 0: no limit
    merged_log: bool = False
    per_cycle_applog_prefix: str | None = Field(default=None, min_length=1)


class _Document(StrictModel):
    fault_tolerance: FaultTolerance = FaultTolerance()


_SECONDS: dict[str, Any] = {"metavar": "SECONDS", "type": float}
_YES_OR_NO: dict[str, Any] = {"action": BooleanOptionalAction}
_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "--ft-config": {
        "metavar": "FILE",
        "help": "YAML file with a fault_tolerance: block.",
    },
    "--ft-attrsvc-url": {
        "metavar": "URL",
        "help": "Ask this attribution service (aorta attrsvc).",
    },
    "--ft-attribution-enable-mcp": {
        **_YES_OR_NO,
        "help": "Ask what `aorta mcp` would answer, in this process.",
    },
    "--ft-attribution-mcp-server": {
        "metavar": "URL|COMMAND",
        "help": "Ask this MCP server: its address, or a command that the leader starts.",
    },
    "--ft-attribution-http-url": {
        "metavar": "URL",
        "action": "append",
        "help": "Ask this HTTP attribution backend too; repeatable.",
    },
    "--ft-attribution-timeout": {
        **_SECONDS,
        "help": "How long any one source may take (60).",
    },
    "--ft-attribution-decision-timeout": {
        **_SECONDS,
        "help": "How long the leader waits for the verdict before it restarts (10).",
    },
    "--ft-attribution-dry-run": {
        **_YES_OR_NO,
        "help": "Decide and log, but never stop the job.",
    },
    "--ft-attribution-aggregation": {
        "choices": ["any", "all"],
        "help": "any: one STOP stops the job. all: every source that has an opinion must say STOP, and at "
        "least one must. A source that is unreachable, late or says UNKNOWN has no opinion.",
    },
    "--ft-hang-timeout": {
        **_SECONDS,
        "help": "No output and no heartbeat for this long is a hang: stacks and Flight Recorder are "
        "collected, then the cycle ends (off).",
    },
    "--ft-max-no-progress-cycles": {
        "metavar": "N",
        "type": int,
        "help": "End the job after N cycles in a row without progress (3; 0: never).",
    },
    "--ft-merged-log": {
        **_YES_OR_NO,
        "help": "Also write one log per node and cycle with every line prefixed by its rank.",
    },
    "--ft-per-cycle-applog-prefix": {
        "metavar": "PATH",
        "help": "Also write <PATH>_cycle<N>.log, with every line prefixed by its rank.",
    },
}
_OLD_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "--ft-attribution-endpoint": {
        "metavar": "URL",
        "help": "Use --ft-attrsvc-url.",
    },
    "--ft-attribution-backend": {
        "metavar": "URL|mcp",
        "action": "append",
        "help": "Use --ft-attribution-http-url or --ft-attribution-enable-mcp.",
    },
}


_FT_LAUNCHER_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "--ft-cfg-path": {"metavar": "FILE", "help": "ft_launcher's name for --ft-config."},
    "--ft-rank-heartbeat-timeout": {
        "metavar": "SECONDS|null",
        "help": "ft_launcher's name for --ft-hang-timeout.",
    },
    "--ft-initial-rank-heartbeat-timeout": {
        "metavar": "SECONDS|null",
        "help": "The same; the larger of the two counts.",
    },
    "--ft-attribution-stop-action": {
        "choices": ["log", "no-restart"],
        "help": "log: --ft-attribution-dry-run. no-restart: STOP ends the job, as it does here by default.",
    },
    "--ft-no-restart-exit-code": {"metavar": "CODE", "help": "93; no other code is used here."},
}
_LOG_DIR = "cycle_info.json lies in --log-dir, one in each cycle"
_OWN_LOGS = "every rank's output lies in --log-dir"
_PROGRESS = "progress is read from the logs and from aorta.launch.heartbeat"
_HANGS = "a hang is silence of all ranks or a missed heartbeat: --ft-hang-timeout"
_NOTHING = "it has no counterpart here"
_NOT_HERE: Mapping[str, str] = {  # ft_launcher's keys and flags, and what stands for them here
    "attribution_startup_timeout": "start `aorta attrsvc` yourself and give --ft-attrsvc-url",
    "attribution_llm_api_key_file": "the model is an option of `aorta attrsvc`",
    "attribution_llm_base_url": "the model is an option of `aorta attrsvc`",
    "attribution_llm_model": "the model is an option of `aorta attrsvc`",
    "attribution_analysis_backend": "use --ft-attribution-mcp-server for an MCP server",
    "attribution_log_level": _NOTHING,
    "attribution_export_url": _NOTHING,
    "cycle_info_dir": _LOG_DIR,
    "nvrx_logfile": "this launcher speaks to stderr",
    "enable_log_server": _OWN_LOGS,
    "log_server_port": _OWN_LOGS,
    "log_aggregator_count": _OWN_LOGS,
    "log_leaf_max_queue_chunks": _OWN_LOGS,
    "log_server_log_prefix": _OWN_LOGS,
    "log_server_graceful_shutdown_timeout": _OWN_LOGS,
    "min_progress_iterations": _PROGRESS,
    "checkpoint_iteration_file": _PROGRESS,
    "rank_section_timeouts": _HANGS,
    "rank_out_of_section_timeout": _HANGS,
    "skip_section_response": _HANGS,
    "safety_factor": _HANGS,
    "workload_check_interval": "use --monitor-interval",
    "restart_check_interval": "use --monitor-interval",
    "rank_termination_signal": "ranks get SIGTERM, and SIGKILL after --shutdown-timeout",
    "restart_policy": "any failed rank restarts the job",
    "segment": _NOTHING,
    "node_health_check_endpoint": _NOTHING,
    "enable_nic_monitor": _NOTHING,
    "enable_nic_healthcheck": _NOTHING,
    "pci_topo_file": _NOTHING,
    "link_down_path_template": _NOTHING,
    "link_state_path_template": _NOTHING,
    "enable_dist_storage_healthcheck": _NOTHING,
    "storage_health_check_path": _NOTHING,
    "gpu_memory_reclaim_timeout": _NOTHING,
    "gpu_memory_tolerance_mb": _NOTHING,
    "gpu_memory_reclaim_tolerance_mb": _NOTHING,
    "gpu_memory_poll_interval": _NOTHING,
    "gpu_memory_reclaim_poll_interval": _NOTHING,
    "check_remaining_processes": "what ranks leave behind is always ended",
    "install_exception_hook": _NOTHING,
    "numa_bind_strict": "use --numa-binding",
    "rdzv_impl": "the rendezvous is torch's c10d",
    "log_level": _NOTHING,
}
_SWITCHES_NOT_HERE = ("--ft-ignore-missing-cfg", "--ft_ignore_missing_cfg")


def add_flags(parser: ArgumentParser) -> None:
    """Every flag of ours, in both spellings, `--ft-x-y` and `--ft_x_y`, as torchrun has it for its own.

    All default to None: only what was given may override the file.
    """
    for title, flags in (
        ("fault tolerance", _FLAGS),
        ("ft_launcher's own", _FT_LAUNCHER_FLAGS),
        ("deprecated", _OLD_FLAGS),
    ):
        group = parser.add_argument_group(title)
        for name, how in flags.items():
            group.add_argument(name, "--" + name[2:].replace("-", "_"), default=None, **how)
    for name in _NOT_HERE:
        parser.add_argument(
            f"--ft-{name.replace('_', '-')}", f"--ft_{name}", default=None, help=SUPPRESS
        )
    for name in _SWITCHES_NOT_HERE:
        parser.add_argument(name, action="store_true", help=SUPPRESS)


def fault_tolerance(flags: Namespace) -> FaultTolerance:
    """The settings of one run, from the file and the flags."""
    flags = _without_old_spellings(_without_ft_launcher_spellings(flags))
    file = flags.ft_config
    content = _read(Path(file)) if file else {}
    if file and flags.ft_cfg_path:
        content = _of_ft_launcher(content)
    content = _in_our_words(content, file)
    written = validated(_Document, content, file=file or "--ft-config").fault_tolerance
    given = {
        "attribution": {
            "attrsvc_url": flags.ft_attrsvc_url,
            "enable_mcp": flags.ft_attribution_enable_mcp,
            "mcp_server": flags.ft_attribution_mcp_server,
            "http_urls": flags.ft_attribution_http_url,
            "timeout_seconds": flags.ft_attribution_timeout,
            "decision_timeout_seconds": flags.ft_attribution_decision_timeout,
            "dry_run": flags.ft_attribution_dry_run,
            "aggregation": flags.ft_attribution_aggregation,
        },
        "hang_timeout_seconds": flags.ft_hang_timeout,
        "max_no_progress_cycles": flags.ft_max_no_progress_cycles,
        "merged_log": flags.ft_merged_log,
        "per_cycle_applog_prefix": flags.ft_per_cycle_applog_prefix,
    }
    merged = _overridden(written.model_dump(), given)
    return validated(FaultTolerance, merged, file="command line", at="fault_tolerance")


def _of_ft_launcher(content: object) -> object:
    """Its file may be a whole training configuration, of which one block is meant."""
    if not isinstance(content, Mapping):
        return content
    block = content.get("fault_tolerance")
    return {} if block is None else {"fault_tolerance": block}


def _in_our_words(content: object, file: str | None) -> object:
    """ft_launcher's keys as ours, where there is one; the others are named and left out."""
    block = content.get("fault_tolerance") if isinstance(content, Mapping) else None
    if not isinstance(content, Mapping) or not isinstance(block, Mapping):
        return content
    ours = {key: value for key, value in block.items() if key not in _ITS_KEYS}
    theirs = {key: value for key, value in block.items() if key in _ITS_KEYS}
    attribution = dict(ours.get("attribution") or {})
    timeouts = [theirs.get("rank_heartbeat_timeout"), theirs.get("initial_rank_heartbeat_timeout")]
    limits = [each for each in timeouts if each is not None]
    if limits:
        ours.setdefault("hang_timeout_seconds", max(limits))
    if theirs.get("attribution_endpoint") is not None:
        attribution.setdefault("attrsvc_url", theirs["attribution_endpoint"])
    if "attribution_stop_action" in theirs:
        attribution.setdefault("dry_run", theirs["attribution_stop_action"] == "log")
    if attribution:
        ours["attribution"] = attribution
    for key in theirs:
        what = _NOT_HERE.get(key) or f"it is read as {_ITS_KEYS[key]}"
        log.warning("%s: %s is ft_launcher's; %s", file, key, what)
    return {**content, "fault_tolerance": ours}


_ITS_KEYS: Mapping[str, str] = {
    **_NOT_HERE,
    "rank_heartbeat_timeout": "hang_timeout_seconds",
    "initial_rank_heartbeat_timeout": "hang_timeout_seconds",
    "attribution_endpoint": "attribution.attrsvc_url",
    "attribution_stop_action": "attribution.dry_run",
}


def _without_ft_launcher_spellings(flags: Namespace) -> Namespace:
    folded = dict(vars(flags))
    for name, instead in _NOT_HERE.items():
        if folded.pop(f"ft_{name}") is not None:
            log.warning("--ft-%s is ft_launcher's; %s", name.replace("_", "-"), instead)
    limits = [
        _seconds(name, folded.pop(name))
        for name in ("ft_rank_heartbeat_timeout", "ft_initial_rank_heartbeat_timeout")
    ]
    known = [limit for limit in limits if limit is not None]
    if known and folded["ft_hang_timeout"] is None:
        folded["ft_hang_timeout"] = max(known)
        log.warning(
            "--ft-rank-heartbeat-timeout is ft_launcher's; here it is --ft-hang-timeout %g: "
            "no output and no heartbeat for so long is a hang",
            max(known),
        )
    action = folded.pop("ft_attribution_stop_action")
    if action is not None and folded["ft_attribution_dry_run"] is None:
        folded["ft_attribution_dry_run"] = action == "log"
    if folded.pop("ft_no_restart_exit_code") not in {None, "93"}:
        log.warning("--ft-no-restart-exit-code is ft_launcher's; a STOP always exits with 93 here")
    if folded["ft_cfg_path"] is not None:
        if folded["ft_config"] is not None:
            raise UsageError("--ft-cfg-path is another name for --ft-config; give only one")
        folded["ft_config"] = folded["ft_cfg_path"]
    return Namespace(**folded)


def _seconds(name: str, text: str | None) -> float | None:
    if text is None or text.lower() in {"none", "null", ""}:
        return None
    try:
        return float(text)
    except ValueError:
        flag = name.replace("_", "-")
        raise UsageError(f"--{flag} {text}: expected seconds, or null for never") from None


def _overridden(weak: Mapping[str, Any], strong: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(weak)
    for key, value in strong.items():
        if isinstance(value, Mapping):
            result[key] = _overridden(weak[key], value)
        elif value is not None:
            result[key] = value
    return result


def _read(file: Path) -> object:
    try:
        content = yaml.safe_load(file.read_text())
    except OSError as wrong:
        raise SpecError(f"cannot be read: {wrong.strerror}", where=str(file)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as wrong:
        raise SpecError(f"is not YAML: {wrong}", where=str(file)) from None
    return {} if content is None else content


def _without_old_spellings(flags: Namespace) -> Namespace:
    backends = flags.ft_attribution_backend or []
    old_to_new = (
        ("--ft-attribution-endpoint", "ft_attrsvc_url", flags.ft_attribution_endpoint),
        (
            "--ft-attribution-backend mcp",
            "ft_attribution_enable_mcp",
            True if "mcp" in backends else None,
        ),
        (
            "--ft-attribution-backend URL",
            "ft_attribution_http_url",
            [backend for backend in backends if backend != "mcp"] or None,
        ),
    )
    folded = dict(vars(flags))
    for old, key, value in old_to_new:
        if value is None:
            continue
        new = "--" + key.replace("_", "-")
        warnings.warn(f"{old} is deprecated; use {new}", DeprecationWarning, stacklevel=3)
        if folded[key] is not None:
            raise UsageError(f"{old} is the old spelling of {new}; give only {new}")
        folded[key] = value
    return Namespace(**folded)


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        shown = without_credentials(url)
        raise UsageError(f"{shown!r} is not an HTTP address; expected http://HOST:PORT")
    return url.rstrip("/")
