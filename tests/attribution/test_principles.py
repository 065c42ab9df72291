"""The principles by which events become a cause and a decision, each alone, in logs as short as
they can be.
"""

import json
from dataclasses import replace

import pytest
from benchmarks.faults.corpus import cases

from aorta.attribution import Action, Attribution, Evidence, LogTail, RankEnd, attribute
from aorta.attribution.policy import SURE
from aorta.attribution.progress import steps_in

HEADER = "Traceback (most recent call last):\n"
OWN = '  File "/srv/train.py", line 7, in main\n    {source}\n'
LOST = (
    HEADER + OWN.format(source="step()") + "RuntimeError: Connection closed by peer [10.0.0.1]:40\n"
)
NO_MODULE = "ModuleNotFoundError: No module named 'fused'"
STEPS = "".join(f"step {number} loss 0.5\n" for number in range(1, 30))


def raised(exception: str, source: str = "main()") -> str:
    return f"{HEADER}{OWN.format(source=source)}{exception}\n"


def found(*texts: str, ends: tuple[RankEnd, ...] | None = None) -> Attribution:
    """Rank r wrote the r-th text; each left with exit code 1 unless told otherwise."""
    exits = tuple(RankEnd(rank, exit_code=1) for rank in range(len(texts)))
    tails = tuple(LogTail(text, rank) for rank, text in enumerate(texts))
    return attribute(Evidence(tails=tails, failures=exits if ends is None else ends))


# ---- more evidence


@pytest.mark.parametrize("known", ["the end of rank 0", "the end of every rank"])
def test_knowing_how_ranks_ended_makes_no_verdict_weaker(known: str) -> None:
    for case in cases()[::8]:
        whole = case.evidence()
        ends = tuple(end for end in whole.failures if known.endswith("every rank") or end.rank == 0)
        less, more = (attribute(replace(whole, failures=known)) for known in ((), ends))
        if more.finding.failure_class == less.finding.failure_class:
            assert more.finding.confidence >= less.finding.confidence, case.name


# ---- one rank is not the program


def test_a_module_that_every_rank_misses_stops_and_one_that_a_single_rank_misses_restarts() -> None:
    assert found(raised(NO_MODULE), raised(NO_MODULE)).decision.action is Action.STOP
    alone = found(LOST, raised(NO_MODULE)).decision
    assert (alone.action, alone.rule) == (Action.RESTART, "some_ranks_only")


def test_a_rank_that_its_launcher_ended_in_the_same_moment_does_not_speak_against_the_others() -> (
    None
):
    ends = (RankEnd(0, signal=15, time=2.1), RankEnd(1, exit_code=1, time=2.0))
    assert found("", raised(NO_MODULE), ends=ends).decision.action is Action.STOP
    for known in (False, True):
        late = RankEnd(0, signal=15, time=9.0, stopped_by_agent=known)
        ends = (late, RankEnd(1, exit_code=1, time=2.0))
        assert found("", raised(NO_MODULE), ends=ends).decision.action is Action.RESTART


def test_a_rank_that_dies_of_a_crash_while_it_is_stopped_died_by_itself() -> None:
    crash = RankEnd(1, signal=11, time=2.2, stopped_by_agent=True)
    assert (
        found(
            "", "", ends=(RankEnd(0, signal=15, time=2.1, stopped_by_agent=True), crash)
        ).finding.root.rank
        == 1
    )


def test_a_file_that_some_ranks_but_not_all_miss_restarts() -> None:
    missing = raised("FileNotFoundError: [Errno 2] No such file or directory: '/cache/index.npy'")
    assert found(LOST, missing, missing).decision.rule == "some_ranks_only"
    assert found(missing, missing, missing).decision.action is Action.STOP


def test_what_rank_0_alone_misses_may_be_its_own_duty_and_stops() -> None:
    missing = raised("FileNotFoundError: [Errno 2] No such file or directory: '/out/eval.json'")
    assert found(missing, LOST).decision.action is Action.STOP


def test_the_word_of_one_rank_alone_does_not_stop_while_the_others_are_unheard() -> None:
    evidence = Evidence(tails=(LogTail(raised(NO_MODULE), 3),))
    assert attribute(evidence).decision.action is Action.RESTART


# ---- only the end counts


USAGE = "usage: tool.py [-h]\ntool.py: error: unrecognized arguments: --fast\n"


def test_a_usage_error_ends_a_rank_only_if_nothing_follows_it() -> None:
    assert found(USAGE).finding.failure_class == "bad_arguments"
    went_on = USAGE + "monitoring is off\nloading data\nbuilding the model\ncompiling\nwarming up\n"
    assert found(went_on).finding.failure_class == "unknown"


