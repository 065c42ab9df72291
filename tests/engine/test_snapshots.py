"""What a trial's environment is told to be: seen from inside, or honestly not known."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from aorta.core.errors import InfrastructureError
from aorta.core.trial import Environment, RuntimeKind, StreamEnd, TrialEnd, TrialSpec
from aorta.engine.snapshots import (
    host_snapshot,
    is_captured,
    placeholder,
    snapshot_of,
    write_snapshot,
)
from aorta.probe.snapshot import EnvSnapshot, probe_mount
from aorta.version import __version__

IMAGE = Environment("old", RuntimeKind.DOCKER, image="torch:1", mounts=("/data:/data:ro",))


@dataclass
class OneTrial:
    """An executor that ends its one trial as it is told to."""

    ends: Sequence[TrialEnd] = ()
    refuses: bool = False
    slots: int = 1
    started: list[TrialSpec] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    waited: list[float | None] = field(default_factory=list)

    def start(self, trial: TrialSpec) -> None:
        if self.refuses:
            raise InfrastructureError("no such engine")
        self.started.append(trial)

    def wait(self, timeout: float | None = None) -> Sequence[TrialEnd]:
        self.waited.append(timeout)
        return self.ends

    def cancel(self, trial_id: str) -> None:
        self.cancelled.append(trial_id)

    def close(self) -> None:
        """Nothing is open."""


def ended(folder: Path, said: str = "", stderr: str = "", **facts: object) -> TrialEnd:
    written = folder / "stdout"
    written.write_text(said)
    streams = StreamEnd(written), StreamEnd(folder / "stderr", tail=stderr)
    return TrialEnd("snapshot", *streams, **facts)  # type: ignore[arg-type]


def taken(folder: Path, executor: OneTrial, environment: Environment = IMAGE) -> dict[str, object]:
    return snapshot_of(environment, {"SEED": "1"}, executor, folder / "scratch", folder)


def test_a_snapshot_is_taken_inside_the_container_with_the_probe_mounted(tmp_path: Path) -> None:
    content = {"schema_version": "1", "hostname": "inside"}
    executor = OneTrial([ended(tmp_path, json.dumps(content), exit_code=0)])
    assert taken(tmp_path, executor) == content
    [trial] = executor.started
    assert trial.environment.mounts == ("/data:/data:ro", probe_mount())
    assert (trial.env, trial.cwd, trial.timeout) == ({"SEED": "1"}, tmp_path, 60.0)
    assert executor.waited == [120.0]
    assert executor.cancelled == []


def test_an_environment_without_a_container_needs_no_mount(tmp_path: Path) -> None:
    executor = OneTrial([ended(tmp_path, exit_code=1)])
    taken(tmp_path, executor, Environment("mine", RuntimeKind.VENV, venv="/v"))
    [trial] = executor.started
    assert trial.environment.mounts == ()
    inside = OneTrial([ended(tmp_path, exit_code=1)])
    taken(tmp_path, inside)
    assert trial.argv != inside.started[0].argv


@pytest.mark.parametrize(
    ("said", "stderr", "facts", "reason"),
    [
        ("{}", "", {"exit_code": 0}, "taking the snapshot inside it ended with exit 0"),
        ("no json", "", {"exit_code": 0}, "taking the snapshot inside it ended with exit 0"),
        (
            '{"schema_version": "1"}',
            "python: not found\n\n",
            {"exit_code": 127},
            "taking the snapshot inside it ended with exit 127: python: not found",
        ),
        ("", "", {"timed_out": True}, "taking the snapshot ran out of time"),
        ("", "x" * 300, {"exit_code": 2}, f"inside it ended with exit 2: {'x' * 200}"),
        ("", "", {"lost": "no such image"}, "no such image"),
    ],
)
def test_without_a_snapshot_it_says_why(
    tmp_path: Path, said: str, stderr: str, facts: dict[str, object], reason: str
) -> None:
    found = taken(tmp_path, OneTrial([ended(tmp_path, said, stderr, **facts)]))
    assert not is_captured(found)
    assert str(found["skip_reason"]).endswith(reason)


def test_what_never_ends_or_never_begins_is_no_snapshot(tmp_path: Path) -> None:
    endless = OneTrial()
    assert taken(tmp_path, endless) == placeholder(IMAGE, "the snapshot did not end")
    assert endless.cancelled == ["snapshot"]
    assert taken(tmp_path, OneTrial(refuses=True)) == placeholder(IMAGE, "no such engine")


def test_a_placeholder_is_never_taken_for_a_snapshot() -> None:
    assert placeholder(IMAGE, "why not") == {
        "schema": "aorta.env/1",
        "aorta_version": __version__,
        "name": "old",
        "snapshot_captured": False,
        "skip_reason": "why not",
        "descriptor": {
            "kind": "docker",
            "docker": "torch:1",
            "venv": None,
            "source_package": "aorta",
        },
    }
    assert is_captured({"schema_version": "1"})


def test_on_the_host_it_is_the_hosts_own_with_the_trials_variables(tmp_path: Path) -> None:
    executor = OneTrial()
    variables = {"CONDA_DEFAULT_ENV": "of-the-trial"}
    found = snapshot_of(Environment("local"), variables, executor, tmp_path, tmp_path)
    assert executor.started == []
    assert found["schema_version"]
    assert "of-the-trial" in json.dumps(found)
    assert "of-the-trial" not in json.dumps(host_snapshot())


@dataclass(frozen=True)
class Written:
    text: str

    def to_json(self) -> str:
        return self.text


def test_a_snapshot_is_written_to_a_file_to_a_pipe_or_to_stdout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot: EnvSnapshot = Written("{}\n")  # type: ignore[assignment]
    deep = tmp_path / "made" / "for" / "it" / "env.json"
    write_snapshot(snapshot, deep)
    write_snapshot(snapshot, deep)
    assert deep.read_text() == "{}\n"
    assert list(deep.parent.iterdir()) == [deep]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_snapshot(snapshot, pipe)
    assert os.read(reader, 100) == b"{}\n"
    os.close(reader)
    assert pipe.is_fifo()
    write_snapshot(snapshot, Path("-"))
    assert capsys.readouterr().out == "{}\n"
