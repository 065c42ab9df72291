"""Each kind of axis on a real process, down to its true minimum."""

import subprocess
from pathlib import Path

from support.aorta_cli import aorta
from support.reductions import finals, numeric, reduce_spec, run_dir_of, trace_of, write_spec


def test_a_whole_number_goes_to_its_exact_minimum(tmp_path: Path) -> None:
    spec = write_spec(
        tmp_path, '[ "$N" -ge 137 ] && echo BOOM', [numeric("N", 5000, 50, monotone=True)]
    )
    done = reduce_spec(spec)
    assert done.exit_code == 0, done.stderr
    report = done.json()
    assert finals(report) == {"N": 137}
    assert report["trials"] <= 25
    assert report["axes"][0]["monotone"] is True


def test_a_number_that_fails_at_its_floor_costs_one_candidate(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, '[ "$N" -ge 1 ] && echo BOOM', [numeric("N", 5000, 50)])
    report = reduce_spec(spec).json()
    assert finals(report) == {"N": 50}
    assert report["candidates"] == 1


def test_a_tolerance_stops_early_and_a_step_is_kept(tmp_path: Path) -> None:
    axes = [numeric("LOOSE", 5000, 50, tolerance=0.1), numeric("STEPPED", 5000, 40, step=20)]
    script = '[ "$LOOSE" -ge 137 ] && [ "$STEPPED" -ge 137 ] && echo BOOM'
    found = finals(reduce_spec(write_spec(tmp_path, script, axes)).json())
    assert 137 <= found["LOOSE"] <= 151
    assert found["STEPPED"] == 140


def test_a_real_number_goes_within_its_tolerance(tmp_path: Path) -> None:
    axis = {
        "name": "LR", "kind": "env", "type": "float", "initial": 1, "floor": 0.001, "tolerance": 0.05,
    }  # fmt: skip
    script = "awk -v x=\"$LR\" 'BEGIN { exit !(x >= 0.031) }' && echo BOOM"
    final = finals(reduce_spec(write_spec(tmp_path, script, [axis])).json())["LR"]
    assert 0.031 <= final <= 0.031 * 1.05


def test_a_linear_strategy_walks_down_in_steps(tmp_path: Path) -> None:
    axis = {
        "name": "N", "kind": "env", "type": "int", "initial": 10, "floor": 2, "step": 2,
        "strategy": "linear",
    }  # fmt: skip
    report = reduce_spec(write_spec(tmp_path, '[ "$N" -ge 5 ] && echo BOOM', [axis])).json()
    assert finals(report) == {"N": 6}


def test_a_choice_takes_the_most_wanted_that_fails(tmp_path: Path) -> None:
    axis = {
        "name": "DTYPE",
        "kind": "env",
        "type": "choice",
        "choices": ["fp8", "bf16", "fp32"],
        "initial": "fp8",
    }
    script = '[ "$DTYPE" != fp32 ] && echo BOOM'
    report = reduce_spec(write_spec(tmp_path, script, [axis])).json()
    assert finals(report) == {"DTYPE": "bf16"}


def test_lines_of_a_file_are_reduced_and_pinned_ones_stay(tmp_path: Path) -> None:
    rows = [f"row{number}" for number in range(40)]
    (tmp_path / "rows.csv").write_text("name\nunit\n" + "\n".join(rows) + "\n")
    axis = {
        "name": "ROWS",
        "kind": "file_subset",
        "initial": "rows.csv",
        "header": 2,
    }
    script = (
        'grep -qx name "$ROWS" && grep -qx unit "$ROWS" || exit 3\n'
        'grep -qx row7 "$ROWS" && grep -qx row31 "$ROWS" && echo BOOM\n'
    )
    report = reduce_spec(write_spec(tmp_path, script, [axis])).json()
    assert finals(report) == {"ROWS": 2}
    assert report["axes"][0]["final_items"] == ["row7", "row31"]
    kept = run_dir_of(report, tmp_path) / "shrunken" / "rows.csv"
    assert kept.read_text() == "name\nunit\nrow7\nrow31\n"


LOOKS = (
    'grep -rqs broken "$SHARDS"',
    'tar -cf - -C "$SHARDS" . | grep -q broken',
    'find "$SHARDS" -type f -name bad | grep -q .',
    (
        "python3 -c \"import os; print([f for _, _, fs in os.walk(os.environ['SHARDS']) for f in "
        'fs])" | grep -q bad'
    ),
)


