"""Every way to fail that the corpus holds, and what a perfect reader would say about it, written
before any reader looked.
"""

from dataclasses import dataclass
from enum import Enum


class Launcher(Enum):
    """Who starts the ranks, and so what is left behind."""

    RANKS = "a file a rank, and how each ended"
    TORCHRUN = "one log of torchrun, lines of all ranks with a prefix"
    TORCHRUN_SUMMARY = "torchrun's own words alone; the ranks wrote elsewhere"
    AORTA = "a cycle directory of `aorta launch`"
    SHELL = "one log that all ranks write to, without a prefix"


@dataclass(frozen=True)
class Kind:
    """One way to fail, and what a perfect reader would say about it."""

    name: str
    failure_class: str
    root_ranks: tuple[int, ...]  # any of these is right; empty: nobody in particular
    decision: str
    user_error: bool = False
    arguments: tuple[str, ...] = ()
    fault: str | None = None  # where several kinds share one fault
    launcher: Launcher = Launcher.RANKS
    hang_timeout: float | None = None  # a launcher's hang detector, for what never ends by itself
    ranks: int = 2
    job: str = "benchmarks.faults.job"
    broken_io: str | None = None  # "CALL:ERRNO:PART OF A PATH", see failing_io.c
    missing_variables: tuple[str, ...] = ()
    world_size: int | None = None  # what the ranks are told, where it is not how many there are
    wrapper: tuple[str, ...] = ()  # what each rank is started through
    origin: str = "injected"


BOTH = (0, 1)
KINDS: tuple[Kind, ...] = (
    Kind("import_error", "import_error", BOTH, "STOP", user_error=True),
    Kind("import_name", "import_error", BOTH, "STOP", user_error=True),
    Kind("syntax_error", "syntax_error", BOTH, "STOP", user_error=True),
    Kind("bad_flag", "bad_arguments", BOTH, "STOP", user_error=True, arguments=("--precison", "bf16")),
    Kind("bad_choice", "bad_arguments", BOTH, "STOP", user_error=True, arguments=("--precision", "fp64")),
    Kind("environment_variable", "bad_config", BOTH, "STOP", user_error=True),
    Kind("config_validation", "bad_config", BOTH, "STOP", user_error=True),
    Kind("config_syntax", "bad_config", BOTH, "STOP", user_error=True),
    Kind("no_cuda_build", "bad_config", BOTH, "STOP", user_error=True),
    Kind("shape_matmul", "shape_mismatch", BOTH, "STOP", user_error=True),
    Kind("shape_broadcast", "shape_mismatch", BOTH, "STOP", user_error=True),
    Kind("checkpoint_shape", "checkpoint_mismatch", BOTH, "STOP", user_error=True),
    Kind("checkpoint_keys", "checkpoint_mismatch", BOTH, "STOP", user_error=True),
    Kind("checkpoint_truncated", "checkpoint_corrupt", BOTH, "STOP"),
    Kind("checkpoint_garbage", "checkpoint_corrupt", BOTH, "STOP"),
    Kind("missing_file", "missing_file", BOTH, "STOP", user_error=True),
    Kind("missing_file_locale", "missing_file", BOTH, "STOP", user_error=True),
    Kind("missing_file_chained", "missing_file", BOTH, "STOP", user_error=True),
    Kind("missing_output_dir", "missing_file", (0,), "STOP", user_error=True),
    Kind("permission_denied", "permission_denied", BOTH, "STOP", user_error=True),
    Kind("read_only_output", "permission_denied", (0,), "STOP", user_error=True),
    Kind("disk_full_checkpoint", "disk_full", (0,), "STOP"),
    Kind("disk_full_write", "disk_full", (1,), "STOP"),
    Kind("host_oom_killed", "host_oom", (1,), "RESTART"),
    Kind("host_oom_allocation", "host_oom", (1,), "RESTART"),
    Kind("host_oom_python", "host_oom", (0,), "RESTART"),
    Kind("too_many_files", "user_exception", (1,), "RESTART"),
    Kind("port_in_use", "port_in_use", (0,), "RESTART"),
    Kind("late_peer", "rendezvous_error", (1,), "RESTART"),
    Kind("wrong_master_port", "rendezvous_error", (1,), "RESTART"),
    Kind("unknown_master", "rendezvous_error", (1,), "RESTART"),
    Kind("sigkill", "killed", (1,), "RESTART"),
    Kind("sigterm", "killed", (0,), "RESTART"),
    Kind("sigint_everywhere", "cancelled", BOTH, "STOP"),
    Kind("segfault", "segfault", (1,), "RESTART"),
    Kind("segfault_silent", "segfault", (0,), "RESTART"),
    Kind("bus_error", "segfault", (1,), "RESTART"),
    Kind("abort", "abort", (1,), "RESTART"),
    Kind("heap_corruption", "abort", (0,), "RESTART"),
    Kind("quiet_exit", "unknown", (1,), "UNKNOWN"),
    Kind("hang_in_collective", "collective_timeout", (1,), "RESTART"),
    Kind("slow_rank", "collective_timeout", (0,), "RESTART"),
    Kind("deadlock", "hang", (), "RESTART", hang_timeout=15.0),
    Kind("peer_leaves", "network_loss", (1,), "RESTART"),
    Kind("collective_sizes", "shape_mismatch", BOTH, "STOP"),
    Kind("nan_check", "nan", (1,), "RESTART"),
    Kind("nan_anomaly", "nan", (0,), "RESTART"),
    Kind("assertion", "assertion", (1,), "RESTART"),
    Kind("assertion_rich", "assertion", (0,), "RESTART"),
    Kind("value_error", "user_exception", (1,), "RESTART"),
    Kind("key_error", "user_exception", (0,), "RESTART"),
    Kind("index_error_progress_bar", "user_exception", (1,), "RESTART"),
    Kind("recursion", "user_exception", (0,), "RESTART"),
    Kind("unpicklable", "user_exception", BOTH, "RESTART"),
    Kind("loader_exception", "data_error", (1,), "RESTART"),
    Kind("loader_killed", "killed", (0,), "RESTART"),
    Kind("bad_encoding", "data_error", (1,), "RESTART"),
    Kind("bad_json_record", "data_error", (0,), "RESTART"),
    Kind("harmless_errors_then_kill", "killed", (1,), "RESTART"),
    Kind("long_line_then_value_error", "user_exception", (0,), "RESTART"),
    Kind("thread_error_then_type_error", "user_exception", (1,), "RESTART"),
    Kind("import_error_interleaved", "import_error", BOTH, "STOP", True, fault="import_error", launcher=Launcher.TORCHRUN),
    Kind("shape_matmul_interleaved", "shape_mismatch", BOTH, "STOP", True, fault="shape_matmul", launcher=Launcher.TORCHRUN),
    Kind("sigkill_interleaved", "killed", (1,), "RESTART", fault="sigkill", launcher=Launcher.TORCHRUN),
    Kind("value_error_interleaved", "user_exception", (1,), "RESTART", fault="value_error", launcher=Launcher.TORCHRUN),
)  # fmt: skip

