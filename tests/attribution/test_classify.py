"""The classifier: its file is what the fit gives, what it states was measured, and what it says of
messages that no pattern knows.
"""

import json
from collections.abc import Mapping

import pytest
from benchmarks import attribution_model
from benchmarks.attribution_model import group_of, of_class, of_user_error, verdict

from aorta.attribution import Evidence, LogTail, attribute

LOOKS = json.loads(attribution_model.LOOKS.read_text())
MODEL = attribution_model.MODEL.read_text()
FRAMES = (
    'Traceback (most recent call last):\n  File "/srv/train.py", line 9, in main\n    run()\n'
    '  File "/opt/site-packages/acme/core.py", line 3, in start\n    raise error\n'
)


def told(log: str) -> tuple[str, str, str]:
    result = attribute(Evidence(tails=(LogTail(log),)))
    return result.finding.failure_class, result.decision.action, result.finding.basis


def of_group(group: str) -> list[Mapping[str, object]]:
    return [row for row in LOOKS if group_of(row) == group]


def test_the_file_is_small_and_states_the_calibration_that_was_measured() -> None:
    assert len(MODEL.encode()) <= 300_000
    stated = [float(number) for number in MODEL.splitlines()[1].split()]
    measured = [of_class(LOOKS), of_user_error(LOOKS)]
    assert stated == pytest.approx(
        [value for each in measured for value in (each.slope, each.offset)], abs=0.001
    )


@pytest.mark.parametrize(
    ("group", "right", "stopped"),
    [("field", 0.82, 0), ("reports", 0.64, 335), ("collectors", 0.61, 335)],
)
def test_what_was_held_back_is_read_as_well_as_is_said(
    group: str, right: float, stopped: int
) -> None:
    rows, user_error = of_group(group), of_user_error(LOOKS)
    said = [(row, *verdict(row, user_error)) for row in rows]
    assert sum(row["truth"] == named for row, named, _ in said) >= right * len(rows)
    assert sum(row["met_again"] is True and do == "STOP" for row, _, do in said) >= stopped
    by_words = [row for row, _, do in said if do == "STOP" and not row["pattern"]]
    assert not [row["job"] for row in by_words if row["met_again"] is False]


def test_in_every_band_it_was_right_about_as_often_as_it_states() -> None:
    stated = of_class(LOOKS)
    bands: dict[int, list[tuple[float, bool]]] = {}
    for row in of_group("collectors"):
        if attribution_model.is_read(row):
            share = stated(float(str(row["share"])))
            bands.setdefault(int(share * 5), []).append((share, row["class"] == row["truth"]))
    for pairs in bands.values():
        if len(pairs) >= 50:
            says, right = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
            assert abs(says - right) < 0.1


def test_no_repository_is_on_both_sides_of_a_fold() -> None:
    folds: dict[str, set[str]] = {}
    for example in attribution_model.reports():
        folds.setdefault(example.repository, set()).add(example.fold)
    assert all(len(found) == 1 for found in folds.values())


def test_a_message_that_no_pattern_knows_is_named_by_its_words() -> None:
    said = "acme.PlannerError: tensor parallel degree 6 does not go with 32 attention heads"
    assert told(f"{FRAMES}{said}\n") == ("bad_config", "RESTART", "words")


HANGUP = """\
WARNING:torch.distributed.elastic.agent.server.api:Received 1 death signal, shutting down workers
WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 41 closing signal SIGHUP
Traceback (most recent call last):
  File "/opt/run.py", line 8, in run
"""
INDENTED = """\
    evaluating
    free(): double free detected in tcache 2
    Aborted (core dumped)
"""
FORBIDDEN = """\
Unsuccessful TensorSliceReader constructor: Failed to get matching files: Error executing an HTTP request: HTTP response code 403 with body '{
 "error": {
  "code": 403,
  "message": "the account does not have storage.objects.list access to the bucket."
 }
}
'
\t when reading gs://bucket/output
"""


@pytest.mark.parametrize(
    ("log", "failure_class"),
    [(INDENTED, "abort"), (HANGUP, "killed"), (FORBIDDEN, "permission_denied")],
    ids=["indented", "logged", "with brackets behind it"],
)
def test_what_no_pattern_reads_is_named_by_its_last_lines_however_they_are_indented_or_logged(
    log: str, failure_class: str
) -> None:
    named, action, _ = told(log)
    assert (named, action) == (failure_class, "RESTART")


def test_words_stop_a_job_for_what_ended_it_and_never_for_what_it_only_logged() -> None:
    refused = (
        f"{FRAMES}ValueError: Target modules {{'q'}} not found in the base model. Please "
        "check the target modules and try again.\n"
    )
    logged = f"2026-11-15 05:35:21,123 ERROR trainer.py:9 - not adapted\n{refused}"
    assert told(refused)[:2] == ("bad_config", "STOP")
    assert told(logged)[:2] == ("bad_config", "RESTART")


