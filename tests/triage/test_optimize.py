"""`aorta triage run --mode optimize`: the smallest stack that works, how sure that is, and lines to
paste.
"""

import json
import shlex
import signal
from pathlib import Path

import pytest

from support.aorta_cli import Finished, aorta, start_aorta
from support.processes import wait_for_file
from support.triage_runs import BASELINE, cell, document, written
from support.waiting import patience

SIDECAR = {
    "version": 1,
    "mitigations": {
        **{f"m{n}": {f"VAR_{n}": "1"} for n in range(6)},
        "clash": {"VAR_0": "2"},
        "crash": {"CRASH": "1"},
        "quoted": {"QUOTED": "a b'c"},
    },
}


def optimize(
    folder: Path, script: str, *arguments: str, mitigations: str = "m0,m1,m2,m3,m4,m5"
) -> Finished:
    sidecar = written(folder, SIDECAR, "more.json")
    return aorta(
        "triage", "run", "--mode", "optimize", "--mitigation-axis", mitigations,
        "--mitigations-file", sidecar, "--json", "-q", *arguments, "--", "bash", "-c", script,
        cwd=folder,
    )  # fmt: skip


NEEDS_TWO = 'test -n "$VAR_1" -a -n "$VAR_4"'


def test_the_smallest_stack_is_found_verified_and_ready_to_paste(tmp_path: Path) -> None:
    done = optimize(tmp_path, NEEDS_TWO, "--jobs", "2")
    assert done.exit_code == 0, done.stderr
    found = done.json()
    assert (found["schema"], found["status"]) == ("aorta.optimize/1", "found")
    best = found["recommended"]
    assert best["mitigations"] == ["m1", "m4"]
    assert best["one_minimal"] is True
    assert all(proof["failed"] == proof["of"] >= 1 for proof in best["without"].values())
    assert found["environment_lines"] == ["export VAR_1=1", "export VAR_4=1"]
    assert found["original"] == {"reproduced": 5, "of": 5, "low": 0.5655, "high": 1.0}
    assert best["failed"] == 0
    assert best["of"] >= 5
    assert best["rate_below"] < 0.5
    assert best["chance_of_luck"] < 0.005
    run_dir = tmp_path / found["run_dir"]
    page = (run_dir / "optimize.md").read_text()
    assert "```sh\nexport VAR_1=1\nexport VAR_4=1\n```" in page
    assert "the rate is below" in page
    stored = json.loads((run_dir / "optimize.json").read_text())
    assert {**stored, "run_dir": found["run_dir"]} == found


def test_nothing_that_helps_is_exit_3(tmp_path: Path) -> None:
    done = optimize(tmp_path, "exit 1")
    assert done.exit_code == 3
    found = done.json()
    assert (found["status"], found["recommended"], found["environment_lines"]) == (
        "not_found",
        None,
        [],
    )
    assert "no stack of these mitigations makes the failure go away" in done.stderr


def test_a_failure_that_does_not_show_is_exit_3(tmp_path: Path) -> None:
    done = optimize(tmp_path, "true", "--trials", "6")
    assert done.exit_code == 3
    assert done.json()["status"] == "did_not_reproduce"


def test_mitigations_that_contradict_each_other_are_not_stacked(tmp_path: Path) -> None:
    done = optimize(tmp_path, 'test -n "$VAR_0"', mitigations="m0,clash,m1")
    assert done.json()["left_out"] == {"clash": "sets VAR_0 otherwise than m0"}
    assert done.json()["recommended"]["mitigations"] == ["m0"]


def test_a_stack_that_fails_in_another_way_has_mended_nothing(tmp_path: Path) -> None:
    script = (
        'if [ -n "$CRASH" ]; then echo "ImportError: gone" >&2; exit 1; fi; '
        'test -n "$VAR_1" || { echo "ValueError: bad" >&2; exit 1; }'
    )
    found = optimize(tmp_path, script, mitigations="m0,m1,crash").json()
    assert found["recommended"]["mitigations"] == ["m1"]


def test_values_are_quoted_for_the_shell(tmp_path: Path) -> None:
    found = optimize(tmp_path, 'test -n "$QUOTED"', mitigations="quoted,m0").json()
    assert found["environment_lines"] == ["""export QUOTED='a b'"'"'c'"""]


def test_without_a_list_everything_that_can_act_here_is_tried(tmp_path: Path) -> None:
    done = aorta(
        "triage", "run", "--mode", "optimize", "--json", "-q", "--", "bash", "-c",
        'test "$ATEN_CPU_CAPABILITY" = default', cwd=tmp_path,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    found = done.json()
    assert found["recommended"]["mitigations"] == ["aten_no_vectors"]
    assert "none" not in found["candidates"]
    assert "xnack" not in found["candidates"], "read by nothing on this machine"


def test_a_recipe_says_which_mitigations_and_where(tmp_path: Path) -> None:
    cells = [
        BASELINE,
        cell("a", "omp_one_thread"),
        cell("b", "aten_no_vectors", "mkl_reproducible"),
    ]
    path = written(tmp_path, document(*cells, script='test -n "$MKL_CBWR"', trials=20))
    found = aorta(
        "triage", "run", "--recipe", path, "--mode", "optimize", "--json", "-q", cwd=tmp_path
    ).json()
    assert found["candidates"] == ["omp_one_thread", "aten_no_vectors", "mkl_reproducible"]
    assert found["recommended"]["mitigations"] == ["mkl_reproducible"]


def test_what_an_interrupted_search_says_goes_on_with_it(tmp_path: Path) -> None:
    script = 'touch begun; [ -e go ] || sleep 600; test -n "$VAR_1"'
    sidecar = written(tmp_path, SIDECAR, "more.json")
    process = start_aorta(
        *("triage", "run", "--mode", "optimize", "--mitigation-axis", "m0,m1"),
        *("--mitigations-file", sidecar, "--", "bash", "-c", script),
        cwd=tmp_path,
    )
    wait_for_file(tmp_path / "begun")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=patience())
    (tmp_path / "go").touch()
    command = shlex.split(said.decode().partition("go on with: ")[2])
    assert command[:1] == ["aorta"], said
    done = aorta(*command[1:], "--json", "-q", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    assert done.json()["recommended"]["mitigations"] == ["m1"]


def test_a_finished_search_resumed_runs_nothing(tmp_path: Path) -> None:
    script = f"echo x >> log; {NEEDS_TWO}"
    first = optimize(tmp_path, script).json()
    trials = (tmp_path / "log").read_text()
    again = optimize(tmp_path, script, "--resume", first["run_dir"])
    assert again.exit_code == 0, again.stderr
    assert (tmp_path / "log").read_text() == trials
    assert again.json()["resumed_trials"] == first["trials"]
    assert again.json()["recommended"] == first["recommended"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mitigation-axis", ","], "--mitigation-axis: found no name"),
        (["--dry-run"], "nothing was run"),
    ],
)
def test_what_is_wrong_or_only_asked_leaves_nothing(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    done = optimize(tmp_path, "exit 1", *arguments)
    assert words in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["more.json"]


def test_only_inert_mitigations_are_refused(tmp_path: Path) -> None:
    done = optimize(tmp_path, "exit 1", mitigations="xnack,tf32_off")
    assert done.exit_code == 2
    assert "no mitigation can act here: xnack: no library reads HSA_XNACK" in done.stderr
