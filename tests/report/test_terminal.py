"""The live view, on a real terminal, while a long verb runs."""

import json
from pathlib import Path

import pytest

from support.reductions import SURE
from support.terminals import on_terminal, written_lines

SPEC = {
    "workload": {"command": "bash -c 'sleep 0.15; echo \\e[31mnoise; test $N -lt 8'"},
    "oracle": {"kind": "exit_code"},
    "budget": dict(SURE),
    "axes": [{"name": "N", "kind": "env", "type": "int", "initial": 100, "floor": 1}],
}


@pytest.mark.parametrize("columns", [24, 90])
def test_what_runs_and_what_is_best_so_far_is_shown_and_never_wider_than_the_terminal(
    columns: int, tmp_path: Path
) -> None:
    """What is said after the end may wrap."""
    (tmp_path / "aorta.yaml").write_text(json.dumps(SPEC))
    received, code = on_terminal(["reduce", "--spec", "aorta.yaml"], tmp_path, columns)
    assert code == 0, received
    lines = written_lines(received)
    drawn = [
        line for line in lines if "running " in line or (" in " in line and "trial" in line[:9])
    ]
    assert drawn
    assert max(map(len, drawn)) <= columns
    assert any(line.startswith("best so far: N=8") for line in lines)
    assert "Traceback" not in received
    assert "noise" not in received
