"""`aorta attribute` as its users meet it: a command line and a document."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.faults.corpus import CORPUS

from support.aorta_cli import aorta


def attributed(*arguments: str | Path) -> Any:
    done = aorta("attribute", "--json", *arguments)
    assert done.exit_code == 0, done.stderr
    return done.json()


def test_a_full_disk_is_named_with_its_rank_its_line_and_a_stop() -> None:
    case = CORPUS / "disk_full_write"
    document = attributed("--failures", case / "failures.json", case)
    finding, decision = document["finding"], document["decision"]
    assert document["schema"] == "aorta.attribution/1"
    assert (finding["class"], finding["root"]["rank"]) == ("disk_full", 1)
    assert finding["evidence"][0]["file"].endswith("rank_1.err")
    assert "No space left" in finding["evidence"][0]["text"]
    assert finding["cascade"] == [{"class": "network_loss", "ranks": [0]}]
    assert decision["action"] == "STOP"
    assert decision["advice"][0]["kind"] == "fix"


def test_words_for_people_say_the_action_first() -> None:
    done = aorta("attribute", CORPUS / "import_error")
    assert done.exit_code == 0
    assert done.stdout.startswith("STOP  rank 0: import_error: ModuleNotFoundError")


def test_a_gzipped_log_is_read_as_it_is(tmp_path: Path) -> None:
    packed = tmp_path / "rank_0.err.gz"
    packed.write_bytes(gzip.compress((CORPUS / "import_error" / "rank_0.err").read_bytes()))
    finding = attributed(packed)["finding"]
    assert (finding["class"], finding["root"]["rank"]) == ("import_error", 0)


def test_a_gzipped_log_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    packed = tmp_path / "rank_0.err.gz"
    text = (CORPUS / "import_error" / "rank_0.err").read_bytes() + bytes(range(256)) * 4000
    packed.write_bytes(gzip.compress(text)[:-2000])
    finding = attributed(packed)["finding"]
    assert finding["class"] == "import_error"


def test_the_evidence_that_tells_nothing_leaves_with_code_3(tmp_path: Path) -> None:
    quiet = tmp_path / "rank_0.out"
    quiet.write_text("hello\n")
    done = aorta("attribute", "--json", quiet)
    assert done.exit_code == 3
    assert done.json()["decision"]["action"] == "UNKNOWN"


STEPS = "step 10 loss 2.31\nstep 20 loss 2.11\nstep 30 loss 1.90\n"
DEEPSPEED = """\
[2026-11-17 10:00:02,100] [WARNING] [runner.py:215:fetch_hostfile] Unable to find hostfile, will \
proceed with training with local resources only.
[2026-11-17 10:00:32,100] [INFO] [launch.py:351:main] Process 4242 exits successfully.
"""


@pytest.mark.parametrize(
    "last",
    [
        "Training finished. Saved the final model to /out/final.pt\n",
        "WARNING: failed to load an image extension\nTraining complete\nwandb: Synced 5 files\n",
        "saved checkpoint step 30\nexit code 0\n",
        "Done.\n",
        "`Trainer.fit` stopped: `max_epochs=10` reached.\n",
        DEEPSPEED,
    ],
)
def test_a_log_that_ended_well_has_neither_a_class_nor_a_bug(tmp_path: Path, last: str) -> None:
    (log := tmp_path / "job.log").write_text(STEPS + last)
    said = aorta("attribute", log)
    assert said.exit_code == 0
    assert said.stdout.startswith("ENDED WELL  ")
    assert not any(word in said.stdout for word in ("class", "confidence", "bug", "running"))
    document = aorta("attribute", "--json", log).json()
    finding = document["finding"]
    assert (finding["state"], finding["class"]) == ("ended_well", "unknown")
    assert (finding["confidence"], finding["fingerprint"]) == (0.0, "")
    assert (document["decision"]["action"], document["decision"]["rule"]) == (
        "UNKNOWN",
        "ended_well",
    )


@pytest.mark.parametrize("last", ["Job 42 finished with errors\n", "worker exited with code 1\n"])
def test_a_log_that_says_it_ended_badly_did_not_end_well(tmp_path: Path, last: str) -> None:
    (log := tmp_path / "job.log").write_text(STEPS + last)
    assert aorta("attribute", "--json", log).json()["finding"]["state"] == "failed"


def test_a_log_that_stops_between_steps_may_still_be_running_and_names_no_bug(
    tmp_path: Path,
) -> None:
    (log := tmp_path / "job.log").write_text(STEPS)
    said = aorta("attribute", log)
    assert said.exit_code == 3
    assert "may still be running" in said.stdout
    assert not any(word in said.stdout for word in ("class", "confidence", "bug"))


def test_a_cycle_whose_ranks_all_exited_with_0_ended_well_whatever_they_wrote(
    tmp_path: Path,
) -> None:
    cycle = cycle_directory(tmp_path, 0, "value_error")
    info = json.loads((cycle / "cycle_info.json").read_text())
    well = [{"rank": row["rank"], "exit_code": 0, "signal": None} for row in info["ranks"]]
    (cycle / "cycle_info.json").write_text(json.dumps(info | {"ranks": well}))
    said = aorta("attribute", cycle)
    assert said.stdout.startswith("ENDED WELL  it ended well: all 2 ranks exited with code 0")


def test_a_long_message_is_cut_behind_a_word_and_says_so(tmp_path: Path) -> None:
    words = " ".join(f"word{number}" for number in range(200))
    (log := tmp_path / "job.log").write_text(
        f'Traceback (most recent call last):\n  File "t.py", line 1, in f\nValueError: {words}\n'
    )
    document = attributed(log)
    whole = {*words.split(), "…"}
    for text in (document["finding"]["summary"], document["finding"]["evidence"][0]["text"]):
        assert text.endswith(" …")
        assert set(text.partition("ValueError: ")[2].split()) <= whole
    assert "…; " in document["decision"]["reason"]


def test_the_rank_that_is_blamed_is_not_said_to_have_written_what_another_wrote(
    tmp_path: Path,
) -> None:
    waited = (
        "[rank{0}]:[E1117 03:12:44.1 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=10, OpType=ALLREDUCE, NumelIn=1, "
        "NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
    )
    (log := tmp_path / "job.log").write_text(
        "".join(f"[rank{rank}]: step 10 loss 2.1\n" for rank in (0, 1, 5))
        + waited.format(0)
        + waited.format(1)
    )
    finding = attributed(log)["finding"]
    assert finding["root"]["rank"] == 5
    assert finding["summary"].startswith("rank 5: collective_timeout, reported by rank 0: Watchdog")


def test_who_waited_and_aborted_first_is_not_the_rank_that_never_came(tmp_path: Path) -> None:
    timeout = (
        "[Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=10, "
        "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 "
        "milliseconds before timing out.\n"
    )
    watchdog = "[rank{0}]:[E1117 03:12:44.1 ProcessGroupNCCL.cpp:616] " + timeout
    end = (
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "  what():  [PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog thread "
        f"terminated with exception: {timeout.format(3)}"
        "E1117 03:12:50.1 139 torch/distributed/elastic/multiprocessing/api.py:869] failed "
        "(exitcode: -6) local_rank: 3 (pid: 205) of binary: /opt/venv/bin/python\n"
    )
    told = STEPS + "".join(watchdog.format(rank) for rank in (3, 0, 1)) + end
    (log := tmp_path / "job.log").write_text(told)
    assert attributed(log)["finding"]["root"]["rank"] is None
    log.write_text(f"world_size: 4\n{told}")
    assert attributed(log)["finding"]["root"]["rank"] == 2


@pytest.mark.parametrize("speaks", ["[rank{0}]: joined the store", "rank {0} of 8: connecting"])
def test_the_rank_that_never_came_to_the_rendezvous_is_named(tmp_path: Path, speaks: str) -> None:
    came = "".join(speaks.format(rank) + "\n" for rank in (0, 1, 2, 3, 4, 6, 7))
    (log := tmp_path / "join.log").write_text(
        f"initializing torch distributed, world size: 8\n{came}"
        'Traceback (most recent call last):\n  File "train.py", line 12, in <module>\n'
        "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 7/8 "
        "clients joined.\n"
    )
    finding = attributed(log)["finding"]
    assert (finding["class"], finding["root"]["rank"]) == ("rendezvous_error", 5)
    assert finding["last_step"] is None


def test_of_a_launchers_log_directory_the_last_cycle_is_read_with_those_before_it(
    tmp_path: Path,
) -> None:
    for number in (0, 1):
        cycle_directory(tmp_path, number, "value_error")
    (tmp_path / "current").symlink_to("cycle_1")
    done = aorta("attribute", "--json", tmp_path)
    assert "cycle_1, the last cycle there" in done.stderr
    assert done.json()["decision"]["rule"] == "repeated"


def test_a_cycle_directory_brings_its_failures_along(tmp_path: Path) -> None:
    cycle = cycle_directory(tmp_path, 0, "sigkill")
    document = attributed(cycle)
    finding = document["finding"]
    assert (finding["class"], finding["root"]) == (
        "killed",
        {"rank": 1, "node": "node-1", "device": None},
    )


LOST_GPU = "NVRM: Xid (PCI:0000:1b:00): 79, pid=4242, name=python, GPU has fallen off the bus.\n"


@pytest.mark.parametrize("clock", ["Nov 18 03:12:40 n3 kernel: ", "[ 1234.5] "])
@pytest.mark.parametrize(
    "raised",
    [
        "torch.AcceleratorError: CUDA error: GPU is lost",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "RuntimeError: CUDA error: unspecified launch failure",
        "RuntimeError: NCCL Error 1: unhandled cuda error",
    ],
)
def test_what_the_kernel_says_is_shown_and_names_device_and_node_whatever_the_rank_says(
    tmp_path: Path, clock: str, raised: str
) -> None:
    kernel, log, ends = (tmp_path / name for name in ("dm.log", "r.err", "ends.json"))
    kernel.write_text(f"{clock}{LOST_GPU}")
    frames = (
        'Traceback (most recent call last):\n  File "/srv/train.py", line 9, in step\n    x()\n'
    )
    log.write_text(f"step 1 loss=2.0\nstep 2 loss=1.9\n{frames}{raised}\n")
    ends.write_text(json.dumps([{"rank": 0, "exit_code": 1}]))
    document = attributed("--kernel-log", kernel, "--failures", ends, log)
    finding, advice = document["finding"], document["decision"]["advice"]
    node = "n3" if "n3" in clock else None
    assert finding["class"] == "hardware_fault"
    assert (finding["root"]["node"], finding["root"]["device"]) == (node, "PCI:0000:1b:00")
    assert any(line["file"] == str(kernel) for line in finding["evidence"])
    assert finding["failure"]["ended"]["exit_code"] == 1
    assert advice[0]["kind"] == "exclude_node"
    assert (advice[0]["text"] == "exclude node n3") is (node is not None)


def test_how_the_root_ended_stands_beside_what_it_said(tmp_path: Path) -> None:
    ended = attributed(cycle_directory(tmp_path, 0, "value_error"))["finding"]["failure"]["ended"]
    assert ended["exit_code"] == 1


def test_the_same_failure_again_without_progress_stops(tmp_path: Path) -> None:
    for number in (0, 1):
        cycle_directory(tmp_path, number, "value_error")
    first = attributed("--history", tmp_path, tmp_path / "cycle_0")["decision"]
    second = attributed("--history", tmp_path, tmp_path / "cycle_1")["decision"]
    assert (first["action"], second["action"]) == ("RESTART", "STOP")
    assert second["rule"] == "repeated"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["/no/such/log"], "there is no log at /no/such/log"),
        (["--failures", CORPUS / "import_error" / "rank_0.err", CORPUS], "is not readable JSON"),
        ([], "Missing argument"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_code_2(
    arguments: list[str | Path], said: str
) -> None:
    done = aorta("attribute", *arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def cycle_directory(log_dir: Path, number: int, case: str) -> Path:
    """What `aorta launch` leaves behind for one cycle, with real logs in it."""
    cycle = log_dir / f"cycle_{number}"
    cycle.mkdir()
    for log in (CORPUS / case).glob("rank_*"):
        (cycle / log.name).write_bytes(log.read_bytes())
    failures = json.loads((CORPUS / case / "failures.json").read_text())
    ranks = [failure | {"node": f"node-{failure['rank']}"} for failure in failures]
    info = {"schema": "aorta.cycle/1", "job_id": "j", "cycle": number, "ranks": ranks}
    (cycle / "cycle_info.json").write_text(json.dumps(info))
    return cycle


def test_a_signal_may_be_given_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "rank_0.out").write_text("step 1 loss 2\nstep 2 loss 1\n")
    ends = tmp_path / "ends.json"
    ends.write_text(json.dumps([{"rank": 0, "exit_code": None, "signal": "SIGKILL"}]))
    finding = attributed("--failures", ends, tmp_path / "rank_0.out")["finding"]
    assert (finding["class"], finding["root"]["rank"]) == ("killed", 0)
    ends.write_text(json.dumps([{"rank": 0, "signal": "SIGWRONG"}]))
    refused = aorta("attribute", "--failures", ends, tmp_path / "rank_0.out")
    assert refused.exit_code == 2
    assert "SIGWRONG" in refused.stderr


def test_a_cycle_without_its_record_is_not_its_own_history(tmp_path: Path) -> None:
    """Three crashes, each forty steps further than the one before: that is progress."""
    for cycle in range(3):
        folder = tmp_path / f"cycle_{cycle}"
        folder.mkdir()
        steps = "".join(f"step {n} loss 0.5\n" for n in range(40 * cycle + 1, 40 * cycle + 41))
        (folder / "rank_0.err").write_text(steps + "Segmentation fault (core dumped)\n")
    document = attributed("--history", tmp_path, tmp_path / "cycle_2")
    assert document["finding"]["class"] == "segfault"
    assert document["decision"]["action"] == "RESTART"
