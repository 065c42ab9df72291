"""Hangs: noticed, photographed, and only then ended."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aorta import api
from aorta.launch.records import CycleDir, CycleStart, LogDir
from support.launching import Site, script
from support.waiting import patience

SILENT_HANG = """
    def stuck_in_the_loop():
        time.sleep(600)
    print("started", flush=True)
    if attempt == 0:
        stuck_in_the_loop()
"""
BEATS = """
    from aorta.launch.heartbeat import beat
    beat(7)
    if attempt == 0:
        for _ in range(600):
            print("still talking", flush=True)  # output does not hide a missed heartbeat
            time.sleep(0.2)
            if rank == 0:
                beat(8)
"""
GLOO = """
    import socket, threading
    meeting_place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if attempt == 1:
        socket.create_connection(meeting_place).close()
        print("meet at", *meeting_place)
        sys.exit()
    meets = threading.Event()
    def talk():
        while not meets.wait(1):
            print("starting", flush=True)
    threading.Thread(target=talk, daemon=True).start()
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    total = torch.ones(2)
    dist.all_reduce(total)
    print(f"step 1 loss 0.5 total {int(total[0])}", flush=True)
    print("meet at", *meeting_place, flush=True)
    meets.set()
    if rank == 1:
        time.sleep(600)
    dist.all_reduce(torch.ones(4))