LATER_KINDS: tuple[Kind, ...] = (
    Kind("bad_type", "bad_arguments", BOTH, "STOP", user_error=True, arguments=("--steps", "ten")),
    Kind("missing_library", "import_error", BOTH, "STOP", user_error=True),
    Kind("wrong_backend", "bad_config", BOTH, "STOP", user_error=True),
    Kind("nccl_without_gpu", "bad_config", BOTH, "STOP", user_error=True),
    Kind("logged_and_raised", "missing_file", BOTH, "STOP", user_error=True),
    Kind("forbidden_directory", "permission_denied", BOTH, "STOP", user_error=True),
    Kind("attribute_error", "user_exception", BOTH, "RESTART"),
    Kind("disk_full_numpy", "disk_full", (0,), "STOP"),
    Kind("object_store_refused", "network_loss", (1,), "RESTART"),
    Kind("object_store_silent", "network_loss", (0,), "RESTART"),
    Kind("loader_out_of_memory", "host_oom", (1,), "RESTART"),
    Kind("sigquit", "killed", (1,), "RESTART"),
    Kind("store_host_killed", "killed", (0,), "RESTART"),
    Kind("c_assertion", "abort", (1,), "RESTART"),
    Kind("generated_code", "syntax_error", (0,), "STOP"),
    Kind("exception_group", "user_exception", (1,), "RESTART"),
    Kind("nan_in_finally", "nan", (0,), "RESTART"),
    Kind("index_in_embedding", "user_exception", (1,), "RESTART"),
    Kind("skipped_barrier", "collective_timeout", (), "RESTART"),
    Kind("noise_then_assertion", "assertion", (0,), "RESTART"),
    Kind("optional_import_then_kill", "killed", (1,), "RESTART"),
)  # fmt: skip

UNSEEN_KINDS: tuple[Kind, ...] = (
    Kind("command_line_library", "bad_arguments", BOTH, "STOP", user_error=True),
    Kind("relative_import", "import_error", BOTH, "STOP", user_error=True),
    Kind("misspelled_name", "user_exception", BOTH, "RESTART"),
    Kind("optimizer_state", "checkpoint_mismatch", BOTH, "STOP", user_error=True),
    Kind("target_size", "shape_mismatch", BOTH, "STOP", user_error=True),
    Kind("channels", "shape_mismatch", BOTH, "STOP", user_error=True),
    Kind("directory_exists", "user_exception", BOTH, "RESTART"),
    Kind("message_and_exit", "unknown", BOTH, "UNKNOWN"),
    Kind("group_twice", "user_exception", BOTH, "RESTART"),
    Kind("cached_dataset_truncated", "data_error", (0,), "RESTART"),
    Kind("shard_archive_truncated", "data_error", (1,), "RESTART"),
    Kind("shard_not_gzip", "data_error", (0,), "RESTART"),
    Kind("input_output_error", "storage_fault", (1,), "RESTART"),
    Kind("file_name_too_long", "user_exception", (0,), "RESTART"),
    Kind("helper_command_fails", "user_exception", (1,), "RESTART"),
    Kind("array_too_large", "host_oom", (0,), "RESTART"),
    Kind("sigalrm", "killed", (1,), "RESTART"),
    Kind("monitored_barrier", "collective_timeout", (1,), "RESTART"),
    Kind("key_that_nobody_sets", "rendezvous_error", (), "RESTART"),
    Kind("wrong_type", "user_exception", (0,), "RESTART"),
)  # fmt: skip
