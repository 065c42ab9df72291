"""The local executor: the contract, and what only processes on this machine can be put through."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from aorta.core.errors import InfrastructureError
from aorta.core.trial import TrialEnd, Watch, WatchedPattern
from aorta.executors.local import LocalExecutor
from support.executor_contract import Bench, ExecutorContract, looking_for, pid_in
from support.processes import open_files, wait_until_gone
from support.waiting import wait_until


@pytest.fixture
def executor() -> Iterator[LocalExecutor]:
    local = LocalExecutor(2, grace=0.5)
    yield local
    local.close()


class TestLocalExecutor(ExecutorContract):
    def test_a_process_left_behind_by_a_finished_command_is_ended(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        pid_file = tmp_path / "pid"
        end = bench.shell(f"setsid sleep 300 & echo $! > {pid_file}; exit 0")
        assert end.exit_code == 0
        wait_until_gone(pid_in(pid_file))

    def test_a_double_forked_daemon_does_not_outlive_its_trial(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        pid_file = tmp_path / "pid"
        daemon = (
            "import os,time,signal\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "if os.fork(): os._exit(0)\n"
            "os.setsid()\n"
            "if os.fork(): os._exit(0)\n"
            f"open({str(pid_file)!r}, 'w').write(str(os.getpid()))\n"
            "time.sleep(300)\n"
        )
        bench.start("python3", "-c", daemon + "\n")
        runaway = pid_in(pid_file)
        bench.end()
        wait_until_gone(runaway)

    def test_killing_the_supervisor_loses_the_trial_and_nothing_else(
        self, bench: Bench, executor: LocalExecutor, tmp_path: Path
    ) -> None:
        pid_file = tmp_path / "pid"
        bench.start("bash", "-c", f"setsid sleep 300 & echo $! > {pid_file}; wait")
        runaway = pid_in(pid_file)
        supervisor = executor._slots[0].process.pid
        os.kill(supervisor, signal.SIGKILL)
        end = bench.end()
        assert end.lost == "the process that kept this trial was killed"
        wait_until_gone(runaway, supervisor)
        assert bench.run("true").exit_code == 0

    def test_what_is_just_becoming_another_program_ends_as_well(
        self, bench: Bench, executor: LocalExecutor, tmp_path: Path
    ) -> None:
        """A process shows no variables while it does."""
        restless, started = tmp_path / "restless", tmp_path / "started"
        restless.write_text(f'#!/bin/sh\n[ -e {started}/$$ ] || : > {started}/$$\nexec "$0"\n')
        restless.chmod(0o755)
        started.mkdir()
        bench.start("bash", "-c", f"for i in {{1..20}}; do setsid {restless} & done; wait")
        wait_until(lambda: len(list(started.iterdir())) == 20)
        os.kill(executor._slots[0].process.pid, signal.SIGKILL)
        assert bench.end().lost == "the process that kept this trial was killed"
        wait_until_gone(*(int(path.name) for path in started.iterdir()))

    def test_a_log_beyond_its_limit_keeps_the_beginning_and_the_end(self, tmp_path: Path) -> None:
        small = LocalExecutor(1, max_log_bytes=1000)
        try:
            end = Bench(small, tmp_path).shell("echo first; head -c 500000 /dev/zero; echo last")
        finally:
            small.close()
        kept = end.stdout.path.read_bytes()
        assert kept.startswith(b"first\n")
        assert kept.endswith(b"last\n")
        assert b"bytes left out]" in kept
        assert len(kept) < 400_000
        assert end.stdout.bytes_seen == 500_011

    def test_a_full_disk_loses_the_log_but_not_the_answer(self, bench: Bench) -> None:
        if not Path("/dev/full").exists():
            raise AssertionError("this machine has no /dev/full; mknod -m 666 /dev/full c 1 7")
        trial_dir = bench.scratch / "t1"
        trial_dir.mkdir()
        (trial_dir / "stdout.log").symlink_to("/dev/full")
        end = bench.shell("echo NaN; exit 3", watch=looking_for("NaN", stop=False))
        assert end.exit_code == 3
        assert end.matches

    def test_a_hopeless_pattern_is_an_answer_and_not_a_stall(self, bench: Bench) -> None:
        watch = Watch(patterns=(WatchedPattern("(x+x+)+y"),))
        end = bench.shell("head -c 4000 /dev/zero | tr '\\0' x; sleep 300", watch=watch)
        assert end.lost is not None
        assert "make it simpler" in end.lost

    def test_an_end_of_line_anchor_does_not_fire_on_half_a_line(self, bench: Bench) -> None:
        watch = looking_for(r"(?m)^loss=1$", stop=False)
        end = bench.shell("printf 'loss=1'; sleep 0.1; printf '2\\n'", watch=watch)
        assert not end.matches

    def test_a_start_of_line_anchor_does_not_fire_at_a_cut_window(self, bench: Bench) -> None:
        watch = looking_for(r"(?m)^xxxx", stop=False)
        end = bench.shell("printf a; head -c 3000000 /dev/zero | tr '\\0' x", watch=watch)
        assert not end.matches

    def test_each_slot_shows_its_own_devices(self, tmp_path: Path) -> None:
        two = LocalExecutor(2, gpus_per_trial=2, devices=["0", "1", "2", "3"])
        bench = Bench(two, tmp_path)
        script = (
            'echo "$CUDA_VISIBLE_DEVICES $HIP_VISIBLE_DEVICES $ROCR_VISIBLE_DEVICES"; sleep 0.5'
        )
        try:
            bench.start("bash", "-c", script)
            bench.start("bash", "-c", script)
            ends: list[TrialEnd] = []
            while len(ends) < 2:
                ends += two.wait(5)
        finally:
            two.close()
        shown = sorted(end.stdout.path.read_text().strip() for end in ends)
        assert shown == ["0,1 0,1 0,1", "2,3 2,3 2,3"]

    def test_too_few_devices_are_refused_with_the_numbers(self) -> None:
        with pytest.raises(InfrastructureError, match="need 4 devices; this machine shows 3"):
            LocalExecutor(2, gpus_per_trial=2, devices=["0", "1", "2"])

    def test_a_hundred_trials_leave_no_descriptor_and_no_process(
        self, bench: Bench, executor: LocalExecutor
    ) -> None:
        for _ in range(20):
            bench.run("true")
        supervisor = executor._slots[0].process.pid
        here, there = open_files(os.getpid()), open_files(supervisor)
        for _ in range(100):
            bench.run("true")
        assert open_files(os.getpid()) == here
        # What belonged to a trial is closed a moment after its end is told.
        wait_until(lambda: open_files(supervisor) <= there, "the closing of every file")
        assert len(executor._slots) == 1
