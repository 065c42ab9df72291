"""`aorta triage run` as its user types it: the files it leaves, and what they say."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import aorta.engine.snapshots as snapshots
import aorta.triage as room_of_triage
from aorta.core.errors import AortaError
from aorta.probe import EnvSnapshot, collect_env
from aorta.probe.machine import Machine
from aorta.triage.recipe import load_recipe
from aorta.triage.running import check_recipe
from support.aorta_cli import ROOT, Finished, aorta
from support.flaky import next_fails
from support.triage_runs import BASELINE, FIXED, by_name, cell, document, loaded, run, written


def matrix_of(folder: Path, *arguments: str | Path, **content: Any) -> tuple[Finished, Any]:
    cells = content.pop("cells", (BASELINE, FIXED))
    path = written(folder, document(*cells, **content))
    done = aorta("triage", "run", "--recipe", path, "--json", "-q", *arguments, cwd=folder)
    return done, done.json()


def page_of(folder: Path, matrix: dict[str, Any]) -> str:
    run_dir: str = matrix["run_dir"]
    return (folder / run_dir / "matrix.md").read_text()


def test_a_mitigation_that_works_is_told_from_one_that_does_not(tmp_path: Path) -> None:
    done, matrix = matrix_of(
        tmp_path, trials=8, cells=[BASELINE, FIXED, cell("useless", extra_env={"NOTHING": "1"})]
    )
    assert done.exit_code == 0
    assert (matrix["schema"], matrix["schema_version"]) == ("aorta.triage/1", 1)
    cells = by_name(matrix)
    assert {name: entry["call"] for name, entry in cells.items()} == {
        "baseline-local": "(baseline)",
        "fixed": "works",
        "useless": "no effect",
    }
    assert cells["fixed"]["p_value_holm"] <= 0.025
    assert cells["fixed"]["failure_rate"] == 0
    assert cells["baseline-local"]["failure_rate"] == 1
    assert matrix["baseline_cell"] == "baseline-local"


def test_three_against_three_is_not_called_significant(tmp_path: Path) -> None:
    _, matrix = matrix_of(tmp_path, trials=3)
    fixed = by_name(matrix)["fixed"]
    assert (fixed["trials"], fixed["call"]) == (3, "not known")
    assert fixed["p_value"] == 0.05
    page = page_of(tmp_path, matrix)
    assert "3 of 3 against 0 of 3 may be luck" in page


def test_what_too_few_trials_cannot_show_is_not_said_of_what_they_did(tmp_path: Path) -> None:
    now_and_then = next_fails(tmp_path / "count", "FPP")
    _, matrix = matrix_of(
        tmp_path,
        script=f'[ -z "$ALWAYS" ] && ! {now_and_then} || exit 1',
        trials=3,
        cells=[BASELINE, cell("worse-if-anything", extra_env={"ALWAYS": "1"})],
    )
    found = by_name(matrix)["worse-if-anything"]
    assert (found["failed_count"], found["call"]) == (3, "no effect")
    assert "cannot show that anything works" in matrix["warnings"][0]

    (tmp_path / "count").unlink()
    few = cell("few", extra_env={"NOTHING": "1"}, trials=1)
    _, matrix = matrix_of(tmp_path, trials=8, cells=[BASELINE, FIXED, few])
    assert by_name(matrix)["fixed"]["call"] == "works"
    assert "1 trials a cell cannot show that few works" in matrix["warnings"][0]


def test_the_speed_column_says_nothing_of_rates_that_the_answer_does_not(tmp_path: Path) -> None:
    script = f'echo "step time: 16 ms"; {next_fails(tmp_path / "count", "FP")} && exit 1 || exit 0'
    inert = cell("inert", "hip_launch_blocking")
    _, matrix = matrix_of(tmp_path, script=script, trials=4, cells=[BASELINE, inert])
    found = by_name(matrix)["inert"]
    assert found["call"] == "inert"
    assert found["confound"] == "-"


def test_a_baseline_that_fails_otherwise_did_not_pass(tmp_path: Path) -> None:
    script = 'echo "ValueError: odd $$" >&2; exit 2'
    oracle = {"kind": "exit_code", "codes": [1]}
    content = {"workload_config": {"command": script, "oracle": oracle}, "trials": 4}
    _, matrix = matrix_of(tmp_path, **content)
    others = by_name(matrix)["baseline-local"]["other_count"]
    said = f"never showed this failure in {others} trials, and failed in another way in {others}:"
    assert said in matrix["warnings"][0]


def test_the_run_directory_holds_what_is_promised(tmp_path: Path) -> None:
    image = cell("img", environment={"docker": "no.such/image:1"})
    _, matrix = matrix_of(tmp_path, cells=[BASELINE, image], trials=1, ticket="T/1")
    run_dir = tmp_path / matrix["run_dir"]
    parts = run_dir.relative_to(tmp_path / "triage_results").parts
    assert parts[:2] == ("T_1", "command")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d", parts[2])
    inline = "_inline_" + by_name(matrix)["img"]["environment"].removeprefix("_inline_")
    for name in (
        "matrix.md",
        "matrix.json",
        "recipe.resolved.yaml",
        "host_env.json",
        "environments/local/env.json",
        f"environments/{inline}/env.json",
        "cells/baseline-local/command/trial_d0_m0_t0.json",
    ):
        assert (run_dir / name).is_file(), name
    stored = json.loads((run_dir / "matrix.json").read_text())
    assert {**stored, "run_dir": matrix["run_dir"]} == matrix


def test_no_ticket_has_a_directory_of_its_own(tmp_path: Path) -> None:
    _, matrix = matrix_of(tmp_path, trials=1)
    assert matrix["run_dir"].startswith("triage_results/_no_ticket_/command/")


def test_the_resolved_environment_and_variables_are_in_the_matrix(tmp_path: Path) -> None:
    _, matrix = matrix_of(
        tmp_path, trials=1, extra_env={"A": "recipe", "FIXED": "", "API_TOKEN": "hunter2hunter2"}
    )
    fixed = by_name(matrix)["fixed"]
    assert fixed["resolved_env_vars"]["A"] == "recipe"
    assert fixed["resolved_env_vars"]["FIXED"] == "1", "a cell's own variables win"
    assert fixed["resolved_env_vars"]["API_TOKEN"] == "<redacted>"
    assert fixed["extra_env"] == {"FIXED": "1"}
    place = fixed["resolved_environment"]
    assert (place["name"], place["docker"], place["inline"]) == ("local", None, False)


def test_the_trial_record_holds_the_snapshot_with_the_variables_of_its_cell(tmp_path: Path) -> None:
    cells = [BASELINE, cell("one", "omp_one_thread")]
    _, matrix = matrix_of(tmp_path, cells=cells, trials=1)
    path = tmp_path / matrix["run_dir"] / by_name(matrix)["one"]["trial_paths"][0]
    record = json.loads(path.read_text())
    assert record["env"]["env_vars"]["OMP_NUM_THREADS"] == "1"
    assert record["trial_id"] == "command_d0_m1_t0"
    assert record["mitigations_applied"] == ["omp_one_thread"]


def test_trial_paths_go_by_number(tmp_path: Path) -> None:
    _, matrix = matrix_of(tmp_path, "--jobs", "2", cells=[BASELINE], trials=11)
    names = [Path(path).name for path in by_name(matrix)["baseline-local"]["trial_paths"]]
    assert names == [f"trial_d0_m0_t{number}.json" for number in range(11)]


def test_the_page_reads_well_in_a_ticket(tmp_path: Path) -> None:
    odd = cell("odd", extra_env={"NOTHING": "1"})
    _, matrix = matrix_of(tmp_path, cells=[BASELINE, FIXED, odd], ticket="T-1")
    page = page_of(tmp_path, matrix)
    assert page.startswith("# Triage Matrix - command\n")
    for line in (
        "- Ticket: T-1",
        "- Trials per cell: 6 at most",
        "- Baseline cell: baseline-local",
    ):
        assert line in page
    assert re.search(r"- Recipe: .*recipe\.json \(sha256 [0-9a-f]{10}\)", page)
    head = next(line for line in page.splitlines() if line.startswith("| Cell"))
    titles = [title.strip() for title in head.strip("|").split("|")]
    assert titles[:5] == ["Cell", "Mitigations", "Environment", "Failure rate", "Failures"]
    assert {"Mean step (ms)", "Confound", "Answer"} < set(titles)
    assert "Trials" not in titles
    assert "Errors" not in titles, "a column without anything in it is left out"
    table = [line for line in page.splitlines() if line.startswith("|")]
    assert len({len(line) for line in table}) == 1, "the columns are aligned"
    assert "- `baseline-local`: exit 1 | ValueError: lost bit <*> (" in page
    assert "NaN rate" not in page
    assert "captures the registry state" not in page
    assert "mean what they mean then" in page


def test_a_failure_of_another_kind_is_no_reproduction_and_no_cure(tmp_path: Path) -> None:
    script = (
        'if [ -n "$CRASH" ]; then echo "ImportError: gone" >&2; exit 1; fi; '
        'echo "ValueError: bad" >&2; exit 1'
    )
    cells = [BASELINE, cell("crash", extra_env={"CRASH": "1"})]
    _, matrix = matrix_of(tmp_path, cells=cells, script=script)
    crash = by_name(matrix)["crash"]
    assert (crash["failed_count"], crash["call"]) == (0, "other failure")
    assert crash["other_count"] == crash["trials"]
    assert crash["failure_hints"][0][0] == "exit 1 | ImportError: gone"


def test_a_cell_that_never_ran_tells_no_story(tmp_path: Path) -> None:
    missing = cell("missing", workload_config={"command": ["/no/such/thing"]})
    done, matrix = matrix_of(tmp_path, cells=[BASELINE, missing, FIXED])
    cells = by_name(matrix)
    assert done.exit_code == 0
    assert (cells["missing"]["call"], cells["missing"]["confound"]) == (
        "did not run",
        "did_not_run",
    )
    assert "No such file or directory" in cells["missing"]["error"]
    assert cells["missing"]["trials"] == 3, "given up, not tried again and again"
    assert cells["missing"]["mean_step_time_ms"] == 0
    assert cells["fixed"]["call"] == "works", "the matrix is complete all the same"
    row = next(line for line in page_of(tmp_path, matrix).splitlines() if "| missing" in line)
    assert "did not run: " in row
    assert "n/a" in row


def test_a_set_up_that_fails_is_no_reproduction(tmp_path: Path) -> None:
    content = document(BASELINE, trials=2, steps=1, workload="support.ailing_workloads:SetupRaises")
    del content["workload_config"]
    path = written(tmp_path, content)
    done = aorta(
        "triage", "run", "--recipe", path, "--json", "-q", "--output-dir", tmp_path / "out",
        cwd=ROOT / "tests",
    )  # fmt: skip
    baseline = by_name(done.json())["baseline-local"]
    assert baseline["failed_count"] == 0
    assert set(baseline["exit_status_counts"]) == {"workload_setup_failed"}
    assert done.exit_code == 5
    assert "no trial could tell: set-up failed: RuntimeError: no device" in done.stderr


def test_a_baseline_that_did_not_run_is_no_answer_while_others_ran(tmp_path: Path) -> None:
    missing = {**BASELINE, "workload_config": {"command": "no_such_command_at_all"}}
    done, _ = matrix_of(tmp_path, cells=[missing, FIXED], trials=1)
    assert done.exit_code == 3
    assert "the baseline baseline-local did not run" in done.stderr


def test_strict_is_exit_1_when_a_cell_did_not_run_and_only_then(tmp_path: Path) -> None:
    missing = cell("missing", workload_config={"command": ["/no/such/thing"]})
    done, _ = matrix_of(tmp_path, "--strict", cells=[BASELINE, missing], trials=1)
    assert done.exit_code == 1
    assert "did not run: missing" in done.stderr
    done, _ = matrix_of(tmp_path, "--strict", trials=1)
    assert done.exit_code == 0, "a cell that ran and failed is an answer"


def test_a_mitigation_that_nothing_reads_or_that_is_already_set_so_is_marked_inert(
    tmp_path: Path,
) -> None:
    cells = [
        BASELINE,
        cell("no-tf32", "tf32_off"),
        cell("again"),
        cell("set", "aten_no_vectors"),
        cell("acts", "onednn_max_isa_avx2"),
    ]
    path = written(tmp_path, document(*cells, trials=1))
    matrix = aorta(
        "triage", "run", "--recipe", path, "--json", "-q",
        cwd=tmp_path, env={"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "ALL"},
    ).json()  # fmt: skip
    found = by_name(matrix)
    assert found["again"]["call"] == "inert"
    assert found["no-tf32"]["call"] == "inert"
    assert "no library reads" in found["no-tf32"]["inert"]
    assert "already has this value here" in found["set"]["inert"]
    assert found["acts"]["inert"] is None
    assert "already has this value here" in page_of(tmp_path, matrix)


def test_a_baseline_that_never_fails_is_said_on_top(tmp_path: Path) -> None:
    done, matrix = matrix_of(tmp_path, script="true", trials=2)
    assert done.exit_code == 0
    assert "never failed in 2 trials: no mitigation can be seen to work" in matrix["warnings"][0]
    page = page_of(tmp_path, matrix)
    assert page.index("> [!WARNING]") < page.index("- Workload")


def test_sidecars_are_copied_and_the_copies_are_what_runs_again(tmp_path: Path) -> None:
    sidecar = written(
        tmp_path, {"version": 1, "mitigations": {"mine": {"FIXED": "1"}}}, "more.json"
    )
    path = written(tmp_path, document(BASELINE, cell("mine", "mine"), trials=1))
    done = aorta(
        "triage", "run", "--recipe", path, "--mitigations-file", sidecar, "-q", cwd=tmp_path
    )
    assert done.exit_code == 0, done.stderr
    results = next(line for line in done.stdout.splitlines() if line.startswith("results: "))
    run_dir = tmp_path / results.removeprefix("results: ")
    assert (run_dir / "sidecars/more.json").read_bytes() == sidecar.read_bytes()
    sidecar.write_text("changed since")
    again = aorta(
        "triage", "run", "--recipe", run_dir / "recipe.resolved.yaml", "--json", "-q", cwd=tmp_path
    )
    assert again.exit_code == 0, again.stderr
    assert by_name(again.json())["mine"]["resolved_env_vars"] == {"FIXED": "1"}


def test_a_recipe_loaded_with_sidecars_runs_with_them(tmp_path: Path) -> None:
    sidecar = written(
        tmp_path, {"version": 1, "mitigations": {"mine": {"FIXED": "1"}}}, "more.json"
    )
    path = written(tmp_path, document(BASELINE, cell("mine", "mine"), trials=1))
    finished = run(load_recipe(path, [sidecar, sidecar]), tmp_path / "out")
    rows = {row.name: row for row in finished.rows}
    assert rows["mine"].stats.tally.clean == 1


def test_the_host_is_probed_once_and_each_environment_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Machine | None] = []

    def counted(machine: Machine | None = None) -> EnvSnapshot:
        calls.append(machine)
        return collect_env(machine)

    monkeypatch.setattr(snapshots, "collect_env", counted)
    cells = [BASELINE, FIXED, cell("img", environment={"docker": "no.such/image:1"})]
    finished = run(loaded(tmp_path, *cells, trials=1), tmp_path / "out")
    assert len(calls) == 2, "the host, and the local environment"
    boxed = json.loads(next(finished.run_dir.glob("environments/_inline_*/env.json")).read_text())
    assert boxed["snapshot_captured"] is False
    assert boxed["skip_reason"]
    assert boxed["descriptor"]["docker"] == "no.such/image:1"
    assert any("environment:_inline_" in warning for warning in finished.warnings)
    assert json.loads((finished.run_dir / "host_env.json").read_text())["schema_version"]


def test_a_partial_snapshot_is_a_warning_that_names_its_scope(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial = {"schema_version": "1.0", "partial": True, "partial_reasons": ["rocm: none"]}
    monkeypatch.setattr("aorta.triage.running.host_snapshot", lambda: partial)
    finished = run(loaded(tmp_path, trials=1), tmp_path / "out")
    page = (finished.run_dir / "matrix.md").read_text()
    assert "> host: the snapshot is partial: rocm: none" in page
    assert finished.ending.trials == 2


def test_environments_that_would_share_a_directory_are_refused_before_anything_exists(
    tmp_path: Path,
) -> None:
    boxes = {"a/b": {"docker": "i:1"}, "a:b": {"docker": "i:2"}}
    sidecar = written(tmp_path, {"version": 1, "environments": boxes}, "more.json")
    cells = [BASELINE, cell("x", environment="a/b"), cell("y", environment="a:b")]
    path = written(tmp_path, document(*cells))
    for extra in ([], ["--dry-run"]):
        done = aorta(
            "triage", "run", "--recipe", path, "--mitigations-file", sidecar, *extra, cwd=tmp_path
        )
        assert done.exit_code == 2
        assert "'a/b' and 'a:b' would share the directory environments/a_b" in done.stderr
        assert done.stderr.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["more.json", "recipe.json"]


def test_a_dry_run_refuses_what_a_run_refuses_and_leaves_nothing(tmp_path: Path) -> None:
    cells = [cell("a", "xnack"), cell("b", "tf32_off")]
    path = written(tmp_path, document(*cells))
    for extra in ([], ["--dry-run"]):
        done = aorta("triage", "run", "--recipe", path, *extra, cwd=tmp_path)
        assert done.exit_code == 2
        assert "no cell can be the baseline" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["recipe.json"]


def test_a_dry_run_says_what_each_cell_sets_and_the_trials(tmp_path: Path) -> None:
    path = written(tmp_path, document(BASELINE, FIXED, trials=4))
    words: list[str | Path] = ["triage", "run", "--recipe", path]
    first = aorta(*words, "--dry-run", cwd=tmp_path)
    assert first.exit_code == 0
    assert "sets       FIXED=1" in first.stdout
    assert "at most 8 trials" in first.stdout
    told = aorta(*words, "--dry-run", "--json", cwd=tmp_path).json()
    assert [one["trials"] for one in told["cells"]] == [4, 4]
    assert [p.name for p in tmp_path.iterdir()] == ["recipe.json"]


def test_the_same_second_never_shares_a_directory(tmp_path: Path) -> None:
    recipe = loaded(tmp_path, BASELINE, trials=1, script="true")
    found = {run(recipe, tmp_path / "out").run_dir for _ in range(4)}
    assert len(found) == 4


def test_an_unknown_workload_is_said_when_the_recipe_runs(tmp_path: Path) -> None:
    content = document(BASELINE, workload="nobody", steps=1)
    recipe = load_recipe(written(tmp_path, {**content, "workload_config": {}}))
    with pytest.raises(AortaError, match="unknown workload 'nobody'"):
        check_recipe(recipe)


def test_a_workload_that_one_cell_alone_does_not_know_is_that_cells_error(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    about = plugin / "site_plugin-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: site-plugin\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[aorta.workloads]\nmine = mine:Mine\n")
    (plugin / "mine.py").write_text(
        "from aorta.workloads.base import Workload, WorkloadResult\n"
        "class Mine(Workload):\n"
        "    def setup(self): pass\n"
        "    def run(self): return WorkloadResult(passed=True, main_work_started=True)\n"
    )
    knows = cell("knows", extra_env={"PYTHONPATH": str(plugin)})
    content = {
        **document(BASELINE, knows, workload="mine", steps=1, trials=1),
        "workload_config": {},
    }
    path = written(tmp_path, content)
    matrix = aorta("triage", "run", "--recipe", path, "--json", "-q", cwd=tmp_path).json()
    cells = by_name(matrix)
    assert cells["knows"]["passed_count"] == 1
    assert cells["baseline-local"]["call"] == "did not run"
    assert "unknown workload 'mine'" in page_of(tmp_path, matrix)


def test_cells_must_look_for_one_failure(tmp_path: Path) -> None:
    other = cell("other", workload_config={"oracle": {"kind": "regex", "pattern": "NaN"}})
    with pytest.raises(AortaError, match="a matrix compares one failure"):
        check_recipe(loaded(tmp_path, BASELINE, other))


def test_under_torchrun_a_matrix_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, document())
    done = aorta("triage", "run", "--recipe", path, cwd=tmp_path, env={"WORLD_SIZE": "2"})
    assert done.exit_code == 2
    assert "put the launcher behind --" in done.stderr


def test_logs_of_clean_trials_go_where_the_recipe_says_so(tmp_path: Path) -> None:
    _, matrix = matrix_of(tmp_path, save_logs=False, trials=1)
    cells = by_name(matrix)
    for name, kept in (("baseline-local", True), ("fixed", False)):
        record = json.loads(
            (tmp_path / matrix["run_dir"] / cells[name]["trial_paths"][0]).read_text()
        )
        assert (tmp_path / record["process"]["stderr"]).exists() is kept


def test_trials_are_interleaved_and_the_baseline_is_first(tmp_path: Path) -> None:
    cells = [cell(name, extra_env={"WHO": name}) for name in ("baseline-x", "b", "c", "d")]
    recipe = loaded(tmp_path, *cells, script=f"echo $WHO >> {tmp_path / 'log'}", trials=3)
    run(recipe, tmp_path / "out")
    ran = (tmp_path / "log").read_text().split()
    assert ran[:2] == ["baseline-x"] * 2
    assert set(ran[2:5]) == {"b", "c", "d"}, "each has its first trial before any has its second"


def test_the_room_starts_no_process_of_its_own() -> None:
    room = Path(room_of_triage.__file__).parent
    forbidden = re.compile(r"\bsubprocess\b|os\.system|os\.popen|os\.exec|os\.spawn|pty\.")
    assert [p.name for p in room.glob("*.py") if forbidden.search(p.read_text())] == []


def test_the_shipped_example_runs_as_it_is(tmp_path: Path) -> None:
    recipe = ROOT / "examples/triage/half_nan.yaml"
    done = aorta("triage", "run", "--recipe", recipe, "--jobs", "2", "--json", "-q", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    cells = by_name(done.json())
    assert cells["check-overflow"]["failed_count"] == 0
    assert cells["baseline-local"]["failed_count"] > 0
    assert cells["no-tf32"]["call"] == "inert"
    assert cells["baseline-local"]["step_time_source"] == "per_step"


# Every second trial of a cell fails, whatever the cell: a count in a file of its own.
EVERY_SECOND = (
    'n=$(cat "$COUNT" 2>/dev/null || echo 0); echo $((n + 1)) > "$COUNT"; '
    '[ $((n % 2)) = 0 ] || { echo "ValueError: now and then" >&2; exit 1; }'
)


def counting(folder: Path, *names: str) -> list[dict[str, Any]]:
    return [cell(name, extra_env={"COUNT": str(folder / f"{name}.count")}) for name in names]


@pytest.mark.parametrize("trials", [3, 5])
def test_asking_for_more_trials_never_gives_a_cell_fewer(tmp_path: Path, trials: int) -> None:
    _, matrix = matrix_of(
        tmp_path,
        "--jobs", "2",
        cells=counting(tmp_path, "baseline-local", "a", "b"),
        trials=trials,
        workload_config={"command": EVERY_SECOND},
    )  # fmt: skip
    found = by_name(matrix)
    assert all(entry["trials"] >= min(trials, 4) for entry in found.values()), found
    assert {found[name]["call"] for name in "ab"} == {"not known"}


def test_a_cell_that_later_trials_of_the_baseline_put_in_doubt_goes_on(tmp_path: Path) -> None:
    """It had been left as one without effect, and five of its trials were never run."""
    job = (
        '[ "$KIND" = cure ] && exit 0; [ "$KIND" = none ] || { echo x >> met; '
        'case $(wc -l < met) in 6|7) exit 0;; esac; }; echo "ValueError: boom" >&2; exit 1'
    )
    _, matrix = matrix_of(
        tmp_path,
        cells=[BASELINE, *(cell(kind, extra_env={"KIND": kind}) for kind in ("none", "cure"))],
        trials=10,
        workload_config={"command": job},
    )
    found = by_name(matrix)
    assert found["baseline-local"]["passed_count"] == 2
    assert {name: found[name]["call"] for name in ("none", "cure")} == {
        "none": "no effect",
        "cure": "works",
    }


def test_one_error_rate_is_stated_for_the_whole_matrix(tmp_path: Path) -> None:
    _, matrix = matrix_of(tmp_path)
    stated = matrix["significance"]
    assert (stated["any_wrong_call"], stated["alpha"]) == (0.05, 0.025)
    assert stated["statement"] in page_of(tmp_path, matrix)


def test_the_page_says_why_a_bare_exit_status_came(tmp_path: Path) -> None:
    script = "echo 'libfoo: no such device 3' >&2; exit 3"
    missing = cell("missing", environment={"docker": "no.such/image:1"})
    _, matrix = matrix_of(
        tmp_path, cells=[BASELINE, missing], trials=2, workload_config={"command": script}
    )
    page = page_of(tmp_path, matrix)
    assert "libfoo: no such device <*>" in page
    why = by_name(matrix)["missing"]["error"]
    assert why
    assert f"did not run: {why.splitlines()[0][:20]}" in page


def test_the_failure_looked_for_is_the_baselines_whoever_failed_first(tmp_path: Path) -> None:
    """The baseline is clean at first, while another cell fails otherwise from the start."""
    late = (
        'if [ -n "$BROKEN" ]; then echo "OSError: no device" >&2; exit 3; fi; '
        'n=$(cat "$COUNT" 2>/dev/null || echo 0); echo $((n + 1)) > "$COUNT"; '
        '[ $n -lt 4 ] || { echo "ValueError: now" >&2; exit 1; }'
    )
    baseline = counting(tmp_path, "baseline-local")[0]
    _, matrix = matrix_of(
        tmp_path,
        cells=[baseline, cell("broken", extra_env={"BROKEN": "1"})],
        trials=6,
        workload_config={"command": late},
    )
    found = by_name(matrix)
    assert found["baseline-local"]["failed_count"] >= 1
    assert found["broken"]["failed_count"] == 0
    assert found["broken"]["other_count"] == found["broken"]["trials"] >= 4
    assert found["broken"]["call"] == "other failure"


def test_what_varies_in_the_words_of_a_failure_is_the_baselines_to_teach(tmp_path: Path) -> None:
    """A cell that shows the baseline's failure at first, and then another one without exception."""
    words = (
        'n=$(cat "$COUNT" 2>/dev/null || echo 0); echo $((n + 1)) > "$COUNT"; '
        'if [ -n "$WEAK" ] && [ $n -gt 0 ]; then echo "ERROR: disk quota of job is used up" >&2; '
        'else echo "ERROR: ledger quota of job is out of balance" >&2; fi; exit 1'
    )
    baseline, weak = counting(tmp_path, "baseline-local", "weak")
    weak["extra_env"]["WEAK"] = "1"
    _, matrix = matrix_of(tmp_path, cells=[baseline, weak], trials=6, script=words)
    found = by_name(matrix)
    assert found["baseline-local"]["other_count"] == 0
    assert found["weak"]["failed_count"] == 1
    assert found["weak"]["other_count"] == found["weak"]["trials"] - 1