def test_nobody_dies_of_a_signal_for_refusing_its_input() -> None:
    killed = (RankEnd(0, signal=9),)
    assert found(USAGE, ends=killed).finding.failure_class == "killed"


def test_the_end_of_an_earlier_job_shown_in_the_log_is_not_the_end_of_this_one() -> None:
    echo = (
        "slurmstepd: error: *** JOB 4 ON n1 CANCELLED AT 2026-11-14T23:59:59 DUE TO TIME LIMIT "
        "***\n"
    )
    assert found(echo).finding.failure_class == "time_limit"
    assert found(echo + raised("ValueError: empty bucket")).decision.action is Action.RESTART


def test_what_the_interpreter_says_it_ignored_ended_nothing() -> None:
    ignored = "Exception ignored in: <function Writer.__del__ at 0x7f>\n"
    text = (
        raised("ValueError: empty bucket")
        + ignored
        + raised("OSError: [Errno 28] No space left on device")
    )
    assert found(text).finding.failure_class == "user_exception"


def test_output_that_was_written_late_does_not_hide_the_only_explanation() -> None:
    result = found(STEPS[:90] + raised("AssertionError: lost bucket") + STEPS[90:])
    assert result.finding.failure_class == "assertion"
    assert result.finding.confidence < SURE


def test_a_rank_that_lost_its_connection_is_named_where_the_other_was_only_ended_after_it() -> None:
    words = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection reset by peer [10.0.0.7]:312"
    tails = (LogTail(STEPS, 0), LogTail(STEPS + raised(words), 1))
    lost = RankEnd(1, exit_code=1, time=10.0)
    for stopped in (
        RankEnd(0, signal=15, time=10.2, stopped_by_agent=True),
        RankEnd(0, signal=15),
    ):
        finding = attribute(Evidence(tails=tails, failures=(lost, stopped))).finding
        assert (finding.failure_class, finding.root.rank) == ("network_loss", 1)
    vanished = attribute(Evidence(tails=tails, failures=(lost,))).finding
    assert vanished.root.rank == 0


def test_an_exception_that_a_job_outlived_and_ended_well_after_is_no_failure() -> None:
    outlived = STEPS[:90] + raised("ValueError: bad sample 7") + STEPS[90:]
    assert found(outlived + "Training finished\n", ends=()).finding.state == "ended_well"
    for failed in (
        found(STEPS + "Training finished\n" + raised("ValueError: bad sample 7"), ends=()),
        found(outlived + "Training finished\n"),  # its exit code is not 0
    ):
        assert failed.finding.state == "failed"


# ---- what a message says, whoever words it


@pytest.mark.parametrize(
    ("exception", "expected"),
    [
        ("acme.StoreError: the folder /data/x was not found", "missing_file"),
        ("acme.EngineError: the saved state has a different number of layers", "checkpoint_mismatch"),
        ("acme.RunError: failed to allocate 3 buffers in accelerator memory", "device_oom"),
        ("acme.FeedError: shard 7 failed to decode", "data_error"),
        ("AssertionError: tokenizer path /m/tok was not found", "missing_file"),
        ("AttributeError: 'Namespace' object is missing the option use_flash", "user_exception"),
        ("acme.RunError: everything went wrong", "user_exception"),
    ],
)  # fmt: skip
def test_what_is_said_of_what_tells_the_class_where_no_row_knows_the_words(
    exception: str, expected: str
) -> None:
    assert found(raised(exception)).finding.failure_class == expected


@pytest.mark.parametrize(
    "exception",
    [
        "acme.CacheError: cached shard /srv/cache/77.bin was not found, evicted by another process",
        "RuntimeError: checkpoint file /ckpt/step_400/state.tmp is missing after rename",
        "acme.SyncError: weights of parameter decoder.0 differ across replicas",
        "acme.InitError: plugin not found on the remote worker yet",
        "RuntimeError: scheduler requires at least one live worker",
        "RuntimeError: gradient shape mismatch between rank 0 and rank 1",
    ],
)
@pytest.mark.parametrize("function", ["main", "__init__", "_check_state"])
def test_what_speaks_of_what_comes_and_goes_never_stops_though_it_looks_like_a_mistake(
    exception: str, function: str
) -> None:
    text = f'{HEADER}  File "/srv/engine.py", line 7, in {function}\n    go()\n{exception}\n'
    assert found(text, ends=()).decision.action is not Action.STOP


