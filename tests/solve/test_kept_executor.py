"""An executor between two stages."""

from dataclasses import dataclass, field
from pathlib import Path

from aorta.core.trial import Start, TrialSpec
from aorta.executors import Executor
from aorta.executors.choosing import ExecutorChoice, KeptOpen
from aorta.executors.local import LocalExecutor
from aorta.solve.shared import SharedExecutor, SharedTrials
from support.executor_contract import pid_in
from support.processes import wait_until_gone


@dataclass(frozen=True, kw_only=True)
class Elsewhere(ExecutorChoice):
    """Counts what it opens; what it opens is on this machine all the same."""

    opened: list[Executor] = field(default_factory=list)

    def open(self) -> Executor:
        self.opened.append(LocalExecutor(1))
        return self.opened[-1]


def test_one_that_a_stage_leaves_idle_serves_the_next_and_one_that_is_busy_ends_with_it(
    tmp_path: Path,
) -> None:
    chosen = Elsewhere(name="cluster")
    kept, store = KeptOpen(chosen), SharedTrials(tmp_path)

    def stage(name: str) -> Executor:
        return SharedExecutor(name="cluster", kept=kept, store=store, stage=name).open()

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


def test_one_that_started_a_trial_warm_ends_with_its_stage(tmp_path: Path) -> None:
    chosen = Elsewhere(name="local")
    with KeptOpen(chosen) as kept:
        for opened, start in ((1, Start.COLD), (1, Start.WARM_OF_FEW), (2, Start.COLD)):
            stage = kept.open()
            assert len(chosen.opened) == opened
            place = tmp_path / start
            stage.start(
                TrialSpec(argv=("true",), trial_dir=place, cwd=tmp_path, id="t", start=start)
            )
            assert [end.exit_code for end in stage.wait()] == [0]
            stage.close()