def test_files_of_a_folder_are_real_files_in_a_trial_and_in_what_ships(tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    (shards / "deep").mkdir(parents=True)
    for number in range(12):
        (shards / f"s{number}").write_text("fine")
    (shards / "deep" / "bad").write_text("broken")
    axis = {"name": "SHARDS", "kind": "dir_subset", "initial": "shards"}
    report = reduce_spec(write_spec(tmp_path, f"{' && '.join(LOOKS)} && echo BOOM", [axis])).json()
    assert report["axes"][0]["final_items"] == ["deep/bad"]
    shipped = run_dir_of(report, tmp_path) / "shrunken" / "shards" / "deep" / "bad"
    assert shipped.read_text() == "broken"
    assert not shipped.is_symlink()


def test_a_list_in_a_variable_is_reduced(tmp_path: Path) -> None:
    axis = {"name": "LAYERS", "kind": "list", "initial": "a,b,c,d,e,f,g,h"}
    script = 'case ",$LAYERS," in *,c,*) case ",$LAYERS," in *,g,*) echo BOOM;; esac;; esac'
    report = reduce_spec(write_spec(tmp_path, script, [axis])).json()
    assert report["axes"][0]["final_items"] == ["c", "g"]


def test_a_list_with_another_separator_has_as_many_items(tmp_path: Path) -> None:
    axis = {"name": "LAYERS", "kind": "list", "initial": "a;b;c;d;e", "separator": ";"}
    script = 'case ";$LAYERS;" in *";c;"*) case ";$LAYERS;" in *";e;"*) echo BOOM;; esac;; esac'
    report = reduce_spec(write_spec(tmp_path, script, [axis])).json()
    assert (report["axes"][0]["initial"], report["axes"][0]["final_items"]) == (5, ["c", "e"])


def test_a_window_closes_around_the_steps_that_matter(tmp_path: Path) -> None:
    axis = {
        "name": "steps",
        "kind": "window",
        "start": "FIRST",
        "length": "COUNT",
        "initial": [0, 100],
    }
    script = '[ "$FIRST" -le 40 ] && [ $((FIRST + COUNT)) -gt 42 ] && echo BOOM'
    spec = write_spec(tmp_path, script, [axis])
    done = aorta("reduce", "--spec", spec, "--output", "out", "--json", cwd=tmp_path)
    assert finals(done.json()) == {"steps": [40, 3]}
    assert "steps=40+3: reproduces" in done.stderr
    assert " items" not in done.stderr
    trace = trace_of(run_dir_of(done.json(), tmp_path))
    assert trace[-1]["values"] == {"steps": [40, 3]}
    run_dir = run_dir_of(done.json(), tmp_path)
    again = aorta("reduce", "--spec", spec, "--resume", run_dir, "--json", "-q", cwd=tmp_path)
    assert again.json()["resumed_trials"] == again.json()["trials"]


def test_ranks_inside_a_script_are_given_by_variables(tmp_path: Path) -> None:
    axis = {"name": "WORLD", "kind": "world_size", "initial": 8, "floor": 1}
    script = '[ "$PET_NPROC_PER_NODE" = "$WORLD" ] && [ "$WORLD" -ge 3 ] && echo BOOM'
    assert finals(reduce_spec(write_spec(tmp_path, script, [axis])).json()) == {"WORLD": 3}


def test_a_subset_of_ranks_names_the_needed_ones(tmp_path: Path) -> None:
    axis = {"name": "RANKS", "kind": "ranks", "initial": 8}
    script = 'case ",$RANKS," in *,5,*) echo BOOM;; esac'
    report = reduce_spec(write_spec(tmp_path, script, [axis])).json()
    assert report["axes"][0]["final_items"] == ["5"]
    assert report["axes"][0]["final"] == 1


def test_an_axis_that_is_not_monotone_is_reported_so(tmp_path: Path) -> None:
    script = '[ "$N" -ge 900 ] || { [ "$N" -ge 100 ] && [ "$N" -le 220 ]; } && echo BOOM'
    report = reduce_spec(write_spec(tmp_path, script, [numeric("N", 1000, 50)])).json()
    assert finals(report)["N"] <= 1000
    done = subprocess.run(
        ["bash", "fails.sh"], cwd=tmp_path, env={"N": str(finals(report)["N"]), "PATH": "/bin"},
        capture_output=True, check=False,
    )  # fmt: skip
    assert b"BOOM" in done.stdout


def test_several_axes_settle_together(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("".join(f"l{number}\n" for number in range(8)))
    script = '[ $((A + B)) -ge 70 ] && [ "$B" -ge 20 ] && grep -qx l5 "$LINES" && echo BOOM'
    axes = [
        numeric("A", 80, 10),
        numeric("B", 60, 10),
        {"name": "LINES", "kind": "file_subset", "initial": "lines.txt"},
    ]
    found = finals(reduce_spec(write_spec(tmp_path, script, axes), "--jobs", "2").json())
    assert found["A"] + found["B"] == 70
    assert found["B"] >= 20
    assert found["LINES"] == 1


def test_priority_and_not_the_order_decides_which_axis_gives_way_first(tmp_path: Path) -> None:
    axes = [numeric("A", 9, 1, priority=2), numeric("B", 9, 1, priority=1)]
    spec = write_spec(tmp_path, "[ $((A + B)) -ge 10 ] && echo BOOM", axes)
    assert finals(reduce_spec(spec).json()) == {"A": 9, "B": 1}


def test_a_trial_that_appends_to_its_files_leaves_the_originals_alone(tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    shards.mkdir(parents=True)
    for number in range(4):
        (shards / f"{number}.txt").write_text("bad\n" if number == 2 else "good\n")
    script = (
        'for f in "$SHARDS"/*; do echo seen >> "$f"; done; grep -q bad "$SHARDS"/* && echo BOOM'
    )
    axis = {"name": "SHARDS", "kind": "dir_subset", "initial": "shards"}
    report = reduce_spec(write_spec(tmp_path, script, [axis])).json()
    assert report["axes"][0]["final_items"] == ["2.txt"]
    assert {file.read_text() for file in shards.iterdir()} == {"good\n", "bad\n"}
