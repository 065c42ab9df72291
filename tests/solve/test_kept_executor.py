"""The executor between two stages of a solve."""

from dataclasses import dataclass, field
from pathlib import Path

from aorta.core.trial import TrialSpec
from aorta.executors import Executor
from aorta.executors.choosing import ExecutorChoice, KeptOpen
from aorta.executors.local import LocalExecutor
from aorta.solve.shared import SharedExecutor, SharedTrials
from support.executor_contract import pid_in
from support.processes import wait_until_gone


@dataclass(frozen=True, kw_only=True)
class Counted(ExecutorChoice):
    """Counts what it opens."""

    opened: list[Executor] = field(default_factory=list)

    def open(self) -> Executor:
        self.opened.append(LocalExecutor(1))
        return self.opened[-1]


def test_one_that_a_stage_leaves_idle_serves_the_next_and_one_that_is_busy_ends_with_it(
    tmp_path: Path,
) -> None:
    chosen = Counted()
    kept, store = KeptOpen(chosen), SharedTrials(tmp_path)

    def stage(name: str) -> Executor:
        return SharedExecutor(kept=kept, store=store, stage=name).open()

    def trial(name: str, script: str) -> TrialSpec:
        folder = tmp_path / name
        folder.mkdir()
        return TrialSpec(argv=("sh", "-c", script), trial_dir=folder, cwd=folder, id=name)

    first = stage("first")
    first.start(trial("short", "true"))
    assert [end.exit_code for end in first.wait()] == [0]
    first.close()
    second = stage("second")
    assert len(chosen.opened) == 1
    second.start(trial("long", f"echo $$ > {tmp_path}/pid; sleep 300"))
    running = pid_in(tmp_path / "pid")
    second.close()
    wait_until_gone(running)
    third = stage("third")
    assert len(chosen.opened) == 2
    third.close()
    kept.close()
