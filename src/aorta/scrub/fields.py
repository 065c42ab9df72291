"""What each field of our own documents is: a name that we gave, which is kept, or text, which is searched.

A field means the same in every document of ours, so one table by name serves all schemas. What is not in it is searched.
"""

from aorta.scrub.secrets.vocabulary import words

NAMES = words(
    "schema schema_version aorta_version status state verb version outcome outcomes verdict purpose kind type class action "
    "rule decided_by fingerprint env_fingerprint package commit name axis workload environment mitigations "
    "mitigations_applied baseline_cell cell call confound correction test step_time_source trial_id exit_status platform "
    "stream op dtype module verified_on stopped_by created started ended date captured_at run_timestamp git_version "
    "python_version pytorch_version toolkit_version kernel_release kernel_version libc driver_version source_package"
)
"""Kept where they hold a text or a list of texts."""

KEPT_TREES = words(
    "oracle gate packages versions histories commits rates metric metrics cpu cuda rocm devices gpus significance good bad "
    "last_good first_bad tally interval cascade initial final floor choices"
)
"""Kept with everything below: culprits, versions, metrics, oracles and values of axes can never change."""

SEARCHED_TREES = words(
    "reproduce env_vars resolved_env_vars extra_env variables config workload_config command failure_details evidence "
    "failure_hints containers"
)
"""Whatever their fields are called, somebody else wrote what is in them."""

PATHS = words("file path cwd run_dir output_dir directory error_file log_paths remote url build")
"""Searched wherever they stand: what is kept around them does not say where somebody's files are."""