def test_what_native_code_wrote_above_an_exception_that_says_nothing_is_a_hint_and_never_stops() -> (
    None
):
    text = "ERROR engine: the driver release 11 is too old for this build\n"
    result = found(text + raised("RuntimeError: could not start"))
    assert result.finding.failure_class == "bad_config"
    assert result.decision.action is Action.RESTART


# ---- whose words they are


def test_hints_and_notes_under_a_message_are_not_the_message() -> None:
    text = raised("ValueError: mixed tokenizers\nhint: or PermissionError: [Errno 13] on /data")
    assert found(text).finding.failure_class == "user_exception"


@pytest.mark.parametrize(
    ("exception", "source", "expected"),
    [
        ("KeyError: 'hidden_size'", 'width = config["hidden_size"]', "bad_config"),
        ("KeyError: 'model'", 'load(checkpoint["model"])', "checkpoint_mismatch"),
        ("KeyError: 'mask'", 'print(batch["mask"])', "user_exception"),
        ("KeyError: 23", 'stage = config["stages"][step]', "user_exception"),
        ("ValueError: invalid literal for int() with base 10: 'x'", 'int(os.environ["N"])', "bad_config"),
        ("json.decoder.JSONDecodeError: Expecting ',' delimiter: line 3 column 1 (char 64)", "config = json.load(file)", "bad_config"),
        ("json.decoder.JSONDecodeError: Expecting ',' delimiter: line 3 column 1 (char 64)", "index = json.load(file)", "data_error"),
        ("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", "config = json.loads(answer)", "data_error"),
    ],
)  # fmt: skip
def test_what_the_failing_line_reads_is_what_is_wrong(
    exception: str, source: str, expected: str
) -> None:
    assert found(raised(exception, source)).finding.failure_class == expected


def test_what_is_raised_while_a_record_is_read_is_the_fault_of_the_record() -> None:
    worker = raised("RuntimeError: Caught RuntimeError in DataLoader worker process 0.")
    original = "Original " + raised(
        "RuntimeError: stack expects each tensor to be equal size, but got [8] at entry 0"
    )
    assert found(worker + original).finding.failure_class == "data_error"


def test_an_exception_of_native_code_is_told_by_its_message() -> None:
    text = (
        "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: "
        "an illegal memory access was encountered\n"
    )
    result = found(text, ends=(RankEnd(0, signal=6),))
    assert result.finding.failure_class == "illegal_access"


# ---- how tracebacks come


def test_a_traceback_folded_into_one_line_is_read() -> None:
    exception = "FileNotFoundError: [Errno 2] No such file or directory: '/data/x'"
    line = json.dumps({"level": "critical", "exc_info": raised(exception)})
    assert found(line + "\n").finding.failure_class == "missing_file"


def test_a_traceback_quoted_by_the_launcher_belongs_to_the_rank_named_above_it() -> None:
    quoted = "".join(f"  {line}\n" for line in raised("ValueError: lost bucket").splitlines()[1:])
    text = (
        "[0]:\n  rank      : 5 (local_rank: 1)\n  exitcode  : 1 (pid: 7)\n  traceback : "
        f"{HEADER}{quoted}"
    )
    finding = attribute(Evidence(tails=(LogTail(text),))).finding
    assert (finding.failure_class, finding.root.rank) == ("user_exception", 5)


def test_a_rank_that_was_spawned_is_named_by_its_parent() -> None:
    text = "-- Process 3 terminated with the following error:\n" + raised("ValueError: lost bucket")
    assert attribute(Evidence(tails=(LogTail(text),))).finding.root.rank == 3


# ---- how sure


def test_mere_words_stop_before_the_first_step_and_not_after_it() -> None:
    words = raised("ValueError: Unknown optimizer: adamww")
    assert found(words, words).decision.action is Action.STOP
    assert found(STEPS + words, STEPS + words).decision.rule == "uncertain"


def test_the_last_words_of_a_guard_name_the_class_and_never_stop() -> None:
    result = found("ERROR loss is nan at step 7, stopping\n")
    assert (result.finding.failure_class, result.decision.action) == ("nan", Action.RESTART)
    refused = found("ERROR No space left on device, aborting\n")
    assert (refused.finding.failure_class, refused.decision.action) == ("disk_full", Action.RESTART)


@pytest.mark.parametrize(("code", "expected"), [(127, "missing_file"), (126, "permission_denied")])
def test_what_a_shell_could_not_start_is_told_by_its_exit_code(code: int, expected: str) -> None:
    ends = tuple(RankEnd(rank, exit_code=code) for rank in range(2))
    assert found("", "", ends=ends).finding.failure_class == expected


