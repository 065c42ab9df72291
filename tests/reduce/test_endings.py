"""How a reduction ends: reduced, not reduced, not reproduced, out of budget, stopped. Each with its
exit code.
"""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from support.aorta_cli import aorta, start_aorta
from support.flaky import next_fails
from support.reductions import finals, numeric, reduce_spec, run_dir_of, trace_of, write_spec
from support.waiting import patience, wait_until

SLOW = 'sleep 0.2; [ "$N" -ge 137 ] && echo BOOM'


def test_what_never_fails_did_not_reproduce_and_the_evidence_is_kept(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, "echo all is well", [numeric("N", 100, 1)])
    done = reduce_spec(spec)
    assert done.exit_code == 3
    report = done.json()
    assert report["status"] == "did_not_reproduce"
    assert report["original"]["reproduced"] == 0
    run_dir = run_dir_of(report, tmp_path)
    assert not (run_dir / "shrunken").exists()
    assert (run_dir / "logs" / "stdout.log").read_text() == "all is well\n"
    assert "did not reproduce" in (run_dir / "SHIP.md").read_text()


def test_of_a_command_that_is_not_there_no_trial_could_tell(tmp_path: Path) -> None:
    spec = write_spec(
        tmp_path, "", [numeric("N", 9, 1)], workload={"command": "no_such_command_at_all"}
    )
    done = reduce_spec(spec)
    assert done.exit_code == 5
    assert (done.json()["status"], done.json()["original"]["of"]) == ("partial", 0)
    assert done.json()["why"].count("command not found") == 1
    page = aorta("report", done.json()["run_dir"], "--json", cwd=tmp_path).json()
    assert "no trial could tell" in page["answer"]


def test_stopped_before_the_copy_that_ships_was_tried_it_is_not_called_reduced(
    tmp_path: Path,
) -> None:
    elsewhere = f'[ "$PWD" = {tmp_path} ] || {{ touch {tmp_path}/copy; sleep 600; }}; '
    spec = write_spec(tmp_path, elsewhere + '[ "$N" -ge 5 ] && echo BOOM', [numeric("N", 9, 1)])
    process = start_aorta(
        "reduce", "--spec", spec, "--output", tmp_path / "out", "--json", "-q", cwd=tmp_path
    )
    wait_until((tmp_path / "copy").exists, "a trial of what ships")
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=patience())
    report = json.loads(said)
    assert (process.returncode, report["status"]) == (130, "partial")
    assert (report["search"], finals(report)) == ("reduced", {"N": 5})


def test_rows_that_fail_alone_and_not_with_others_may_fail_of_another_cause(
    tmp_path: Path,
) -> None:
    (tmp_path / "f.txt").write_text("".join(f"{row}\n" for row in range(200)))
    both_or_one = '{ grep -qx 41 "$F" && grep -qx 173 "$F"; } || [ $(wc -l < "$F") = 1 ]'
    axis = {"name": "F", "kind": "file_subset", "initial": "f.txt"}
    spec = write_spec(tmp_path, f"if {both_or_one}; then echo BOOM; fi", [axis])
    done = aorta("reduce", "--spec", spec, "--output", "out", "-q", cwd=tmp_path)
    assert "more of it did not fail, so the cause may be another" in done.stdout