def test_words_never_stop_a_job_for_what_another_node_may_not_show() -> None:
    refused = (
        "acme.StartError: no visible GPU device, set the number of devices in the configuration"
    )
    assert told(f"{FRAMES}{refused}\n")[:2] == ("bad_config", "RESTART")


def test_a_job_that_says_nothing_of_a_failure_stays_unknown() -> None:
    steps = "".join(f"step {n} loss 0.5 tokens/s 1200\n" for n in range(40))
    assert told(steps)[:2] == ("unknown", "UNKNOWN")


@pytest.mark.parametrize(
    ("line", "kind", "action"),
    [
        ("total += int(row)", "data_error", "RESTART"),
        ('steps = int(config["steps"])', "bad_config", "STOP"),
        ('world = int(os.environ["WORLD_SIZE"])', "bad_config", "STOP"),
    ],
)
def test_a_value_that_does_not_parse_is_of_the_data_unless_a_setting_is_read(
    line: str, kind: str, action: str
) -> None:
    log = (
        f'Traceback (most recent call last):\n  File "/srv/train.py", line 9, in main\n    {line}\n'
        "ValueError: invalid literal for int() with base 10: 'x7'\n"
    )
    assert told(log)[:2] == (kind, action)


# As libraries and programs word them, and what raises them.
ORDINARY_ASSERTIONS = [
    ("main", "x must be larger than 5"),
    ("check_range", "x must be larger than 5"),
    ("get_batch", "value should be between 0 and 1"),
    ("multi_head_attention", "embed_dim must be divisible by num_heads"),
    ("is_alive", "can only test a child process"),
    ("start", "daemonic processes are not allowed to have children"),
    ("get_data_parallel_group", "data parallel group is not initialized"),
    (
        "_root_pre_forward",
        (
            "Non-root FSDP instance's `_is_root` should not have been set yet or should have been set "
            "to `False`"
        ),
    ),
    (
        "_assert_in_training_states",
        (
            "expected to be in states [<TrainingState.FORWARD_BACKWARD: 2>] but current state is "
            "TrainingState.IDLE"
        ),
    ),
    (
        "no_sync",
        "no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 3",
    ),
    ("get_hp_fragment_mapping", "fragment start 8 should be < fragment_end 8"),
    ("assert_close", "Tensor-likes are not close!"),
    ("assert_array_compare", "Arrays are not almost equal to 7 decimals"),
    ("set", "Contents must have the same length as the original file."),
    ("step", "5 (<class 'int'>) invalid"),
    ("forward", "Cannot forward sequence of length 2048, block size is only 1024"),
    ("make_fallback", "both a fallback and a decomp for same op: aten.addmm"),
    ("call_function", "Mutating module attribute step during export."),
    (
        "hook",
        (
            "Gradients were computed more than backward_passes_per_step times before call to step(). "
            "Increase backward_passes_per_step to accumulate gradients locally."
        ),
    ),
    ("__await__", "yield from wasn't used with future"),
    ("_assert", "Input height (256) doesn't match model (224)."),
    ("merge", "Caught a duplicate key: tokenizer"),
    ("get_slot", "Cannot find a free slot"),
    ("_check_node", "unsupported node type"),
    ("add", "queue must be empty before close"),
]
NAMED_BY_ASSERTIONS = [
    ("_lazy_init", "Torch not compiled with CUDA enabled", "bad_config"),
    ("validate_args", "number of layers should be divisible by tensor-parallel-size", "bad_config"),
    ("multi_head_attention", "was expecting embedding dimension of 512, but got 256",
     "shape_mismatch"),
    ("check_checkpoint_args", ("num_layers value from checkpoint (24) is not equal to the input "
     "argument value (12)."), "checkpoint_mismatch"),
    ("check_for_nan_in_grad", ("found NaN in local grad norm in backward pass before data-parallel "
     "communication collective. Device: 3, node: n1"), "nan"),
    ("__init__", "dataset path does not exist: /data/x", "missing_file"),
]  # fmt: skip


def asserted(function: str, message: str) -> str:
    return (
        'Traceback (most recent call last):\n  File "/srv/train.py", line 9, in main\n    run()\n'
        f'  File "/opt/site-packages/acme/core.py", line 3, in {function}\n    check(x)\n'
        f"AssertionError: {message}\n"
    )


@pytest.mark.parametrize(("function", "message"), ORDINARY_ASSERTIONS)
def test_what_an_assertion_says_in_whatever_words_is_restarted_once(
    function: str, message: str
) -> None:
    assert told(asserted(function, message))[:2] == ("assertion", "RESTART")


@pytest.mark.parametrize(("function", "message", "failure_class"), NAMED_BY_ASSERTIONS)
def test_an_assertion_that_names_a_file_a_setting_a_device_or_numbers_is_that(
    function: str, message: str, failure_class: str
) -> None:
    assert told(asserted(function, message))[0] == failure_class
