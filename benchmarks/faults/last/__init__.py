"""A fifth set of kinds, written after the rules had been generalised from the fourth; and what they
are.
"""

from functools import partial

from benchmarks.faults.kinds import BOTH, Kind, Launcher

_kind = partial(Kind, job="benchmarks.faults.newest.job")

KINDS = (
    _kind("path_through_a_file", "missing_file", BOTH, "STOP", True),
    _kind("extension_symbol", "import_error", BOTH, "STOP", True, launcher=Launcher.TORCHRUN),
    _kind("version_too_old", "import_error", BOTH, "STOP", True, launcher=Launcher.AORTA),
    _kind("literal_choice", "bad_config", BOTH, "STOP", True),
    _kind("ini_option", "bad_config", BOTH, "STOP", True, launcher=Launcher.TORCHRUN),
    _kind("norm_of_images", "shape_mismatch", BOTH, "STOP", True),
    _kind("vertical_stack", "shape_mismatch", BOTH, "STOP", True, launcher=Launcher.AORTA),
    _kind("another_width", "checkpoint_mismatch", BOTH, "STOP", True),
    _kind("somebody_elses_file", "permission_denied", BOTH, "STOP", True, launcher=Launcher.AORTA),
    _kind("needs_eight_ranks", "assertion", BOTH, "RESTART"),
    _kind("odd_character", "syntax_error", (0,), "STOP", True, ranks=1),
    _kind("not_a_float", "bad_arguments", BOTH, "STOP", True),
    _kind("lock_removed_twice", "missing_file", (1,), "RESTART"),
    _kind("curriculum_lookup", "user_exception", (1,), "RESTART"),
    _kind("hub_unreachable", "network_loss", BOTH, "RESTART"),
    _kind("settings_service_down", "data_error", BOTH, "RESTART"),
    _kind("index_not_visible_yet", "missing_file", (1, 2), "RESTART", ranks=3),
    _kind("optional_module_then_crash", "segfault", (0,), "RESTART"),
    _kind("tasks_nobody_awaits", "killed", (1,), "RESTART"),
    _kind("native_throw", "abort", (1,), "RESTART"),
    _kind("worker_killed", "killed", (1,), "RESTART", launcher=Launcher.TORCHRUN),
    _kind("first_of_four_crashes", "segfault", (0,), "RESTART", ranks=4, launcher=Launcher.AORTA),
    _kind("long_save", "collective_timeout", (0,), "RESTART", ranks=3, arguments=("--quiet",)),
    _kind("noise_of_destructors", "user_exception", (1,), "RESTART"),
)  # fmt: skip
