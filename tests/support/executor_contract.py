"""What every executor promises, as tests. An executor's own test module subclasses this and gives
`executor`.
"""

import signal
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from aorta.core.trial import LOCAL, Environment, TrialEnd, TrialSpec, Watch, WatchedPattern
from aorta.executors import Executor
from support.processes import wait_until_gone
from support.waiting import patience, wait_until


class Bench:
    """Starts small trials on one executor and waits for their ends."""

    def __init__(self, executor: Executor, scratch: Path) -> None:
        self.executor = executor
        self.scratch = scratch
        self._count = 0

    def start(
        self,
        *argv: str,
        env: Mapping[str, str] | None = None,
        watch: Watch | None = None,
        timeout: float | None = None,
        cwd: Path | None = None,
        environment: Environment = LOCAL,
    ) -> TrialSpec:
        self._count += 1
        name = f"t{self._count}"
        trial = TrialSpec(
            argv=argv,
            trial_dir=self.scratch / name,
            cwd=cwd or self.scratch,
            id=name,
            env=env or {},
            environment=environment,
            watch=watch or Watch(),
            timeout=timeout,
        )
        self.executor.start(trial)
        return trial

    def end(self) -> TrialEnd:
        deadline = time.monotonic() + patience()
        while time.monotonic() < deadline:
            ends = self.executor.wait(1.0)
            if ends:
                assert len(ends) == 1, "one trial was started, so one may end"
                return ends[0]
        raise AssertionError("the trial did not end")

    def run(
        self,
        *argv: str,
        env: Mapping[str, str] | None = None,
        watch: Watch | None = None,
        timeout: float | None = None,
        cwd: Path | None = None,
        environment: Environment = LOCAL,
    ) -> TrialEnd:
        self.start(*argv, env=env, watch=watch, timeout=timeout, cwd=cwd, environment=environment)
        return self.end()

    def shell(
        self, script: str, *, watch: Watch | None = None, timeout: float | None = None
    ) -> TrialEnd:
        return self.run("bash", "-c", script, watch=watch, timeout=timeout)


def pid_in(path: Path) -> int:
    """The pid that a trial's script writes to a file, once it is there."""
    wait_until(lambda: path.is_file() and path.read_text().strip(), f"{path}")
    return int(path.read_text())


def looking_for(pattern: str, *, stop: bool = True) -> Watch:
    return Watch(patterns=(WatchedPattern(pattern, stop=stop),))


