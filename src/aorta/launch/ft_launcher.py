"""What users of NVIDIA's ft_launcher type: its flags and the keys of its YAML, read as ours, or
named with what stands for them.

Nothing else in this package knows these names, and nothing here needs torch.
"""

import argparse
import logging
import os
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Collection, Mapping
from typing import Any

log = logging.getLogger(__name__)

# The first word of a command line that began with `ft_launcher`.
NAMED_SO = "--ft-launcher-defaults"
_TERMINATION = "ranks get SIGTERM, and SIGKILL after --shutdown-timeout"
_PROGRESS = "progress is read from the logs and from aorta.launch.heartbeat"
# What stands here for its keys and flags.
_INSTEAD: Mapping[str, str] = {
    "start `aorta attrsvc` yourself and give --ft-attrsvc-url": "attribution_startup_timeout",
    "no language model is asked": "attribution_llm_api_key_file "
    "attribution_llm_base_url attribution_llm_model",
    "name the sources with --ft-attribution-http-url or --ft-attribution-enable-mcp": ""
    "attribution_analysis_backend attribution_backends",
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
# Its name -> what stands for it here.
_NOT_HERE: Mapping[str, str] = {
    name: instead for instead, names in _INSTEAD.items() for name in names.split()
}
# Its name -> the key of ours that it sets.
_READ_AS: Mapping[str, str] = {
    "rank_heartbeat_timeout": "hang_timeout_seconds",
    "initial_rank_heartbeat_timeout": "hang_timeout_seconds",
    "attribution_endpoint": "attribution.attrsvc_url",
    "attribution_stop_action": "attribution.dry_run",
    "attribution_dry_run": "attribution.dry_run",
    "attribution_timeout_seconds": "attribution.timeout_seconds",
}
_NOT_OF_TORCHRUN = ("term_timeout", "workers_stop_timeout")  # without --ft-, and not here either


def add_flag(
    group: "argparse._ArgumentGroup", flag: str, how: Mapping[str, Any], help_text: str | None
) -> None:
    """`--ft-x-y` and `--ft_x_y`, as torchrun has it for its own, and ft_launcher's `--ft-x_y`, of
    which --help says nothing.
    """
    words = flag.removeprefix("--ft-").replace("-", "_")
    names = dict.fromkeys((flag, f"--ft_{words}"))
    group.add_argument(*names, default=None, help=help_text, **how)
    if f"--ft-{words}" not in names:
        group.add_argument(f"--ft-{words}", default=None, help=SUPPRESS, **how)


def add_flags(parser: ArgumentParser) -> None:
    """Every flag of ft_launcher's."""
    group = parser.add_argument_group("ft_launcher's own")
    seconds: dict[str, Any] = {"metavar": "SECONDS|null", "type": _seconds}
    actions = "log: --ft-attribution-dry-run. no-restart: STOP ends the job, as here by default."
    flags: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("--ft-cfg-path", {"metavar": "FILE"}, "ft_launcher's name for --ft-config."),
        ("--ft-rank-heartbeat-timeout", seconds, "ft_launcher's name for --ft-hang-timeout."),
        ("--ft-initial-rank-heartbeat-timeout", seconds, "The same; the larger one counts."),
        ("--ft-attribution-stop-action", {"choices": ["log", "no-restart"]}, actions),
        ("--ft-no-restart-exit-code", {"metavar": "CODE"}, "93; no other code is used here."),
        *((f"--ft-{name.replace('_', '-')}", {}, SUPPRESS) for name in _NOT_HERE),
        ("--ft-ignore-missing-cfg", {"action": "store_true"}, SUPPRESS),
    )
    for flag, how, help_text in flags:
        add_flag(group, flag, how, help_text)
    for name in _NOT_OF_TORCHRUN:
        parser.add_argument(f"--{name.replace('_', '-')}", f"--{name}", default=None, help=SUPPRESS)
    parser.add_argument(NAMED_SO, action="store_true", help=SUPPRESS)


def defaults() -> dict[str, Any]:
    """Of ft_launcher's options, where they differ from torchrun's and no variable sets them."""
    its = {"rdzv_backend": "c10d", "monitor_interval": 0.3}
    return {name: value for name, value in its.items() if f"PET_{name.upper()}" not in os.environ}


def endpoint(given: str) -> str | None:
    """The address in `attribution_endpoint`; None, with a warning, for what we cannot reach."""
    if given != "localhost" and not given.startswith(("unix://", "grpc://")):
        return given
    log.warning(
        "the attribution endpoint %s is ft_launcher's: here attribution runs in this process; "
        "for a service give --ft-attrsvc-url http://HOST:PORT",
        given,
    )
    return None


def _in_our_words(theirs: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Its settings as ours, by key; each is named in a warning, behind `prefix`."""
    ours: dict[str, Any] = {}
    for name, value in theirs.items():
        key = _READ_AS.get(name, "")
        shown = f"{prefix}{name.replace('_', '-') if prefix.startswith('--') else name}"
        log.warning("%s is ft_launcher's; %s", shown, _NOT_HERE.get(name, f"it is read as {key}"))
        read = value
        if name == "attribution_endpoint":
            read = endpoint(str(value))
        elif name == "attribution_stop_action":
            read = value == "log"
        elif key == "hang_timeout_seconds" and isinstance(value, int | float):
            read = max(value, ours.get(key, value))
        if key and value is not None and read is not None:
            ours[key] = read
    return ours


def file_in_our_words(content: object, file: str, known: Collection[str] | None) -> object:
    """The content of a file, in which its keys are ours. Where both stand, ours count.

    With `known`, our keys, it is a file of ft_launcher's: maybe a whole training configuration, of
    which one block is meant, and a key that neither program has is named and left out.
    """
    if not isinstance(content, Mapping):
        return content
    block = content.get("fault_tolerance")
    if known is not None:
        content = {} if block is None else {"fault_tolerance": block}
    if not isinstance(block, Mapping):
        return content
    theirs = {key: block[key] for key in block if key in _NOT_HERE or key in _READ_AS}
    ours: dict[str, Any] = {key: block[key] for key in block if key not in theirs}
    for key in [key for key in ours if known is not None and key not in known]:
        log.warning("%s: %s is not known here and is left out", file, key)
        del ours[key]
    for key, value in _in_our_words(theirs, f"{file}: ").items():
        outer, _, name = key.rpartition(".")
        target = ours.setdefault(outer, {}) if outer else ours
        if isinstance(target, dict):
            target.setdefault(name, value)
    return {**content, "fault_tolerance": ours}


def flags_in_our_words(flags: Namespace) -> dict[str, Any]:
    """What its flags set, by key of ours."""
    for name in _NOT_OF_TORCHRUN:
        if getattr(flags, name) is not None:
            log.warning("--%s is ft_launcher's; %s", name.replace("_", "-"), _TERMINATION)
    if flags.ft_no_restart_exit_code not in {None, "93"}:
        log.warning("--ft-no-restart-exit-code is ft_launcher's; a STOP always exits with 93 here")
    names = {*_NOT_HERE, *_READ_AS} - {"attribution_endpoint", "attribution_dry_run"}
    given = {name: getattr(flags, f"ft_{name}", None) for name in sorted(names)}
    return _in_our_words(
        {name: value for name, value in given.items() if value is not None}, "--ft-"
    )


def _seconds(text: str) -> float | None:
    if text.lower() in {"none", "null", ""}:
        return None
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError("expected seconds, or null for never") from None
