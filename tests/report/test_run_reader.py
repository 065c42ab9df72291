"""A run directory that is read while its run writes it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aorta.engine.rundir import RunDir, RunLock, claim_run_dir
from aorta.report.run_reader import open_run, state_of


def begun(output: Path) -> tuple[RunDir, RunLock]:
    run = claim_run_dir(output, "solve")
    return run, RunLock(run.lock).take()


def ended(run: RunDir, lock: RunLock) -> None:
    run.describe(state="done")
    lock.release()


def test_a_run_that_ends_while_it_is_read_is_done_only_with_what_it_wrote(tmp_path: Path) -> None:
    run, lock = begun(tmp_path)
    result = run.path / "result"

    def gather(path: Path) -> dict[str, Any]:
        found = {"result": result.exists()}
        if not found["result"]:  # it ends right after it was looked at
            result.touch()
            ended(run, lock)
        return found

    first, second = (open_run(run.path, {"solve": gather}) for _ in range(2))
    assert (first.state, first.documents) == ("running", {"result": False})
    assert (second.state, second.documents) == ("done", {"result": True})


def test_a_run_that_was_claimed_and_is_not_locked_yet_has_not_died(tmp_path: Path) -> None:
    run = claim_run_dir(tmp_path, "solve")
    assert state_of(run.path, "solve") == "running"


def test_a_run_that_is_being_locked_has_not_died(tmp_path: Path, monkeypatch: Any) -> None:
    run = claim_run_dir(tmp_path, "solve")
    seen: list[str] = []

    def looked_at_after(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*words: Any) -> Any:
            done = call(*words)
            seen.append(state_of(run.path, "solve"))
            return done

        return wrapped

    for name in ("open", "ftruncate", "pwrite"):
        monkeypatch.setattr(os, name, looked_at_after(getattr(os, name)))
    lock = RunLock(run.lock).take()
    monkeypatch.undo()
    lock.release()
    assert len(seen) >= 3
    assert set(seen) == {"running"}


def test_a_run_that_ends_between_two_looks_of_one_question_has_not_died(
    tmp_path: Path, monkeypatch: Any
) -> None:
    run, lock = begun(tmp_path)
    look = RunDir.about

    def about_after_the_end(self: RunDir) -> dict[str, Any]:
        before = look(self)
        ended(run, lock)
        return before

    monkeypatch.setattr(RunDir, "about", about_after_the_end)
    assert state_of(run.path, "solve") == "running"
    monkeypatch.undo()
    ended(run, lock)
    assert state_of(run.path, "solve") == "done"
