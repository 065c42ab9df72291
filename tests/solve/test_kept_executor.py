"""The executor between two stages of a solve."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from aorta.core.errors import InfrastructureError
from aorta.core.trial import TrialEnd, TrialSpec
from aorta.executors import Executor
from aorta.executors.choosing import ExecutorChoice, KeptOpen
from aorta.executors.local import LocalExecutor
from aorta.solve.shared import SharedExecutor, SharedTrials
from support.executor_contract import pid_in
from support.processes import wait_until_gone


@dataclass(frozen=True, kw_only=True)
class Counted(ExecutorChoice):
    """Counts what it opens."""

    kind: type[LocalExecutor] = LocalExecutor
    opened: list[Executor] = field(default_factory=list)

    def open(self) -> Executor:
        self.opened.append(self.kind(1))
        return self.opened[-1]


@pytest.mark.parametrize(("where", "opened"), [("local", 2), ("a cluster", 1)])
def test_one_that_a_stage_leaves_idle_serves_the_next_and_what_is_busy_ends_with_it(
    where: str, opened: int, tmp_path: Path
) -> None:
    """Of a cluster only its trials do: to open it again takes longer than to see them end."""
    chosen = Counted(name=where)
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
    assert len(chosen.opened) == opened
    third.close()
    kept.close()


def test_a_cluster_whose_trial_did_not_begin_is_opened_again(tmp_path: Path) -> None:
    class Refusing(LocalExecutor):
        def start(self, trial: TrialSpec) -> None:
            raise InfrastructureError(f"{trial.id} is refused")

        def wait(self, timeout: float | None = None) -> list[TrialEnd]:
            raise AssertionError("there is nothing to wait for")

    chosen = Counted(name="a cluster", kind=Refusing)
    with KeptOpen(chosen) as kept:
        stage = kept.open()
        with pytest.raises(InfrastructureError):
            stage.start(TrialSpec(argv=("true",), trial_dir=tmp_path, cwd=tmp_path, id="one"))
        stage.close()
        kept.open().close()
    assert len(chosen.opened) == 2