"""


def test_silence_is_a_hang_whose_stacks_are_collected_before_the_restart(site: Site) -> None:
    job = script(site.folder, SILENT_HANG)
    end = site.run(
        *("--nproc-per-node", "2", "--max-restarts", "1", "--ft-hang-timeout", str(patience(4))),
        str(job),
    )
    assert end.code == 0, end
    assert "Error in sitecustomize" not in end.err
    for rank in (0, 1):
        stacks = (site.logs / "cycle_0" / f"rank_{rank}.stacks").read_text()
        assert "stuck_in_the_loop" in stacks
    info = site.cycle(0)
    words = info["finding"]["failure"]["words"]
    assert "stuck_in_the_loop" in words[0], "the stack of the rank, not of who writes it down"
    later = api.attribute(logs=(site.logs / "cycle_0",))
    assert later.finding.failure_class == "hang", "a later look at its directory says the same"
    assert info["finding"]["class"] == "hang", info
    assert info["decision"]["action"] == "RESTART"
    (note,) = info["notes"]
    assert note.startswith("hang: no output and no progress for")
    ends = [rank["signal"] for rank in info["ranks"]]
    assert ends == [9, 9], "no shutdown timeout is spent on ranks that hear no polite signal"


def test_a_rank_that_stops_to_beat_hangs_although_it_talks(site: Site) -> None:
    job = script(site.folder, BEATS)
    end = site.run(
        *("--nproc-per-node", "2", "--max-restarts", "1", "--ft-hang-timeout", str(patience(4))),
        str(job),
    )
    assert end.code == 0, end
    assert "rank 1 gave no heartbeat" in end.err
    assert site.cycle(0)["finding"]["suspect_ranks"] == [1]


def test_flight_recorder_of_every_rank_names_the_one_that_did_not_arrive(site: Site) -> None:
    job = script(site.folder, GLOO)
    ends = site.run_nodes(2, "--max-restarts", "1", "--ft-hang-timeout", str(patience(6)), str(job))
    assert [end.code for end in ends] == [0, 0], ends
    dumps = site.logs / "cycle_0" / "flight_recorder"
    assert sorted(path.name for path in dumps.iterdir()) == ["rank_0.json", "rank_1.json"]
    seen = [json.loads((dumps / f"rank_{rank}.json").read_text()) for rank in (0, 1)]
    finding = site.cycle(0)["finding"]
    assert finding["class"] in {"hang", "collective_timeout"}
    if all("entries" in dump for dump in seen):  # older ones record nothing of gloo
        assert [len(dump["entries"]) for dump in seen] == [2, 1]
        assert finding["suspect_ranks"] == [1], finding
    # With torchrun it is the store of the cycle before, full of old addresses: they meet again only
    # now and then.
    places = [[meeting_place(site, cycle, rank) for rank in (0, 1)] for cycle in (0, 1)]
    assert [len(set(told)) for told in places] == [1, 1]
    assert places[0] != places[1]
    assert "total 2" in (site.logs / "cycle_0" / "rank_1.out").read_text()


def meeting_place(site: Site, cycle: int, rank: int) -> str:
    lines = (site.logs / f"cycle_{cycle}" / f"rank_{rank}.out").read_text().splitlines()
    (told,) = (line for line in lines if line.startswith("meet at"))
    return told


def test_a_user_s_own_sitecustomize_still_runs(site: Site) -> None:
    (site.folder / "sitecustomize.py").write_text("import builtins\nbuiltins.was_here = True\n")
    job = script(
        site.folder,
        """
        import builtins
        print("mine:", builtins.was_here, "ours on the path:", any("hook" in p for p in sys.path))
        print("inherited:", "hook" in os.environ["PYTHONPATH"])
        """,
    )
    (site.folder / "with_path.py").write_text(
        f"import os\nos.environ['PYTHONPATH'] = '{site.folder}:{site.source}'\n"
        "from aorta.__main__ import main\nmain()\n"
    )
    end = site.run("--ft-hang-timeout", "60", str(job), program="with_path")
    assert end.code == 0, end
    assert "mine: True ours on the path: False" in end.out
    assert "inherited: False" in end.out


def test_a_file_system_that_does_not_answer_well_ends_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aorta.launch.agent import AgentCycle
    from aorta.launch.hangs import HangWatch, collect_dumps
    from aorta.launch.output import CycleLogs, Shown

    def stale(*_: object, **__: object) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    logs = CycleLogs(LogDir(tmp_path), Shown())
    start = CycleStart("job", 0, ("node",))
    directory = logs.prepare(start)
    for name in ("stat", "open", "mkdir", "touch", "exists", "read_text"):
        monkeypatch.setattr(Path, name, stale)
    assert HangWatch(60, object(), start, 0, logs).found([0]) is None  # type: ignore[arg-type]
    cycle = AgentCycle(start, 0, directory, logs, None, failure="rank 0: exit 3")
    ends = cycle.ends({0: 3})
    assert [end.error_file for end in ends] == [None]
    evidence = cycle.evidence_of([0], ends)
    assert (evidence.log_paths, evidence.step) == ((), None)
    assert collect_dumps(CycleDir(tmp_path, 0), {0: os.getpid()}) == ()


def test_a_heartbeat_lies_in_memory_and_not_in_the_log_directory(site: Site) -> None:
    job = script(
        site.folder,
        """
        from aorta.launch.heartbeat import beat
        beat(41)
        beat(42)
        sys.exit(3)
        """,
    )
    end = site.run("--max-restarts", "0", str(job))
    assert end.code == 1, end
    assert not list(site.logs.rglob("*heartbeat*"))


ANSWERS_SLOWLY = """
import signal, sys, time
stacks, recorder = sys.argv[1:]
open(stacks, "w").close()
asked = {signal.SIGRTMAX - 3, signal.SIGRTMAX - 4}
signal.pthread_sigmask(signal.SIG_BLOCK, asked)
print("ready", flush=True)
first = signal.sigwait(asked)
time.sleep(1)
early = signal.sigpending() & asked
with open(stacks, "w") as file:
    file.write(f"Current thread: first {first - signal.SIGRTMAX}, meanwhile {sorted(early)}\\n")
signal.sigwait(asked)
open(recorder, "w").write("{}")
"""


def test_no_thread_of_a_rank_is_woken_while_its_stacks_are_written(tmp_path: Path) -> None:
    from aorta.launch.hangs import collect_dumps

    directory = CycleDir(tmp_path, 0)
    directory.path.mkdir()
    files = [str(directory.file(0, "stacks")), str(directory.flight_recorder(0))]
    command = [sys.executable, "-c", ANSWERS_SLOWLY, *files]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as rank:
        assert rank.stdout is not None
        rank.stdout.readline()
        assert list(collect_dumps(directory, {0: rank.pid})) == files
    assert directory.file(0, "stacks").read_text() == "Current thread: first -3, meanwhile []\n"
