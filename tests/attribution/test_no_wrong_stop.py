"""Jobs that a restart heals, or that are well, are not stopped: what the log of one cycle alone
cannot show.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.faults.corpus import CORPUS, cases

from aorta.attribution import Action, Evidence, LogSource, LogTail, RankEnd, attribute
from support.aorta_cli import aorta
from support.attribution_service import running_service

TRAINED = "".join(f"step {n} | loss 2.{n:02d} | 812 tok/s\n" for n in range(49_990, 50_000))
LOST_GPU = (
    "Oct 21 16:24:43 trn05 kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=9, GPU has fallen off the "
    "bus.\n"
)
NO_MODULE = (
    'Traceback (most recent call last):\n  File "/srv/pretrain.py", line 3, in <module>\n'
    "    import apex\nModuleNotFoundError: No module named 'apex'\n"
)


def raised(*message: str) -> str:
    head = 'Traceback (most recent call last):\n  File "/srv/pretrain.py", line 88, in <module>\n'
    return head + "    main()\n" + "\n".join(message) + "\n"


HEALED = {
    "late_mount": raised(
        "FileNotFoundError: [Errno 2] No such file or directory: '/mnt/corpus/train.bin'"
    ),
    "mount_of_root": raised("PermissionError: [Errno 13] Permission denied: '/mnt/corpus/x.idx'"),
    "image_without_cuda": raised(
        "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory"
    ),
    "process_left_over": raised(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 GiB. GPU 0 has a total "
        "capacity of 79.11 GiB of which 1.2 GiB is free. Process 4242 has 77.00 GiB memory in use."
    ),
    "fewer_nodes": raised("AssertionError: world size (504) is not divisible by 512"),
    "hostfile": raised("ValueError: num_nodes is 64 but the hostfile lists 63"),
}


@pytest.mark.parametrize("story", HEALED)
def test_what_shows_at_start_up_after_a_cycle_that_trained_is_restarted(
    story: str, tmp_path: Path
) -> None:
    first, second = tmp_path / "cycle_0", tmp_path / "cycle_1"
    for cycle in (first, second):
        cycle.mkdir()
        (cycle / "cycle_info.json").write_text(
            json.dumps({"ranks": [{"rank": rank, "exit_code": 1} for rank in (0, 1)]})
        )
    for rank in (0, 1):
        (first / f"rank_{rank}.err").write_text(TRAINED + LOST_GPU)
        (second / f"rank_{rank}.err").write_text(HEALED[story])
    done = aorta("attribute", "--json", "--history", tmp_path, second)
    assert done.json()["decision"]["action"] != "STOP", done.stdout


@pytest.mark.parametrize(
    ("holders", "action"),
    [
        (
            "Process 4242 has 77.00 GiB memory in use. Of the allocated memory 100.00 MiB is",
            "RESTART",
        ),
        # In a container one's own process is shown by its number outside.
        ("Process 4242 has 77.00 GiB memory in use. Of the allocated memory 76.10 GiB is", "STOP"),
        ("this process has 77.00 GiB memory in use. Of the allocated memory 76.10 GiB is", "STOP"),
    ],
)
def test_memory_that_another_process_holds_at_start_up_may_be_free_at_the_next(
    holders: str, action: str
) -> None:
    text = raised(
        '  File "/srv/pretrain.py", line 60, in build_model',
        "    model.cuda()",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
        f"capacity of 79.11 GiB of which 1.2 GiB is free. {holders} allocated by PyTorch.",
    )
    result = attribute(Evidence(tails=(LogTail(text, 0),), failures=(RankEnd(0, 1),)))
    assert result.finding.failure_class == "device_oom"
    assert result.decision.action == action


NCCL = (
    "[rank1]:[E1117 03:12:44.1 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=10, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
    "Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
)


def test_the_service_stops_nobody_for_silence_and_knows_lifetimes_and_heartbeats(
    tmp_path: Path,
) -> None:
    told: dict[str, dict[str, Any]] = {
        "silent": {},
        "days": {"lived_sec": 200_000.0},
        "between": {"started": 1_790_000_000.0, "ended": 1_790_200_000.0},
        "moving": {"lived_sec": 9.0, "heartbeat_step": 100},
        "stuck": {"lived_sec": 9.0},
        "same_step": {"lived_sec": 9.0, "heartbeat_step": 7},
    }
    rules: dict[str, list[str]] = {job: [] for job in told}
    with running_service(CORPUS, tmp_path / "s.sqlite") as service, service.client() as client:
        for job, known in told.items():
            for cycle in range(3):
                more = {"heartbeat_step": 100 + cycle} if job == "moving" else {}
                body = {"job_id": job, "cycle_id": f"{job}:{cycle}", "agent": "a", **known, **more}
                body["tails"] = [{"rank": 1, "text": NCCL}]
                assert client.post("/v1/cycles", json=body).status_code == 202
                where = f"/v1/cycles/{job}/{job}:{cycle}/decision"
                answer = client.get(where, params={"wait": 60}).json()
                rules[job].append(answer["decision"]["rule"])
    for job, found in rules.items():
        assert ("no_progress" in found) == (job in {"stuck", "same_step"}), rules


def test_no_job_stops_at_its_first_failure_at_a_lower_confidence_than_is_shown() -> None:
    for case in cases():
        result = attribute(case.evidence())
        if result.decision.action is Action.STOP:
            assert result.finding.confidence >= 0.8, case.name


ILLEGAL = "ERROR RuntimeError: CUDA error: an illegal memory access was encountered\n"
OUT_OF_MEMORY = "ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("2026-12-31 23:59:50,112", "2027-01-01 00:00:03,401"),
        ("Dec 31 23:59:50", "Jan  1 00:00:03"),
        ("2026-12-31 23:59:50,112", "Jan  1 00:00:03"),
    ],
)
def test_what_failed_before_new_year_failed_first(old: str, new: str) -> None:
    tails = (LogTail(f"{new} {ILLEGAL}", 0), LogTail(f"{old} {OUT_OF_MEMORY}", 1))
    finding = attribute(Evidence(tails=tails)).finding
    assert (finding.failure_class, finding.root.rank) == ("device_oom", 1)


def test_a_packed_log_needs_no_room_on_any_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "rank_0.err.gz"
    with gzip.open(packed, "wb", compresslevel=1) as file:
        for _ in range(80):
            file.write(b"\0" * (1 << 20) + b"\n")
        file.write(NO_MODULE.encode())
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(name, "/proc/nowhere")
    monkeypatch.chdir("/proc")
    found = attribute(Evidence(logs=(LogSource(packed, 0),))).finding
    assert (found.failure_class, found.evidence[0].line) == ("import_error", 84)


def test_a_log_that_cannot_be_read_on_is_read_so_far(tmp_path: Path) -> None:
    unreadable = Path("/proc/self/mem")  # opens, and fails at its first byte
    log = tmp_path / "rank_1.err"
    log.write_text(NO_MODULE)
    found = attribute(Evidence(logs=(LogSource(unreadable, 0), LogSource(log, 1)))).finding
    assert found.failure_class == "import_error"


# ---- one broken node, ranks that share a log


def stopped(rank: int, node: str) -> RankEnd:
    return RankEnd(rank, signal=15, time=100.2, node=node, agent=node, stopped_by_agent=True)


@pytest.mark.parametrize("written", ["", "loading\n"])
def test_a_rank_of_another_node_that_was_stopped_before_it_could_fail_says_nothing(
    written: str,
) -> None:
    tails = (LogTail(written, 0), LogTail(NO_MODULE, 1))
    ends = (stopped(0, "n0"), RankEnd(1, exit_code=1, time=100.0, node="n1", agent="n1"))
    assert attribute(Evidence(tails=tails, failures=ends)).decision.action is Action.RESTART
    beside = (stopped(0, "n1"), ends[1])
    assert attribute(Evidence(tails=tails, failures=beside)).decision.action is Action.STOP


@pytest.mark.parametrize("label", ["{}: ", "[rank{}]: ", ""])
def test_one_rule_for_ranks_that_share_a_log_and_for_one_log_each(label: str) -> None:
    trained = [f"iteration {n} | loss 1.{n}" for n in range(1, 21)]
    written = {0: trained, 1: trained, 2: trained, 3: NO_MODULE.splitlines()}
    tails: tuple[LogTail, ...]
    if label:
        lines = [f"{label.format(rank)}{line}\n" for rank in written for line in written[rank]]
        tails = (LogTail("".join(lines)),)
    else:
        tails = tuple(LogTail("\n".join(own) + "\n", rank) for rank, own in written.items())
    decision = attribute(Evidence(tails=tails)).decision
    assert (decision.action, decision.rule) == (Action.RESTART, "some_ranks_only")


# ---- what is a step


@pytest.mark.parametrize(
    "line",
    [
        "lr decay steps 1000",
        "job 4188127 registered",
        "time 1794749885",
        "[2026-11-17 03:00:00,1] [INFO] [logging.py:96:log_dist] step=0, skipped=0, lr=[0.1]",
    ],
)
def test_a_number_that_does_not_grow_is_no_step(line: str) -> None:
    finding = attribute(Evidence(tails=(LogTail(f"{line}\n{raised('RuntimeError: x')}"),))).finding
    assert (finding.last_step, finding.made_steps) == (None, False)


@pytest.mark.parametrize("line", ["alive, time {}", "job {} registered", "worker pid {} polled"])
def test_times_and_names_that_grow_are_no_steps(line: str) -> None:
    text = "".join(line.format(1_794_749_885 + n) + "\n" for n in range(20))
    assert (
        attribute(Evidence(tails=(LogTail(text + raised("RuntimeError: x")),))).finding.last_step
        is None
    )


def test_checkpoints_that_are_saved_one_after_the_other_are_steps_and_a_single_one_is_none() -> (
    None
):
    def last_step(*steps: int) -> int | None:
        text = "".join(f"Saved checkpoint at iteration {step}\n" for step in steps)
        tail = LogTail(f"lr decay steps 1000\n{text}{raised('RuntimeError: x')}")
        return attribute(Evidence(tails=(tail,))).finding.last_step

    assert (last_step(100, 200), last_step(100)) == (200, None)


# ---- what Slurm says


def test_a_lost_node_stays_named_though_a_survivor_prints_one_more_step() -> None:
    text = "".join(f"iteration {n} | loss 1.{n}\n" for n in range(1, 14))
    text += "srun: error: Node failure on h2\niteration 14 | loss 1.1\n"
    text += "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
    finding = attribute(Evidence(tails=(LogTail(text),))).finding
    assert (finding.failure_class, finding.root.node) == ("hardware_fault", "h2")


CANCELLED = (
    "slurmstepd: error: *** STEP 4412.0 ON h1 CANCELLED AT 2026-11-18T03:10:11 DUE TO NODE FAILURE,"
    " SEE SLURMCTLD LOG FOR DETAILS ***\n"
)


@pytest.mark.parametrize("before", ["", CANCELLED])
def test_the_node_that_failed_is_named_and_not_a_task_that_was_killed_for_it(before: str) -> None:
    text = "".join(f"{rank}: iteration {n} | loss 1.1\n" for n in (10, 11) for rank in (0, 1))
    text += f"{before}srun: error: Node failure on h2\n"
    text += "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
    text += "srun: error: h1: task 0: Killed\n"
    finding = attribute(Evidence(tails=(LogTail(text),))).finding
    assert finding.failure_class == "hardware_fault"
    assert (finding.root.node, finding.root.rank) == ("h2", None)


@pytest.mark.parametrize("line", ["", "srun: error: h2: task 1: "])
def test_an_exit_code_of_1_alone_tells_no_class(line: str) -> None:
    finding = attribute(Evidence(tails=(LogTail(f"{line}Exited with exit code 1\n"),))).finding
    assert finding.failure_class == "unknown"
