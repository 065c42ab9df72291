"""What stands before, behind or between the lines of a failure does not change what it is."""

import pytest
from benchmarks.faults.corpus import CORPUS, Case, cases
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.attribution import Action, Evidence, LogTail, attribute

pytestmark = pytest.mark.xdist_group("corpus")
# What other jobs write while they are well, or only warn of.
CHATTER = [
    "2026-11-15 05:35:21,123 INFO trainer: warming up the cache",
    "WARNING:absl:a deprecated flag is set; it will be ignored",
    "/opt/lib/python3.11/site-packages/torch/nn/init.py:412: UserWarning: initializing zero-element tensors is a no-op",
    "W1115 05:35:21.1 812 loader.cc:33] retrying the read of shard 7",
    "NCCL INFO Channel 00/02 : 0 1 2 3",
    "loading the tokenizer",
]
# Jobs whose only log is that of one rank: what others wrote says nothing about them.
ALONE = [case for case in cases() if len(list(case.path.glob("*.log"))) == 1]


def text_of(case: Case) -> str:
    return next(case.path.glob("*.log")).read_text(errors="replace")


def found(text: str, case: Case) -> tuple[str, bool]:
    result = attribute(Evidence(tails=(LogTail(text, name="job.log"),)))
    return result.finding.failure_class, result.decision.action is Action.STOP


@settings(max_examples=40)
@given(st.sampled_from(ALONE), st.lists(st.sampled_from(CHATTER), min_size=1, max_size=60))
def test_lines_of_healthy_jobs_before_a_failure_change_nothing(
    case: Case, chatter: list[str]
) -> None:
    text = text_of(case)
    padded = "\n".join(chatter) + "\n" + text
    kind, stops = found(text, case)
    padded_kind, padded_stops = found(padded, case)
    assert padded_kind == kind, case.name
    assert padded_stops == stops, case.name


@settings(max_examples=40)
@given(st.sampled_from(ALONE), st.lists(st.sampled_from(CHATTER[:5]), min_size=1, max_size=3))
def test_a_few_lines_of_other_writers_behind_it_change_no_class_that_a_pattern_is_certain_of(
    case: Case, chatter: list[str]
) -> None:
    text = text_of(case)
    before = attribute(Evidence(tails=(LogTail(text, name="job.log"),)))
    if before.finding.basis == "certain":
        kind, stops = found(text + "\n".join(chatter) + "\n", case)
        assert kind == before.finding.failure_class, case.name
        assert before.decision.action is Action.STOP or not stops, case.name


def test_there_are_enough_such_jobs() -> None:
    assert CORPUS.is_dir()
    assert len(ALONE) >= 20


TRACE = 'Traceback (most recent call last):\n  File "/srv/train.py", line 9, in main\n    run()\n'
QUOTA = 'IoError(Os { code: 122, kind: QuotaExceeded, message: "Disk quota exceeded" })'
LOADER = f"{TRACE}RuntimeError: DataLoader worker (pid 42) is killed by signal: Killed. \n"
OOM = "slurmstepd: error: Detected 1 oom_kill event in StepId=5.0. Some of the step tasks have been OOM Killed.\n"
ACTOR = "(RayTrainWorker pid=77, ip=10.0.0.7) "
RAY = f"{ACTOR}Traceback (most recent call last):\n{ACTOR}ImportError: cannot import name 'X' from 'y'\n"
DRIVER = f"{TRACE}ray.train.base_trainer.TrainingFailedError: The Ray Train run failed. Please inspect the previous error messages for a cause.\n"
WARNED = "2026-11-15 05:35:21.1: W tensorflow/core/framework/op_kernel.cc:1828] OP_REQUIRES failed at whole_file_read_ops.cc:116 : NOT_FOUND: /data/a.jpg; No such file or directory\n"
NO_IMAGE = f"{TRACE}tensorflow.python.framework.errors_impl.NotFoundError: /data/a.jpg; No such file or directory\n"
SIGNAL = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 42 got signal"
USAGE = "usage: train.py [-h] [--rank RANK]\ntrain.py: error: unrecognized arguments: --rnak=16\n"
STARTER = (
    TRACE
    + TRACE[35:].replace("/train", "/launch") * 3
    + "subprocess.CalledProcessError: Command '['python', 'train.py', '--rnak=16']' returned non-zero exit status 2.\n"
)
STEPS = "".join(f"step {n} | loss 0.{n}\n" for n in range(10, 50))


@pytest.mark.parametrize(
    ("log", "failure_class"),
    [
        (
            f"{TRACE}safetensors_rust.SafetensorError: Error while serializing: {QUOTA}\n",
            "disk_full",
        ),
        (
            f"{TRACE}RuntimeError: DataLoader worker (pid 42) is killed by signal: Hangup. \n",
            "killed",
        ),
        (LOADER + OOM, "host_oom"),
        (STEPS + LOADER + OOM, "host_oom"),
        (f"{STEPS}{TRACE}{SIGNAL}: 2\n", "cancelled"),
        (f"{STEPS}{TRACE}{SIGNAL}: 15\n", "killed"),
        (USAGE, "bad_arguments"),
        (USAGE + STARTER, "bad_arguments"),
        (RAY, "import_error"),
        (RAY + DRIVER, "import_error"),
        (NO_IMAGE, "missing_file"),
        (WARNED * 4 + NO_IMAGE, "missing_file"),
    ],
)
def test_the_innermost_message_says_what_failed_not_its_wrapper(
    log: str, failure_class: str
) -> None:
    assert attribute(Evidence(tails=(LogTail(log),))).finding.failure_class == failure_class


