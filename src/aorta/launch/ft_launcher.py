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
# Its keys and flags that nothing stands for here.
_NAMES = """
    attribution_analysis_backend attribution_backends attribution_export_url
    attribution_llm_api_key_file attribution_llm_base_url attribution_llm_model
    attribution_log_level attribution_startup_timeout check_remaining_processes
    checkpoint_iteration_file cycle_info_dir cycle_info_job_id enable_dist_storage_healthcheck
    enable_log_server enable_nic_healthcheck enable_nic_monitor gpu_memory_poll_interval
    gpu_memory_reclaim_poll_interval gpu_memory_reclaim_timeout gpu_memory_reclaim_tolerance_mb
    gpu_memory_tolerance_mb install_exception_hook link_down_path_template
    link_state_path_template log_aggregator_count log_leaf_max_queue_chunks log_level
    log_server_graceful_shutdown_timeout log_server_log_prefix log_server_port
    min_progress_iterations node_health_check_endpoint node_health_check_interval
    num_warmup_iterations numa_bind_strict nvrx_logfile pci_topo_file
    rank_out_of_section_timeout rank_section_timeouts rank_termination_signal rdzv_impl
    restart_check_interval restart_policy safety_factor segment segment_health_check_dir
    skip_section_response storage_health_check_path storage_healthcheck_path
    workload_check_interval
"""
_NOT_HERE = frozenset(_NAMES.split())
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
        *((f"--ft-{name.replace('_', '-')}", {}, SUPPRESS) for name in sorted(_NOT_HERE)),
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
        what = f"it is read as {key}" if key else "it has no counterpart here"
        log.warning("%s is ft_launcher's; %s", shown, what)
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
            log.warning("--%s is ft_launcher's; use --shutdown-timeout", name.replace("_", "-"))
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
