"""The `command` workload: what its config turns into, and how a wrong one is refused."""

from pathlib import Path
from typing import Any

import pytest

from aorta.core.errors import SpecError
from aorta.core.oracle import ExitCodeOracle, RegexOracle
from aorta.workloads.trial import WorkloadExperiment, WorkloadRequest, workload_experiment


def experiment(
    config: dict[str, Any], base: Path | None = None, file: str = "command line"
) -> WorkloadExperiment:
    return workload_experiment(WorkloadRequest("command", config, base=base, file=file))


def test_a_text_is_run_by_bash_and_a_list_as_it_is(tmp_path: Path) -> None:
    text = experiment({"command": "make && ./run"}, base=tmp_path)
    listed = experiment({"command": ["./run", "a b"]}, base=tmp_path)
    assert text.subject.argv(tmp_path, {}, 0) == ("/bin/bash", "-c", "make && ./run")
    assert listed.subject.argv(tmp_path, {}, 0) == ("./run", "a b")


def test_the_working_directory_lies_beside_the_file_that_names_it(tmp_path: Path) -> None:
    assert experiment({"command": "x", "cwd": "sub"}, base=tmp_path).subject.cwd == tmp_path / "sub"
    assert experiment({"command": "x"}, base=tmp_path).subject.cwd == tmp_path
    assert experiment({"command": "x", "cwd": "/opt"}, base=tmp_path).subject.cwd == Path("/opt")


def test_without_an_oracle_any_failing_exit_is_the_failure() -> None:
    assert experiment({"command": "x"}).oracle == ExitCodeOracle()


def test_the_oracle_is_the_one_in_the_config() -> None:
    oracle = {"kind": "regex", "pattern": "NaN", "stream": "stdout"}
    found = experiment({"command": "x", "oracle": oracle}).oracle
    assert found == RegexOracle(pattern="NaN", stream="stdout")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "workload_config.command: this key is required and is missing"),
        ({"command": ""}, "workload_config.command: found an empty command"),
        ({"command": []}, "workload_config.command: found an empty command"),
        ({"command": ["a", 1]}, "workload_config.command: expected a text for the shell"),
        ({"command": {"a": 1}}, "workload_config.command: expected a text for the shell"),
        ({"command": "a\0b"}, "workload_config.command: the command holds a NUL byte"),
        ({"command": "a", "comand": "b"}, "unknown key 'comand'"),
        ({"command": "a", "cwd": 3}, "workload_config.cwd: found 3, expected"),
        ({"command": "a", "oracle": {"kind": "python"}}, "no Workload object for a python oracle"),
        ({"command": "a", "oracle": {"kind": "regex"}}, "workload_config.oracle.pattern: this key"),
    ],
)
def test_a_wrong_config_is_refused_at_its_place(config: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as wrong:
        experiment(config, file="recipe.yaml")
    assert str(wrong.value).startswith("recipe.yaml: workload_config")
    assert message in str(wrong.value)
