"""What users of NVIDIA's ft_launcher type: its flags and the keys of its YAML, as ours or named
with what stands for them.

Nothing else in this package knows these names, and nothing here needs torch.
"""

import logging
import os
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Collection, Mapping
from typing import Any

from aorta.core.errors import UsageError

log = logging.getLogger(__name__)

_SECONDS: Mapping[str, Any] = {"metavar": "SECONDS|null"}
# Flag -> no key of ours, how it is parsed, and what --help says.
FLAGS: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "--ft-cfg-path": ("", {"metavar": "FILE"}, "ft_launcher's name for --ft-config."),
    "--ft-rank-heartbeat-timeout": ("", _SECONDS, "ft_launcher's name for --ft-hang-timeout."),
    "--ft-initial-rank-heartbeat-timeout": (
        *("", _SECONDS),
        "The same; the larger of the two counts.",
    ),
    "--ft-attribution-stop-action": (
        *("", {"choices": ["log", "no-restart"]}),
        "log: --ft-attribution-dry-run. no-restart: STOP ends the job, as it does here by default.",
    ),
    "--ft-no-restart-exit-code": ("", {"metavar": "CODE"}, "93; no other code is used here."),
}
# The first word of a command line that began with `ft_launcher`.
NAMED_SO = "--ft-launcher-defaults"
_TERMINATION = "ranks get SIGTERM, and SIGKILL after --shutdown-timeout"
_PROGRESS = "progress is read from the logs and from aorta.launch.heartbeat"
# What stands here for its keys and flags.
_INSTEAD: Mapping[str, str] = {
    "start `aorta attrsvc` yourself and give --ft-attrsvc-url": "attribution_startup_timeout",
    "no language model is asked": "attribution_llm_api_key_file "
    "attribution_llm_base_url attribution_llm_model",
    "use --ft-attribution-mcp-server for an MCP server": "attribution_analysis_backend",
    "name the sources with --ft-attribution-http-url": "attribution_backends",
    "cycle_info.json lies in --log-dir, one in each cycle": "cycle_info_dir",
    "the job's id is --rdzv-id": "cycle_info_job_id",
    "this launcher speaks to stderr": "nvrx_logfile",
    "every rank's output lies in --log-dir": "enable_log_server log_server_port "
    "log_aggregator_count log_leaf_max_queue_chunks log_server_log_prefix "
    "log_server_graceful_shutdown_timeout",
    _PROGRESS: "min_progress_iterations checkpoint_iteration_file num_warmup_iterations",
    "a hang is silence of all ranks or a missed heartbeat: --ft-hang-timeout": "safety_factor "
    "rank_section_timeouts rank_out_of_section_timeout skip_section_response",
    "use --monitor-interval": "workload_check_interval restart_check_interval",
    _TERMINATION: "rank_termination_signal",
    "any failed rank restarts the job": "restart_policy",
    "what ranks leave behind is always ended": "check_remaining_processes",
    "use --numa-binding": "numa_bind_strict",
    "the agents meet on a store of their own": "rdzv_impl",
    "it has no counterpart here": "attribution_log_level attribution_export_url segment "
    "segment_health_check_dir node_health_check_endpoint node_health_check_interval "
    "enable_nic_monitor enable_nic_healthcheck pci_topo_file link_down_path_template "
    "link_state_path_template enable_dist_storage_healthcheck storage_health_check_path "
    "storage_healthcheck_path gpu_memory_reclaim_timeout gpu_memory_tolerance_mb "
    "gpu_memory_reclaim_tolerance_mb gpu_memory_poll_interval gpu_memory_reclaim_poll_interval "
    "install_exception_hook log_level",
}
_NOT_HERE: Mapping[str, str] = {
    name: instead for instead, names in _INSTEAD.items() for name in names.split()
}
_NOT_OF_TORCHRUN = ("term_timeout", "workers_stop_timeout")  # without --ft-, and not here either


def spellings(flag: str) -> tuple[str, str, str]:
    """`--ft-x-y` and `--ft_x_y`, as torchrun has it for its own, and ft_launcher's `--ft-x_y`."""
    words = flag.removeprefix("--ft-").replace("-", "_")
    return flag, f"--ft_{words}", f"--ft-{words}"


def add_what_is_not_here(parser: ArgumentParser) -> None:
    for name in _NOT_HERE:
        names = dict.fromkeys(spellings(f"--ft-{name.replace('_', '-')}"))
        parser.add_argument(*names, default=None, help=SUPPRESS)
    for name in _NOT_OF_TORCHRUN:
        parser.add_argument(f"--{name.replace('_', '-')}", f"--{name}", default=None, help=SUPPRESS)
    parser.add_argument(*spellings("--ft-ignore-missing-cfg"), action="store_true", help=SUPPRESS)
    parser.add_argument(NAMED_SO, action="store_true", help=SUPPRESS)


def defaults() -> dict[str, Any]:
    """Of ft_launcher's options, where they differ from torchrun's and no variable sets them."""
    its = {"rdzv_backend": "c10d", "monitor_interval": 0.3}
    return {name: value for name, value in its.items() if f"PET_{name.upper()}" not in os.environ}


def meant_block(content: object, known: Collection[str], file: str) -> object:
    """Its file may be a whole training configuration, of which one block is meant. A key that
    neither program has is named and left out, as ft_launcher leaves it out.
    """
    if not isinstance(content, Mapping):
        return content
    block = content.get("fault_tolerance")
    if not isinstance(block, Mapping):
        return {} if block is None else {"fault_tolerance": block}
    strange = [key for key in block if key not in {*known, *_ITS_KEYS}]
    for key in strange:
        log.warning("%s: %s is not known here and is left out", file, key)
    return {"fault_tolerance": {key: block[key] for key in block if key not in strange}}


def endpoint(told: str) -> str | None:
    """The address in `attribution_endpoint`; None, with a warning, for what we cannot reach."""
    if told != "localhost" and not told.startswith(("unix://", "grpc://")):
        return told
    log.warning(
        "the attribution endpoint %s is ft_launcher's: here attribution runs in this process; "
        "for a service give --ft-attrsvc-url http://HOST:PORT",
        told,
    )
    return None


def in_our_words(content: object, file: str | None) -> object:
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
        attribution.setdefault("attrsvc_url", endpoint(str(theirs["attribution_endpoint"])))
    if theirs.get("attribution_stop_action") is not None:
        attribution.setdefault("dry_run", theirs["attribution_stop_action"] == "log")
    if "attribution_dry_run" in theirs:
        attribution.setdefault("dry_run", theirs["attribution_dry_run"])
    if "attribution_timeout_seconds" in theirs:
        attribution.setdefault("timeout_seconds", theirs["attribution_timeout_seconds"])
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
    "attribution_dry_run": "attribution.dry_run",
    "attribution_timeout_seconds": "attribution.timeout_seconds",
}


def without_its_spellings(flags: Namespace) -> Namespace:
    folded = dict(vars(flags))
    for name, instead in _NOT_HERE.items():
        if folded.pop(f"ft_{name}") is not None:
            log.warning("--ft-%s is ft_launcher's; %s", name.replace("_", "-"), instead)
    for name in _NOT_OF_TORCHRUN:
        if folded.pop(name) is not None:
            log.warning("--%s is ft_launcher's; %s", name.replace("_", "-"), _TERMINATION)
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