def test_nothing_smaller_fails_is_a_bundle_marked_not_reduced(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, '[ "$N" = 100 ] && echo BOOM', [numeric("N", 100, 1)])
    done = reduce_spec(spec)
    assert done.exit_code == 3
    report = done.json()
    assert report["status"] == "not_reduced"
    run_dir = run_dir_of(report, tmp_path)
    ship = (run_dir / "SHIP.md").read_text()
    assert "not reduced" in ship
    assert "add axes" in ship
    ran = subprocess.run(
        ["bash", run_dir / "shrunken" / "run_repro.sh"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "BOOM" in ran.stdout


def test_a_spent_budget_writes_a_partial_result_that_resumes_to_the_answer(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, '[ "$N" -ge 137 ] && echo BOOM', [numeric("N", 5000, 50)])
    done = reduce_spec(spec, "--max-trials", "5")
    assert done.exit_code == 4
    report = done.json()
    assert (report["status"], report["stopped_by"], report["trials"]) == ("partial", "budget", 5)
    run_dir = run_dir_of(report, tmp_path)
    assert "partial" in (run_dir / "SHIP.md").read_text()
    assert (run_dir / "shrunken" / "run_repro.sh").is_file()
    assert any(f"--resume {run_dir}" in command for command in report["next"])
    again = reduce_spec(spec, "--resume")
    assert again.exit_code == 0, again.stderr
    assert f"resuming {run_dir}" in again.stderr
    assert again.json()["resumed_trials"] == 5
    assert finals(again.json()) == {"N": 137}


def test_the_wall_clock_of_the_spec_is_kept(tmp_path: Path) -> None:
    spec = write_spec(
        tmp_path, SLOW, [numeric("N", 5000, 50)], budget={"trials_per_candidate": 1, "max_wall_clock": "1s"},
    )  # fmt: skip
    assert reduce_spec(spec).exit_code == 4


def test_stopped_it_writes_partial_results_and_can_be_resumed(tmp_path: Path) -> None:
    spec = write_spec(
        tmp_path, SLOW, [numeric("N", 400, 50)], budget={"trials_per_candidate": 1},
    )  # fmt: skip
    process = start_aorta("reduce", "--spec", spec, "--output", "out", "--json", cwd=tmp_path)
    _wait_for_lines(tmp_path, 3)
    os.kill(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=patience())
    assert process.returncode == 143, err
    report = json.loads(out)
    assert report["status"] == "partial"
    assert b"go on with: aorta reduce --resume out/" in err
    done = aorta("reduce", "--resume", report["run_dir"], "--json", "-q", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    assert done.json()["resumed_trials"] >= 3
    assert finals(done.json()) == {"N": 137}


def _wait_for_lines(tmp_path: Path, count: int) -> None:
    wait_until(
        lambda: any(
            journal.read_bytes().count(b'"kind":"trial"') >= count
            for journal in tmp_path.glob("out/.aorta/*/journal.jsonl")
        ),
        f"the writing down of {count} trials",
    )


def test_a_dry_run_searches_and_leaves_nothing_not_even_temporary_files(tmp_path: Path) -> None:
    spec = write_spec(
        tmp_path / "work", 'grep -qx c "$F" && echo BOOM',
        [{"name": "F", "kind": "file_subset", "initial": "f.txt"}],
    )  # fmt: skip
    (spec.parent / "f.txt").write_text("a\nb\nc\nd\n")
    (tmp_path / "tmp").mkdir()
    before = _everything(tmp_path)
    done = reduce_spec(spec, "--dry-run", env={"TMPDIR": str(tmp_path / "tmp")})
    assert done.exit_code == 0, done.stderr
    assert finals(done.json()) == {"F": 1}
    assert _everything(tmp_path) == before


def test_an_interrupted_dry_run_leaves_nothing_either(tmp_path: Path) -> None:
    spec = write_spec(tmp_path / "work", SLOW, [numeric("N", 5000, 50)])
    (tmp_path / "tmp").mkdir()
    before = _everything(tmp_path)
    process = start_aorta(
        "reduce", "--spec", spec, "--dry-run", cwd=tmp_path, env={"TMPDIR": str(tmp_path / "tmp")}
    )
    wait_until(lambda: list((tmp_path / "tmp").glob("*/*/.aorta/trials/*/*/stdout.log")), "a trial")
    process.send_signal(signal.SIGINT)
    said = b"".join(process.communicate(timeout=patience())).decode()
    assert process.returncode == 130
    assert "interrupted" in said
    assert "--resume" not in said
    assert str(tmp_path / "tmp") not in said
    assert _everything(tmp_path) == before


def _everything(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def test_two_runs_of_one_second_have_directories_of_their_own(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, "echo BOOM", [numeric("N", 9, 1)])
    runs = {reduce_spec(spec).json()["run_dir"] for _ in range(2)}
    assert len(runs) == 2


def test_a_changed_file_is_not_mixed_into_an_old_run(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("a\nb\nc\nd\n")
    axis = {"name": "F", "kind": "file_subset", "initial": "f.txt"}
    spec = write_spec(tmp_path, 'grep -qx c "$F" && echo BOOM', [axis])
    report = reduce_spec(spec, "--max-trials", "2").json()
    (tmp_path / "f.txt").write_text("a\nb\nc\nd\ne\n")
    done = reduce_spec(spec, "--resume", report["run_dir"])
    assert done.exit_code == 2
    assert "the axes and the data changed since this run began" in done.stderr


def test_a_failing_candidate_that_is_not_under_load_is_rejected_as_that(tmp_path: Path) -> None:
    script = 'echo "step_time: $((N / 10)) ms"; echo BOOM'
    spec = write_spec(tmp_path, script, [numeric("N", 1000, 10)], gate={"min_step_time_ms": 20})
    report = reduce_spec(spec).json()
    assert finals(report) == {"N": 200}
    rejected = [line for line in trace_of(run_dir_of(report, tmp_path)) if not line["accepted"]]
    assert "not under load: a step took 1 ms" in rejected[0]["trials"][0]["why"]


def test_another_failure_is_not_followed(tmp_path: Path) -> None:
    script = (
        '[ "$N" -lt 100 ] && { echo "ImportError: no module" >&2; exit 1; }\n'
        '[ "$N" -ge 200 ] && { echo "ValueError: loss is $N" >&2; exit 1; }\nexit 0\n'
    )
    spec = write_spec(tmp_path, script, [numeric("N", 1000, 1)], oracle={"kind": "exit_code"})
    report = reduce_spec(spec).json()
    assert finals(report) == {"N": 200}
    assert "ValueError" in report["signature"]


def test_mitigations_are_honoured_and_bare_turns_them_off(tmp_path: Path) -> None:
    script = '[ "$ATEN_CPU_CAPABILITY" = default ] && [ "$N" -ge 1 ] && echo BOOM'
    keys: dict[str, Any] = {"mitigations": ["aten_no_vectors"]}
    spec = write_spec(tmp_path, script, [numeric("N", 9, 1)], **keys)
    clean = {"ATEN_CPU_CAPABILITY": "avx2"}
    with_it = reduce_spec(spec, env=clean)
    assert with_it.exit_code == 0, with_it.stderr
    report = with_it.json()
    assert report["mitigations"] == ["aten_no_vectors"]
    assert report["shipped_copy"]["self_contained"] is True
    run_dir = run_dir_of(report, tmp_path)
    env = json.loads((run_dir / "shrunken" / "env.json").read_text())
    assert env["env_vars"]["ATEN_CPU_CAPABILITY"] == "default"
    assert "aten_no_vectors" in (run_dir / "shrunken" / "recipe.resolved.yaml").read_text()
    assert reduce_spec(spec, "--bare", env=clean).json()["status"] == "did_not_reproduce"


def test_a_candidate_that_never_ends_is_an_error_and_no_evidence(tmp_path: Path) -> None:
    script = '[ "$N" -lt 50 ] && sleep 600; [ "$N" -ge 100 ] && echo BOOM'
    spec = write_spec(tmp_path, script, [numeric("N", 200, 49)])
    report = reduce_spec(spec, "--timeout", f"{patience(1):.1f}").json()
    assert finals(report) == {"N": 100}
    assert report["axes"][0]["unresolved"] >= 0
    lines = trace_of(run_dir_of(report, tmp_path))
    stuck = [line for line in lines if line["verdict"] == "could not tell"]
    assert [trial["timed_out"] for trial in stuck[0]["trials"]] == [True]


def test_a_hang_is_reduced_by_its_silence(tmp_path: Path) -> None:
    script = 'echo begun; [ "$N" -ge 6 ] && sleep 600; true'
    spec = write_spec(
        tmp_path,
        script,
        [numeric("N", 9, 1)],
        oracle={"kind": "hang", "silent_for": f"{patience(0.3):.1f}s"},
    )
    assert finals(reduce_spec(spec, "--jobs", "2").json()) == {"N": 6}


def test_a_flaky_failure_is_measured_and_kept(tmp_path: Path) -> None:
    fails = next_fails(tmp_path / "count", "FFPFFPFPFF")
    script = f'[ "$N" -ge 40 ] && {fails} && echo BOOM'
    spec = write_spec(tmp_path / "job", script, [numeric("N", 640, 10, tolerance=0.1)], budget={})
    done = reduce_spec(spec, "--jobs", "2")
    assert done.exit_code == 0, done.stderr
    report = done.json()
    assert 40 <= finals(report)["N"] <= 48
    assert 0 < report["original"]["reproduced"] <= report["original"]["of"]
    assert report["confirmed"]["reproduced"] > 0


def test_files_the_copy_lacks_are_noticed_and_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "part-one").write_text("x")
    script = 'name=part; [ -f "./$name-one" ] && echo BOOM'  # looked at, and never opened
    spec = write_spec(tmp_path, script, [numeric("N", 9, 1)])
    report = reduce_spec(spec).json()
    assert report["shipped_copy"]["self_contained"] is False
    run_dir = run_dir_of(report, tmp_path)
    assert "does not fail the same way by itself" in (run_dir / "SHIP.md").read_text()
    named = write_spec(
        tmp_path, script, [numeric("N", 9, 1)],
        workload={"command": "bash fails.sh", "files": ["*.sh", "part-*"]},
    )  # fmt: skip
    assert reduce_spec(named).json()["shipped_copy"]["self_contained"] is True


def test_the_end_is_a_short_table_with_the_next_command(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, '[ "$N" -ge 137 ] && echo BOOM', [numeric("N", 5000, 50)])
    done = aorta("reduce", "--spec", spec, "--output", "out", cwd=tmp_path)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "reduced (1 of 1 reproduced)"
    assert lines[1].split() == ["axis", "from", "to", "trials"]
    assert lines[2].split()[:3] == ["N", "5000", "137"]
    assert "confirmed 1/1" in done.stdout
    assert lines[-1].startswith("next       aorta triage run --recipe out/")
    assert "the original: reproduces" in done.stderr