def test_a_rank_that_never_reported_is_named_where_the_log_tells_how_many_there_are() -> None:
    timed_out = "[rank{0}]:[E1117 03:12:44.1 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=10, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
    text = "initialized, world_size=4\n" + "".join(timed_out.format(rank) for rank in (0, 1, 3))
    assert attribute(Evidence(tails=(LogTail(text),))).finding.root.rank == 2


UNHEALTHY = "E0312 12:04:00.1 321 service.cc:820] /job:jax_worker/replica:0/task:2 has been set to ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:2 heartbeat timeout.\n"
TERMINATING = "F0312 12:04:00.2 322 client.h:80] Terminating process because the JAX distributed service detected fatal errors. This most likely indicates that another task died.\n"
PORT = "cn03:1201:1330 [2] NCCL WARN NET/IB: Got async event : port error\n"
TABLE = "[0]:\n  time      : 2026-03-11_09:14:31\n  host      : cn03\n  rank      : 5 (local_rank: 1)\n  exitcode  : -6 (pid: 1201)\n"


@pytest.mark.parametrize(
    ("log", "rank"),
    [(UNHEALTHY + TERMINATING, 2), (PORT + TABLE, 5)],
    ids=["who_was_blamed_above", "who_ran_on_that_node"],
)
def test_the_rank_that_another_line_tells_of_is_named(log: str, rank: int) -> None:
    assert attribute(Evidence(tails=(LogTail(STEPS + log),))).finding.root.rank == rank


def test_words_that_name_a_class_are_shown() -> None:
    text = STEPS + "Received Signals.SIGHUP death signal, shutting down workers\n"
    finding = attribute(Evidence(tails=(LogTail(text),))).finding
    assert finding.failure_class == "killed"
    assert "SIGHUP" in finding.summary


def test_steps_are_those_of_the_job_and_not_of_its_micro_batches() -> None:
    rows = (
        f"[2026-03-11 10:05:{n:02d},312] [INFO] [timer.py:264:stop] epoch=0/micro_step={n * 80}"
        f"/global_step={n * 10}, RunningAvgSamplesPerSec=14.2, MemAllocated=31.2GB\n"
        for n in range(1, 40)
    )
    finding = attribute(Evidence(tails=(LogTail("".join(rows) + NO_IMAGE),))).finding
    assert finding.last_step == 390


@pytest.mark.parametrize(
    ("last", "said"),
    [("Training completed after 3:20:11\n", "ended well"), ("", "still be running")],
)
def test_a_job_that_ended_well_or_still_runs_is_said_to(last: str, said: str) -> None:
    result = attribute(Evidence(tails=(LogTail(STEPS + last),)))
    assert said in result.finding.summary
    assert result.decision.action is Action.UNKNOWN


BANNER = "Loaded module: python3/3.11\nLoaded module: cuda/12.4\ngpu id (to use): 0,1\n"
BROKEN = f"{TRACE}ModuleNotFoundError: No module named 'einops'\n"
CANCELLED = "slurmstepd: error: *** JOB 42 ON n7 CANCELLED AT 2026-01-06T04:52:18 ***\n"
BUILDING = "".join(f"building {name}\n" for name in "abcdefghijklm")
LONG = "".join(f"step {n} | loss 0.{n} | {'=' * 80}\n" for n in range(1, 1500))


@pytest.mark.parametrize(
    ("log", "failure_class"),
    [
        (BANNER + BROKEN, "import_error"),
        (BANNER + BROKEN + BANNER + BUILDING, "unknown"),
        (BANNER + BROKEN + BANNER + BUILDING + CANCELLED, "cancelled"),
        (BANNER + CANCELLED + BANNER + BUILDING + BROKEN, "import_error"),
        # A clean-up that shows the machine once more, and ranks that say the same, are no new run.
        (BANNER + BROKEN + BANNER, "import_error"),
        (BANNER + BANNER + BROKEN + BANNER + BUILDING, "import_error"),
        # Long healthy work after it, though the moment after shows none.
        (BROKEN + "compiling\n" * 9000 + LONG + CANCELLED, "cancelled"),
        (BROKEN + "{'loss': 0.5, 'grad_norm': 1.1, 'epoch': 0.1}\n" * 40, "unknown"),
    ],
    ids=["one", "running", "cancelled", "broken", "clean_up", "ranks", "far_above", "uncounted"],
)
def test_the_last_run_of_a_log_says_why_it_ended(log: str, failure_class: str) -> None:
    assert attribute(Evidence(tails=(LogTail(log),))).finding.failure_class == failure_class


@pytest.mark.parametrize("lines", [0, 2000])
def test_the_exit_of_some_process_above_an_exception_is_not_its_cause(lines: int) -> None:
    installer = "  git version did not run successfully.\n  │ exit code: -4\n"
    text = installer + "answering\n" * lines + f"{TRACE}TypeError: f() missing 1 argument: 'x'\n"
    assert attribute(Evidence(tails=(LogTail(text),))).finding.failure_class == "user_exception"