class ExecutorContract:
    @pytest.fixture
    def bench(self, executor: Executor, tmp_path: Path) -> Bench:
        return Bench(executor, tmp_path)

    def test_exit_code_and_both_streams_come_back_as_they_were(self, bench: Bench) -> None:
        end = bench.shell("printf 'out\\377'; printf err >&2; exit 7")
        assert (end.exit_code, end.signal, end.failed) == (7, None, True)
        assert end.stdout.path.read_bytes() == b"out\xff"
        assert end.stderr.path.read_bytes() == b"err"
        assert end.duration >= 0
        assert end.started_at > 1e9

    def test_a_signal_is_told_apart_from_an_exit_code(self, bench: Bench) -> None:
        end = bench.shell("kill -SEGV $$")
        assert end.signal == signal.SIGSEGV or end.exit_code == 128 + signal.SIGSEGV
        assert end.failed

    def test_a_command_that_does_not_exist_is_lost_or_exits_127(self, bench: Bench) -> None:
        end = bench.run("/no/such/command")
        assert end.lost or end.exit_code == 127

    def test_the_environment_layers_and_the_scratch_directory_reach_the_command(
        self, bench: Bench
    ) -> None:
        trial = bench.start(
            "bash", "-c", 'printf "%s|%s" "$FLAG" "$AORTA_TRIAL_DIR"', env={"FLAG": "a b\nc"}
        )
        assert bench.end().stdout.path.read_text() == f"a b\nc|{trial.trial_dir}"

    def test_the_command_runs_in_its_working_directory(self, bench: Bench, tmp_path: Path) -> None:
        place = tmp_path / "a place"
        place.mkdir()
        assert bench.run("pwd", cwd=place).stdout.path.read_text().strip() == str(place)

    def test_a_file_that_the_trial_leaves_in_its_directory_comes_back(self, bench: Bench) -> None:
        end = bench.shell('echo \'{"failure_count": 2}\' > "$AORTA_TRIAL_DIR/result.json"')
        assert end.result == {"failure_count": 2}

    def test_a_number_left_where_other_trials_may_write_too_comes_back_with_its_place(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        """By which the engine tells whose it is, wherever the trials ran side by side."""
        end = bench.shell("echo '{\"loss\": 1}' > m.json", watch=Watch(json_file="m.json"))
        place = str(tmp_path / "m.json")
        assert end.result == {"metrics_file": {"loss": 1}, "metrics_shared": place}

    def test_a_timeout_ends_the_trial_and_its_children(self, bench: Bench, tmp_path: Path) -> None:
        pid_file = tmp_path / "pid"
        end = bench.shell(f"sleep 300 & echo $! > {pid_file}; wait", timeout=patience(1.0))
        assert end.timed_out
        assert not end.hung
        wait_until_gone(pid_in(pid_file))

    def test_the_first_match_ends_the_trial(self, bench: Bench) -> None:
        end = bench.shell(
            "echo step 1; echo NaN at step 137; sleep 300", watch=looking_for("NaN at")
        )
        assert [m.line for m in end.matches] == ["NaN at step 137"]
        assert end.duration < 300

    def test_a_match_that_does_not_stop_lets_the_trial_finish(self, bench: Bench) -> None:
        pattern = WatchedPattern(r"loss (\d+)", stop=False, keep_last=True, keep_all=True)
        watch = Watch(patterns=(pattern,))
        end = bench.shell("echo loss 3; echo loss 12; exit 4", watch=watch)
        assert end.exit_code == 4
        assert end.matches[0].groups == ("12",)
        assert list(end.matches[0].every) == ["3", "12"]

    def test_silence_is_noticed_as_a_hang(self, bench: Bench) -> None:
        end = bench.shell("echo hello; sleep 300", watch=Watch(silent_for=0.7))
        assert end.hung
        assert not end.timed_out

    def test_a_cancelled_trial_ends_with_everything_it_started(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        pid_file = tmp_path / "pid"
        script = f"setsid sh -c 'echo $$ > {pid_file}; exec sleep 300' & wait"
        trial = bench.start("bash", "-c", script)
        runaway = pid_in(pid_file)
        bench.executor.cancel(trial.id)
        assert bench.end().cancelled
        wait_until_gone(runaway)

    def test_a_trial_cancelled_before_it_could_begin_ends_too(self, bench: Bench) -> None:
        trial = bench.start("sleep", "300")
        bench.executor.cancel(trial.id)
        assert bench.end().cancelled

    def test_garbage_output_is_kept_byte_for_byte(self, bench: Bench) -> None:
        end = bench.shell("head -c 300000 /dev/zero; printf '\\200\\r\\033[31m\\0'")
        assert end.stdout.path.read_bytes() == bytes(300000) + b"\x80\r\x1b[31m\0"

    def test_a_match_is_found_far_inside_output_without_newlines(self, bench: Bench) -> None:
        script = "head -c 20000000 /dev/zero; printf 'needle here'; head -c 20000000 /dev/zero"
        end = bench.shell(script, watch=looking_for("needle here", stop=False))
        assert len(end.matches) == 1
        assert end.stdout.bytes_seen == 40_000_011

    def test_trials_fill_the_slots_and_each_end_comes_once(self, bench: Bench) -> None:
        slots = bench.executor.slots
        started = {bench.start("bash", "-c", f"exit {i + 1}").id: i + 1 for i in range(slots)}
        ended: dict[str, int | None] = {}
        deadline = time.monotonic() + patience()
        while len(ended) < slots and time.monotonic() < deadline:
            ended |= {end.trial_id: end.exit_code for end in bench.executor.wait(1.0)}
        assert ended == started
        assert not bench.executor.wait(0.1)

    def test_a_trial_does_not_see_stdin_of_the_caller(self, bench: Bench) -> None:
        assert bench.run("cat").exit_code == 0

    def test_file_descriptors_do_not_leak_into_the_trial(self, bench: Bench) -> None:
        end = bench.run("bash", "-c", "ls /proc/self/fd | wc -l")
        assert int(end.stdout.path.read_text()) <= 4

    def test_closing_ends_what_runs_and_may_be_done_twice(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        pid_file = tmp_path / "pid"
        bench.start(
            "bash", "-c", f"trap '' TERM; echo $$ > {pid_file}; sleep 300 & wait; sleep 300"
        )
        running = pid_in(pid_file)
        bench.executor.close()
        bench.executor.close()
        wait_until_gone(running)
