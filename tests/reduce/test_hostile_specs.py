"""Fifty wrong specs: each is refused in one line that names the place, before anything runs."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from aorta.core.errors import AortaError
from aorta.reduce.plan import Overrides, make_plan
from aorta.reduce.spec import load_spec
from support.aorta_cli import aorta

GOOD: dict[str, Any] = {
    "workload": {"command": "bash fails.sh", "cwd": "./"},
    "oracle": {"kind": "regex", "pattern": "BOOM"},
    "budget": {"trials_per_candidate": 3, "k_of_n_to_count_as_reproducing": 2},
    "axes": [{"name": "N", "kind": "env", "type": "int", "initial": 10, "floor": 1}],
}
N = GOOD["axes"][0]
FILE = {"name": "F", "kind": "file_subset", "initial": "lines.txt"}
WINDOW = {"name": "w", "kind": "window", "start": "A", "length": "B", "initial": [0, 9]}


def _axes(*axes: Any) -> dict[str, Any]:
    return {"axes": list(axes)}


def _axis(**keys: Any) -> dict[str, Any]:
    return _axes({**N, **keys})


HOSTILE: list[tuple[Any, str, str]] = [
    # what replaces keys of the good spec, where the error points, what it says
    ([], "aorta.yaml", "expected a mapping"),
    ("text", "aorta.yaml", "expected a mapping"),
    ({"workload": None}, "workload", "expected"),
    ({"workload": {}}, "workload", "either command"),
    ({"workload": {"command": ""}}, "workload.command", "empty command"),
    ({"workload": {"command": 5}}, "workload.command", "expected a text for the shell"),
    ({"workload": {"command": ["a", 5]}}, "workload.command", "expected a text for the shell"),
    ({"workload": {"command": []}}, "workload.command", "empty command"),
    ({"workload": {"command": "a\0b"}}, "workload.command", "NUL"),
    ({"workload": {"command": "x", "name": "half_nan"}}, "workload", "not both"),
    ({"workload": {"command": "x", "cwd": "./nowhere"}}, "workload.cwd", "no directory"),
    ({"workload": {"command": "x", "cwd": 7}}, "workload.cwd", "found 7"),
    ({"workload": {"command": "x", "timeout": "soon"}}, "workload.timeout", "not a duration"),
    ({"workload": {"command": "x", "config": {"a": 1}}}, "workload", "config is for"),
    ({"workload": {"command": "x", "extra": 1}}, "workload.extra", "unknown key 'extra'"),
    ({"oracle": {"kind": "regexp", "pattern": "x"}}, "oracle", "unknown kind 'regexp'"),
    ({"oracle": {"pattern": "x"}}, "oracle", "the key kind is missing"),
    ({"mitigation": ["x"]}, "mitigation", "did you mean 'mitigations'?"),
    ({"mitigations": {"x": 1}}, "mitigations", "found a mapping, expected a list"),
    ({"oracle": {"kind": "regex"}}, "oracle.pattern", "is missing"),
    ({"oracle": {"kind": "regex", "pattern": "("}}, "oracle.pattern", "not a regular expression"),
    ({"oracle": {"kind": "regex", "pattern": "a*"}}, "oracle.pattern", "matches empty output"),
    ({"oracle": {"kind": "regex", "pattern": "x", "stream": "all"}}, "oracle.stream", "'all'"),
    ({"oracle": {"kind": "hang"}}, "oracle", "silent_for or longer_than"),
    ({"oracle": {"kind": "hang", "silent_for": "-3s"}}, "oracle.silent_for", "not a duration"),
    ({"oracle": {"kind": "python"}}, "aorta.yaml", "no Workload object"),
    ({"oracle": {"kind": "regex", "pattern": "x", "ranks": "some"}}, "oracle.ranks", "any, all or"),
    ({"oracle": {"kind": "hang", "silent_for": 3, "ranks": "all"}}, "aorta.yaml", "oracle.ranks"),
    ({"budget": {"trials_per_candidate": 0}}, "budget.trials_per_candidate", "found 0"),
    ({"budget": {"trials_per_candidate": 1.5}}, "budget.trials_per_candidate", "found 1.5"),
    ({"budget": {"k_of_n_to_count_as_reproducing": 2}}, "budget", "trials_per_candidate beside"),
    (
        {"budget": {"trials_per_candidate": 2, "k_of_n_to_count_as_reproducing": 3}},
        "budget",
        "3 of 2",
    ),
    ({"budget": {"max_wall_clock": "4 parsecs"}}, "budget.max_wall_clock", "4 parsecs"),
    ({"budget": {"max_wall_clock": True}}, "budget.max_wall_clock", "True"),
    ({"budget": {"max_trial": 5}}, "budget.max_trial", "unknown key"),
    ({"axes": []}, "axes", "nothing to shrink"),
    ({"axes": {"name": "N"}}, "axes", "expected"),
    (_axes("N"), "axes[0]", "unknown kind 'N'"),
    (_axis(kind="enw"), "axes[0]", "unknown kind 'enw'"),
    (_axis(name="1N"), "axes[0].name", "not a variable name"),
    (_axis(floor=11), "axes[0]", "floor 11 is above initial 10"),
    (_axis(initial="10"), "axes[0]", "remove the quotes"),
    (_axis(initial=2.5), "axes[0]", "initial is 2.5"),
    (_axis(floor=None), "axes[0]", "floor is required"),
    (_axis(step=0), "axes[0]", "step 0"),
    (_axis(floor="x"), "axes[0].floor", "found 'x', expected integer or number"),
    (_axis(initial={}), "axes[0].initial", "expected integer or number or string"),
    (_axis(step=[1]), "axes[0].step", "found a list, expected integer or number"),
    (_axis(type="choice", choices=["a", {}]), "axes[0].choices[1]", "or string"),
    (_axes({**WINDOW, "initial": [0, "x"]}), "axes[0].initial[1]", "found 'x', expected integer"),
    (_axis(tolerance=1.5), "axes[0]", "tolerance 1.5"),
    (_axis(file="c.yaml"), "axes[0]", "file and key belong together"),
    (_axis(file="c.yaml", key="a.b"), "axes[0]", "no whole number of the key 'a.b'"),
    (_axis(strategy="dd-min"), "axes[0]", "does not fit"),
    (_axis(strategy="fast"), "axes[0].strategy", "'fast'"),
    (_axis(flor=3), "axes[0].flor", "unknown key 'flor'"),
    (_axis(monotone="yes"), "axes[0].monotone", "'yes'"),
    (_axis(type="choice"), "axes[0]", "needs choices"),
    (_axis(choices=["a", "b"]), "axes[0]", "choices need type"),
    (_axis(initial=float("inf"), type="float"), "axes[0]", "finite"),
    (_axes(N, N), "axes", "both set N"),
    (_axes({**FILE, "initial": "nowhere.txt"}), "axes[0].initial", "no 'nowhere.txt'"),
    (_axes({**FILE, "initial": "."}), "axes[0].initial", "not a file"),
    (_axes({**FILE, "kind": "dir_subset"}), "axes[0].initial", "not a folder"),
    (_axes({**FILE, "kind": "dir_subset", "floor": 0}), "axes[0].floor", "found 0"),
    (_axes({**FILE, "header": -1}), "axes[0].header", "found -1"),
    (_axes({**FILE, "header": 99}), "axes[0]", "no items"),
    (_axes({**WINDOW, "length": "A"}), "axes[0]", "two variables"),
    (_axes({**WINDOW, "initial": [0]}), "axes[0].initial[1]", "equired"),
    (_axes({**WINDOW, "floor": 20}), "axes[0]", "floor 20"),
    (_axes({"name": "R", "kind": "ranks", "initial": 0}), "axes[0].initial", "found 0"),
    (
        _axes(
            {"name": "R", "kind": "ranks", "initial": 2},
            {"name": "S", "kind": "world_size", "initial": 2},
        ),
        "axes",
        "R and S both decide",
    ),
    ({"gate": {}}, "gate.min_step_time_ms", "min_step_time_ms"),
    ({"gate": {"min_step_time_ms": -1}}, "gate.min_step_time_ms", "found -1"),
    ({"scrub": "acme"}, "scrub", "expected"),
    ({"scrub": ["re:("]}, "scrub", "not a regular expression"),
    ({"scrub": ["*"]}, "scrub", "matches everything"),
    ({"mitigations": ["tf32_of"]}, "mitigations", "tf32_off"),
    ({"environment": "moon"}, "environment", "moon"),
    ({"extra_env": {"A B": "1"}}, "extra_env", "not a variable name"),
    ({"oracel": {}}, "oracel", "unknown key 'oracel'"),
]
RAW: list[tuple[bytes, str]] = [
    (b"workload: [", "aorta.yaml:"),
    (b"\xff\xfe\x00", "UTF-8"),
    (b"workload: 1\nworkload: 2\n", "stands twice"),
    (b"a: &a [*a]\n", "aorta.yaml"),
    (b"", "expected a mapping"),
]


@pytest.mark.parametrize(("change", "place", "words"), HOSTILE)
def test_a_wrong_spec_is_one_line_that_names_the_place(
    change: Any, place: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "lines.txt").write_text("a\nb\n")
    (tmp_path / "fails.sh").write_text("touch ran")
    spec = tmp_path / "aorta.yaml"
    content = {**GOOD, **change} if isinstance(change, dict) else change
    spec.write_text(yaml.safe_dump(content))
    with pytest.raises(AortaError) as caught:
        make_plan(load_spec(spec), Overrides())
    said = str(caught.value)
    assert f"{spec}" in said
    assert str(caught.value.where).endswith(place)
    assert words in said
    assert "\n" not in said
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(("content", "words"), RAW)
def test_a_damaged_file_is_one_line_too(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "aorta.yaml").write_bytes(content)
    done = aorta("reduce", "--spec", "aorta.yaml", cwd=tmp_path)
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert [place.name for place in tmp_path.iterdir()] == ["aorta.yaml"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give either --spec FILE or --workload NAME"),
        (["--spec", "a.yaml", "--workload", "half_nan"], "give either --spec"),
        (["--spec", "nowhere.yaml"], "no such file"),
        (["--workload", "half_nn"], "unknown workload"),
        (["--workload", "command"], "declares no axes"),
        (["--spec", "a.yaml", "--resume", ".", "--dry-run"], "leaves nothing to resume"),
        (["--resume", "nowhere"], "no run directory"),
        (["--spec", "a.toml"], "expected .yaml, .yml or .json"),
        (["--timeout", "soon"], "is not a duration"),
        (["init"], "give the command behind --"),
        (["init", "--", "/no/such/command"], "there is no such program\n"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_leaves_nothing(
    arguments: list[str], words: str, tmp_path: Path
) -> None:
    done = aorta("reduce", *arguments, cwd=tmp_path)
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