def test_of_ranks_that_hang_the_one_that_stands_outside_a_collective_is_the_root() -> None:
    stack = "Current thread 0x00007f (most recent call first):\n"
    waiting = stack + '  File "/x/torch/distributed/distributed_c10d.py", line 32 in all_reduce\n'
    locked = stack + '  File "/srv/train.py", line 9 in take_lock\n'
    ends = tuple(RankEnd(rank, signal=15, hung=True) for rank in range(2))
    result = found(waiting, locked, ends=ends).finding
    assert (result.failure_class, result.root.rank) == ("hang", 1)


@pytest.mark.parametrize("prefix", ["", "terminate called after throwing an instance of "])
def test_how_the_rest_was_ended_does_not_hide_who_never_came(prefix: str) -> None:
    timed_out = (
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88213, OpType=ALLREDUCE, "
        "Timeout(ms)=600000) ran for 600041 milliseconds before timing out."
    )
    lines = [f"[rank{rank}]: step 1200 loss 2.31" for rank in range(4)]
    lines += [f"[rank{rank}]:[E1104 03:12:44] [Rank {rank}] {timed_out}" for rank in (0, 2, 3)]
    lines += [f"{prefix}'c10::DistBackendError'"] if prefix else []
    elastic = "4411 torch/distributed/elastic/multiprocessing/api.py:900]"
    lines.append(f"W1104 03:12:46.000000 {elastic} Sending process 4470 closing signal SIGTERM")
    lines.append(f"E1104 03:12:47.000000 {elastic} failed (exitcode: -6) local_rank: 0 (pid: 4469)")
    text = "\n".join(lines) + "\n"
    result = attribute(Evidence(tails=(LogTail(text),))).finding
    assert (result.failure_class, result.root.rank) == ("collective_timeout", 1)


def test_stacks_and_the_variables_drawn_in_them_tell_of_no_steps() -> None:
    drawn = "".join(f"    │  └ Job(rank=0, step={number})\n" for number in range(9))
    frames = "".join(f'  File "/srv/a.py", line {number}, in f\n' for number in range(9))
    assert steps_in(drawn + frames) == []


@pytest.mark.parametrize(
    ("source", "exception", "action"),
    [
        ("assert args.heads * args.head_dim == args.hidden", "AssertionError", "STOP"),
        ("assert cfg.warmup < cfg.steps, 'warm-up'", "AssertionError: warm-up", "STOP"),
        ("model = MODELS[args.model](cfg)", "KeyError: 'resnet51'", "STOP"),
        ("lr = config['optimizer']['lr']", "KeyError: 'lr'", "STOP"),
        # A node may be missing, a record may be odd, a step may have gone wrong.
        ("assert args.batch % args.num_gpus == 0", "AssertionError", "RESTART"),
        ("assert cfg.ranks == 4, 'ranks'", "AssertionError: 3 ranks came", "RESTART"),
        ("assert len(batch) == args.batch_size", "AssertionError", "RESTART"),
        ("assert loss < cfg.max_loss", "AssertionError", "RESTART"),
        ("x = batch[args.label]", "KeyError: 'label'", "RESTART"),
    ],
)
def test_options_that_contradict_each_other_stop_a_job_and_what_the_machine_gave_does_not(
    source: str, exception: str, action: str
) -> None:
    log = raised(exception, source)
    assert found(*[log] * 4).decision.action == action
    assert found(*[STEPS + log] * 4).decision.action == "RESTART"


def test_the_exception_is_quoted_and_not_the_line_that_raised_it() -> None:
    log = raised(
        "ValueError: activation overflow in unit 10",
        'raise ValueError(f"activation overflow in unit {x}")',
    )
    assert "overflow in unit 10" in found(log).finding.summary


@pytest.mark.parametrize("name", ["crash", "stuck", "fail"])
def test_the_name_of_a_script_says_nothing_of_its_failure(name: str) -> None:
    text = raised("RuntimeError: bad sample 17").replace("train.py", f"{name}.py")
    assert found(text).finding.summary == "rank 0: user_exception: RuntimeError: bad sample 17"


@pytest.mark.parametrize("words", ["", "terminate called without an active exception\n"])
def test_an_exception_after_which_native_threads_abort_is_what_failed(words: str) -> None:
    """As gloo's and NCCL's do, where an interpreter ends under them."""
    dies = STEPS + raised("ValueError: bad sample 17") + words
    ends = (RankEnd(0, signal=15), RankEnd(1, signal=6))
    finding = found(STEPS + LOST, dies, ends=ends).finding
    assert finding.summary == "rank 1: user_exception: ValueError: bad sample 17"
