"""A third set of kinds, written when the rules were done: other scripts, other launchers, other
words; and what they are.
"""

from functools import partial

from benchmarks.faults.kinds import BOTH, Kind, Launcher

_kind = partial(Kind, job="benchmarks.faults.fresh.job")
_SMALL_SHM = ("unshare", "-m", "sh", "-c", ('mount -t tmpfs -o size=4m tmpfs /dev/shm && exec '
                                           '"$@"'), "sh")  # fmt: skip
_MEGATRON = ("--style", "megatron")
_JSON = ("--style", "json")
_FAIRSEQ = ("--style", "fairseq")
_BAR = ("--style", "bar")
_SILENT = ("--style", "silent")
NOBODY = ()

USER_ERRORS = (
    _kind("model_config_key", "bad_config", BOTH, "STOP", True),
    _kind("config_json_comma", "bad_config", BOTH, "STOP", True, launcher=Launcher.AORTA),
    _kind("config_yaml_tab", "bad_config", BOTH, "STOP", True, launcher=Launcher.TORCHRUN),
    _kind("typer_option", "bad_arguments", BOTH, "STOP", True),
    _kind("parser_own_error", "bad_arguments", BOTH, "STOP", True, launcher=Launcher.AORTA),
    _kind("parser_subcommand", "bad_arguments", BOTH, "STOP", True, launcher=Launcher.TORCHRUN),
    _kind("hydra_override", "bad_arguments", BOTH, "STOP", True),
    _kind("hydra_mandatory", "bad_config", BOTH, "STOP", True),
    _kind("source_dedent", "syntax_error", BOTH, "STOP", True, launcher=Launcher.AORTA),
    _kind("circular_import", "import_error", BOTH, "STOP", True),
    _kind("no_master_address", "bad_config", (0,), "STOP", True, ranks=1, missing_variables=("MASTER_ADDR",)),
    _kind("cuda_on_cpu_build", "bad_config", BOTH, "STOP", True),
    _kind("checkpoint_without_key", "checkpoint_mismatch", BOTH, "STOP", True),
    _kind("checkpoint_not_allowed", "checkpoint_mismatch", BOTH, "STOP", True),
    _kind("checkpoint_wrapped", "checkpoint_mismatch", BOTH, "STOP", True),
    _kind("einsum_sizes", "shape_mismatch", BOTH, "STOP", True),
    _kind("numpy_broadcast", "shape_mismatch", BOTH, "STOP", True, launcher=Launcher.AORTA),
    _kind("normalized_shape", "shape_mismatch", (0,), "STOP", True, ranks=1),
    _kind("attention_heads", "assertion", BOTH, "RESTART"),
    _kind("tokens_not_there", "missing_file", BOTH, "STOP", True, launcher=Launcher.AORTA),
    _kind("missing_file_json_log", "missing_file", BOTH, "STOP", True, arguments=_JSON),
    _kind("interpreter_not_found", "missing_file", BOTH, "STOP", True),
    _kind("evaluation_only_then", "missing_file", (0,), "STOP", True, arguments=_MEGATRON),
    _kind("quota_exceeded", "disk_full", (0,), "STOP", arguments=_FAIRSEQ, broken_io="write:122:over_quota"),
)  # fmt: skip

