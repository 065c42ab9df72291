"""The picture in characters, on a real terminal, while the long verbs run."""

import json
from pathlib import Path

import pytest

from support.git_repositories import numbered
from support.reductions import SURE
from support.terminals import on_terminal, written_lines

COLUMNS = (24, 90)
PACE = "sleep 0.15"
SPEC = {
    "workload": {"command": f"bash -c '{PACE}; echo \\e[31mnoise; test $N -lt 8'"},
    "oracle": {"kind": "exit_code"},
    "budget": dict(SURE),
    "axes": [{"name": "N", "kind": "env", "type": "int", "initial": 100, "floor": 1}],
}


def check_lines(received: str, columns: int) -> list[str]:
    """Nothing is wider than the terminal while the run goes on; what is said afterwards may
    wrap.
    """
    lines = written_lines(received)
    drawn = [
        line for line in lines if "running " in line or (" in " in line and "trial" in line[:9])
    ]
    assert drawn
    assert max(map(len, drawn)) <= columns
    assert "Traceback" not in received
    assert "noise" not in received
    return lines


@pytest.mark.parametrize("columns", COLUMNS)
def test_reduce_shows_its_axes_shrinking(columns: int, tmp_path: Path) -> None:
    (tmp_path / "aorta.yaml").write_text(json.dumps(SPEC))
    received, code = on_terminal(["reduce", "--spec", "aorta.yaml"], tmp_path, columns)
    assert code == 0, received
    lines = check_lines(received, columns)
    assert any(line.startswith("N 100 → ") for line in lines)
    assert any(line.startswith("N 100 → ") and line.endswith("▁") for line in lines)


@pytest.mark.parametrize("columns", COLUMNS)
def test_triage_shows_its_matrix_filling(columns: int, tmp_path: Path) -> None:
    words = [
        "triage",
        "run",
        "--mitigation-axis",
        "none,xnack",
        "--environment-axis",
        "local",
        "--trials",
        "4",
    ]
    received, code = on_terminal([*words, "--", "bash", "-c", f"{PACE}; exit 1"], tmp_path, columns)
    assert code == 0, received
    lines = check_lines(received, columns)
    assert any(line.startswith("none-lo") and "2/2 ●●" in line for line in lines)


def test_bisect_shows_its_belief_narrowing(tmp_path: Path) -> None:
    repository, _ = numbered(tmp_path / "repository", 24, name="n")
    words = [
        "bisect",
        "--good",
        "HEAD~23",
        "--bad",
        "HEAD",
        "--no-checks",
        "--output-prefix",
        "out",
        "--",
    ]
    received, code = on_terminal(
        [*words, "bash", "-c", f"{PACE}; test $(cat n) -lt 15"], repository.path, 90
    )
    assert code == 0, received
    lines = check_lines(received, 90)
    assert any("of 23 changes are plausible" in line for line in lines)
    assert any(line.strip("\u2581\u2582\u2583\u2584\u2585\u2586\u2587 ") == "█" for line in lines)
    assert (repository.path / "out" / "timeline.json").exists()
