"""What a reduction must not claim: an axis that nobody reads, and a candidate that only hangs."""

import re
from pathlib import Path

from support.aorta_cli import aorta
from support.flaky import next_fails
from support.reductions import finals, numeric, reduce_spec, run_dir_of, trace_of, write_spec


def test_a_file_that_the_command_does_not_read_is_said_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("".join(f"line {n}\n" for n in range(200)))
    spec = write_spec(
        tmp_path,
        "grep -q 'line 7' lines.txt && echo BOOM",
        [{"name": "LINES_FILE", "kind": "file_subset", "initial": "lines.txt"}],
    )
    done = reduce_spec(spec)
    assert done.exit_code == 3
    report = done.json()
    assert (report["status"], finals(report)) == ("not_reduced", {"LINES_FILE": 200})
    assert report["axes"][0]["ignored"] is True
    assert "nonsense in the place of LINES_FILE" in report["why"]


def test_an_axis_that_is_read_is_reduced_beside_one_that_is_not(tmp_path: Path) -> None:
    spec = write_spec(
        tmp_path,
        '[ "$N" -ge 3 ] && echo BOOM',
        [numeric("N", 8, 1), numeric("NOBODY", 100, 1)],
    )
    done = reduce_spec(spec)
    assert done.exit_code == 0, done.stderr
    report = done.json()
    assert finals(report) == {"N": 3, "NOBODY": 1}
    assert {axis["name"]: axis["ignored"] for axis in report["axes"]} == {
        "N": False,
        "NOBODY": True,
    }


def test_a_choice_that_nobody_reads_is_told_beside_one_that_is_read(tmp_path: Path) -> None:
    def chosen(name: str) -> dict[str, object]:
        return {"name": name, "kind": "env", "type": "choice", "choices": ["slow", "fast"]}

    script = '[ "$MODE" = fast ] || [ "$MODE" = slow ] && echo BOOM'
    spec = write_spec(tmp_path, script, [chosen("MODE"), chosen("NOBODY")])
    done = aorta("reduce", "--spec", spec, "--output", "out", "-q", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    told = {line.split()[0]: line for line in done.stdout.splitlines() if line.startswith("  ")}
    assert "it fails the same with nonsense in its place" in told["NOBODY"]
    assert "nonsense" not in told["MODE"]
    assert "fast" in told["MODE"]


def test_of_a_flaky_failure_it_is_said_how_sure_it_is_that_nothing_smaller_fails(
    tmp_path: Path,
) -> None:
    fails = next_fails(tmp_path / "count", "FPFPPF")
    script = f'[ "$N" = 100 ] && {fails} && echo BOOM'
    spec = write_spec(tmp_path / "job", script, [numeric("N", 100, 1)], budget={})
    report = reduce_spec(spec).json()
    assert report["status"] == "not_reduced"
    assert re.search(r"goes unseen with a chance of \d+\.\d%", report["why"])
    assert "nothing smaller was seen to fail" in report["summary"][0]


def test_a_candidate_that_hangs_where_the_original_ends_is_tried_once(tmp_path: Path) -> None:
    script = '[ "$N" -ge 100 ] || exec sleep 600\necho BOOM'
    spec = write_spec(tmp_path, script, [numeric("N", 130, 90, monotone=True)], budget={})
    done = reduce_spec(spec, "--timeout", "3")
    assert done.exit_code == 0, done.stderr
    report = done.json()
    assert finals(report) == {"N": 100}
    hung = [
        line
        for line in trace_of(run_dir_of(report, tmp_path))
        if any(trial["timed_out"] for trial in line["trials"])
    ]
    assert hung
    assert all(len(line["trials"]) == 1 for line in hung if line["purpose"] == "probe"), hung
    assert {line["verdict"] for line in hung} == {"could not tell"}


def test_a_declared_set_of_exit_codes_is_the_failure_whichever_of_them_shows(
    tmp_path: Path,
) -> None:
    script = 'echo x >> "$COUNT"; [ "$N" -ge 5 ] || exit 0\n[ "$N" -ge 20 ] && exit 7\nexit 3\n'
    oracle = {"kind": "exit_code", "codes": [7, 3]}
    spec = write_spec(tmp_path, script, [numeric("N", 40, 1)], oracle=oracle)
    report = reduce_spec(spec, env={"COUNT": str(tmp_path / "count")}).json()
    assert (report["status"], finals(report)) == ("reduced", {"N": 5})


def test_a_real_number_ends_within_a_percent_of_its_threshold(tmp_path: Path) -> None:
    script = 'awk "BEGIN { exit !($LR >= 0.137) }" && echo BOOM\n'
    axis = {"name": "LR", "kind": "env", "type": "float", "initial": 4.0, "floor": 0.001}
    report = reduce_spec(write_spec(tmp_path, script, [axis])).json()
    assert 0.137 <= finals(report)["LR"] <= 0.137 * 1.011