LOOK_ALIKES = (
    _kind("import_one_rank", "import_error", (1,), "RESTART"),
    _kind("import_stale_handle", "storage_fault", (2,), "RESTART", ranks=3, broken_io="open:116:stale"),
    _kind("checkpoint_race", "missing_file", (1,), "RESTART", arguments=_MEGATRON),
    _kind("checkpoint_half_written", "checkpoint_corrupt", (1,), "RESTART", arguments=_FAIRSEQ),
    _kind("rename_race", "missing_file", BOTH, "RESTART", launcher=Launcher.AORTA),
    _kind("download_refused", "network_loss", BOTH, "RESTART"),
    _kind("cache_half_written", "data_error", (1,), "RESTART"),
    _kind("ecc_wrapped", "hardware_fault", (1,), "RESTART", origin="documented: docs.nvidia.com/cuda/cuda-runtime-api"),
    _kind("disk_full_healed", "killed", (1,), "RESTART"),
    _kind("helper_usage_then_kill", "killed", (1,), "RESTART"),
    _kind("helper_usage_then_error", "user_exception", (0,), "RESTART"),
    _kind("sandboxed_programs", "killed", (1,), "RESTART"),
    _kind("last_attempt_echoed", "user_exception", (0,), "RESTART", arguments=_MEGATRON),
    _kind("note_of_a_full_disk", "user_exception", (1,), "RESTART", launcher=Launcher.AORTA),
    _kind("tasks_refused", "network_loss", (0,), "RESTART"),
    _kind("retries_then_value_error", "user_exception", (1,), "RESTART"),
    _kind("stale_shard", "storage_fault", (1,), "RESTART", broken_io="open:116:stale_0007", launcher=Launcher.TORCHRUN),
)  # fmt: skip

ENDINGS = (
    _kind("nan_guard", "nan", (1,), "RESTART", arguments=_FAIRSEQ),
    _kind("overflow_then_segfault", "segfault", (0,), "RESTART", launcher=Launcher.AORTA),
    _kind("loader_segfault", "segfault", (1,), "RESTART"),
    _kind("loader_malformed_row", "data_error", (0,), "RESTART", launcher=Launcher.TORCHRUN),
    _kind("loader_shared_memory", "host_oom", (0,), "RESTART", wrapper=_SMALL_SHM),
    _kind("loader_oom_killed", "host_oom", (1,), "RESTART"),
    _kind("realloc_of_nothing", "abort", (1,), "RESTART"),
    _kind("memory_in_cleanup", "host_oom", (1,), "RESTART", arguments=_BAR),
    _kind("lock_never_given", "hang", (1,), "RESTART", arguments=(*_MEGATRON, "--timeout", "120"), hang_timeout=25.0),
    _kind("third_rank_slow", "collective_timeout", (2,), "RESTART", ranks=3, arguments=_JSON),
    _kind("different_collectives", "collective_timeout", NOBODY, "RESTART"),
    _kind("fewer_batches", "network_loss", (1,), "RESTART", launcher=Launcher.AORTA),
    _kind("exit_without_a_word", "unknown", (1,), "UNKNOWN", ranks=3, arguments=_SILENT),
    _kind("summary_only", "user_exception", (1,), "RESTART", launcher=Launcher.TORCHRUN_SUMMARY),
    _kind("rich_key_error", "user_exception", (1,), "RESTART", launcher=Launcher.TORCHRUN),
    _kind("unprefixed_value_error", "user_exception", NOBODY, "RESTART", launcher=Launcher.SHELL, arguments=_BAR),
    _kind("interrupted_launcher", "cancelled", NOBODY, "STOP", launcher=Launcher.TORCHRUN, hang_timeout=25.0, arguments=("--timeout", "120")),
    _kind("warnings_then_assertion", "assertion", (1,), "RESTART", arguments=(*_BAR, "--fault-step", "55")),
    _kind("preempted_by_scheduler", "preempted", NOBODY, "RESTART", origin="documented: slurm.schedmd.com/preempt.html"),
    _kind("time_is_up", "time_limit", NOBODY, "STOP", origin="documented: slurm.schedmd.com/sbatch.html"),
    _kind("agent_port_in_use", "port_in_use", NOBODY, "RESTART", launcher=Launcher.TORCHRUN),
    _kind("two_of_four_ranks", "rendezvous_error", NOBODY, "RESTART", world_size=4),
)  # fmt: skip

KINDS = (*USER_ERRORS, *LOOK_ALIKES, *ENDINGS)
