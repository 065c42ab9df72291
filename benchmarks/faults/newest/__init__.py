"""A fourth set of kinds, written after the rules had been generalised from the third; and what they
are.
"""

from functools import partial

from benchmarks.faults.kinds import BOTH, Kind, Launcher

_kind = partial(Kind, job="benchmarks.faults.newest.job")
_spawned = partial(_kind, ranks=1, launcher=Launcher.SHELL, arguments=("--spawn", "2"))
_LABELLED = ("sh", "-c", '"$@" 2>&1 | sed -u "s/^/$RANK: /"', "sh")
NOBODY = ()

KINDS = (
    _spawned("spawned_import", "import_error", NOBODY, "STOP", True),
    _kind("absl_flag", "bad_arguments", BOTH, "STOP", True),
    _kind("click_choice", "bad_arguments", BOTH, "STOP", True, launcher=Launcher.AORTA),
    _kind("dataclass_config", "bad_config", BOTH, "STOP", True, launcher=Launcher.TORCHRUN),
    _kind("number_in_environment", "bad_config", BOTH, "STOP", True),
    _kind("dataset_not_found", "missing_file", BOTH, "STOP", True, launcher=Launcher.AORTA),
    _kind("image_without_batch", "shape_mismatch", BOTH, "STOP", True),
    _kind("cat_of_different_ranks", "shape_mismatch", BOTH, "STOP", True, launcher=Launcher.TORCHRUN),
    _kind("numpy_reshape", "shape_mismatch", BOTH, "STOP", True),
    _kind("sharded_checkpoint_key", "checkpoint_mismatch", BOTH, "STOP", True),
    _kind("safetensors_garbage", "checkpoint_corrupt", BOTH, "STOP"),
    _kind("output_nowhere", "missing_file", (0,), "STOP", True, launcher=Launcher.AORTA),
    _kind("broken_entry_script", "syntax_error", (0,), "STOP", True, ranks=1),
    _kind("caught_by_logger", "missing_file", BOTH, "STOP", True),
    _kind("unknown_optimizer", "user_exception", BOTH, "RESTART"),
    _kind("entry_module_not_there", "import_error", BOTH, "STOP", True),
    _spawned("spawned_killed", "killed", NOBODY, "RESTART"),
    _spawned("spawned_value_error", "user_exception", NOBODY, "RESTART"),
    _kind("pool_bad_text", "data_error", (0,), "RESTART"),
    _kind("shard_half_downloaded", "data_error", (1,), "RESTART"),
    _kind("ragged_record", "data_error", (1,), "RESTART"),
    _kind("ticket_ran_out", "permission_denied", (2,), "RESTART", ranks=3, broken_io="open:13:kerberos_00017"),
    _kind("hub_overloaded", "network_loss", BOTH, "RESTART", launcher=Launcher.AORTA),
    _kind("hub_without_name", "network_loss", BOTH, "RESTART"),
    _kind("index_locked", "user_exception", (1,), "RESTART"),
    _kind("unused_parameters", "user_exception", BOTH, "RESTART"),
    _kind("terminated_politely", "killed", NOBODY, "RESTART"),
    _kind("own_watchdog", "hang", (1,), "RESTART"),
    _kind("prefetch_thread_died", "collective_timeout", (1,), "RESTART"),
    _kind("stopped_rank", "collective_timeout", (3,), "RESTART", ranks=4),
    _kind("training_diverged", "nan", (0,), "RESTART", launcher=Launcher.TORCHRUN),
    _kind("native_bad_alloc", "host_oom", (0,), "RESTART"),
    _kind("labels_out_of_range", "user_exception", (1,), "RESTART", launcher=Launcher.TORCHRUN),
    _kind("srun_labels", "user_exception", (1,), "RESTART", launcher=Launcher.SHELL, wrapper=_LABELLED),
    _kind("one_rank_returns", "network_loss", (0,), "RESTART", ranks=3),
    _kind("evicted_module", "import_error", (1,), "RESTART"),
    _kind("address_already_taken", "port_in_use", (0,), "RESTART"),
)  # fmt: skip
