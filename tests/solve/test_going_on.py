"""What a solve goes on from: a stop, a budget, and what other verbs know already."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.aorta_cli import aorta, start_aorta
from support.waiting import patience, wait_until

TRAIN = """\
import os
import sys

for step in range(int(os.environ.get("STEPS", "64"))):
    if step == 11:
        sys.exit(f"loss is nan at step {step}")
"""
COMMAND = ("--", "python", "train.py")


def program(place: Path) -> None:
    (place / "train.py").write_text(TRAIN)


def solve(place: Path, *words: str | Path) -> dict[str, Any]:
    done = aorta("solve", "--json", "-q", *words, cwd=place)
    assert done.exit_code in {0, 3, 4}, done.stderr
    return {**done.json(), "exit": done.exit_code}


def test_ctrl_c_leaves_a_partial_answer_that_is_gone_on_with(tmp_path: Path) -> None:
    program(tmp_path)
    process = start_aorta("solve", "--json", "-q", "--skip", "triage", *COMMAND, cwd=tmp_path)
    journal = "solve/*/.aorta/trials.jsonl"
    wait_until(
        lambda: any(f.read_bytes().count(b"\n") >= 3 for f in tmp_path.glob(journal)),
        "three trials",
    )
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=patience())
    assert process.returncode == 130, err
    document = json.loads(out)
    assert document["status"] == "partial"
    again = document["next"][-1]  # behind what there is to run already
    assert again == f"aorta solve --resume {document['run_dir']}"
    assert json.loads((Path(document["run_dir"]) / "solve.json").read_text()) == document
    done = aorta(*again.split()[1:], "--json", "-q", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    assert [axis["final"] for axis in done.json()["reproducer"]["axes"]] == [12]
    assert "The run is running" not in (Path(document["run_dir"]) / "report.html").read_text()


def test_stopped_while_it_tries_its_bundle_it_is_stopped_and_tries_it_again(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, pathlib, time\n"
        "seen = pathlib.Path(os.environ['SEEN'])\n"
        "if 'aorta-rehearsal' in os.getcwd() and not seen.exists():\n"
        "    seen.touch()\n    time.sleep(9999)\n" + TRAIN
    )
    around = {**os.environ, "SEEN": str(tmp_path / "seen")}  # a path in the script is scrubbed
    words = ("solve", "--json", "-q", "--stages", "reproduce,reduce,bundle", *COMMAND)
    process = start_aorta(*words, cwd=tmp_path, env=around)
    wait_until((tmp_path / "seen").exists, "a trial of what was unpacked")
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=patience())
    assert process.returncode == 130, err
    document = json.loads(out)
    assert document["status"] == "partial"
    assert document["reproducer"]["elsewhere"] is None
    again = document["next"][-1].split()[1:]
    done = aorta(*again, "--json", "-q", cwd=tmp_path, env=around)
    assert done.exit_code == 0, done.stderr
    assert done.json()["reproducer"]["elsewhere"] == {"reproduced": 1, "of": 1}
    packed = [str(path) for path in Path(document["run_dir"]).glob("*.tar.gz")]
    assert packed == [done.json()["bundle"]["path"]]


def test_no_trial_more_than_was_allowed_is_run(tmp_path: Path) -> None:
    program(tmp_path)
    document = solve(tmp_path, "--max-trials", "9", *COMMAND)
    assert document["trials"] == 9
    states = {row["name"]: row["status"] for row in document["stages"]}
    assert states["reduce"] == "budget"
    assert any("9 trials are spent" in said for said in document["not_found_out"])


def test_a_budget_of_time_says_what_it_leaves_out(tmp_path: Path) -> None:
    # As soon as there is a reduction its trials take for ever: the budget ends in it however fast
    # the machine is.
    waits = (
        f"import glob, time\nif glob.glob({str(tmp_path / 'solve/*/2-reduce')!r}):\n    "
        "time.sleep(9999)\n"
    )
    (tmp_path / "train.py").write_text(waits + TRAIN)
    budget = f"{patience(5):.0f}s"
    document = solve(tmp_path, "--budget", budget, "--skip", "bundle", *COMMAND)
    assert document["exit"] == 4, document
    left_out = [row for row in document["stages"] if row["status"] == "budget"]
    assert [row["name"] for row in left_out] == ["reduce", "triage"]


def test_a_reduction_is_not_done_again_and_a_finished_solve_runs_nothing(tmp_path: Path) -> None:
    program(tmp_path)
    ran = aorta("run", "-q", "--trials", "1", *COMMAND, cwd=tmp_path)
    assert ran.exit_code == 1
    first = solve(tmp_path, "--stages", "reproduce,reduce", "results/command")
    (stage,) = [row for row in first["stages"] if row["name"] == "reduce"]
    more = solve(tmp_path, "--stages", "reproduce,reduce,bundle", stage["run_dir"])
    assert more["trials"] <= 3  # of the original: how it fails, and that it does so again
    assert {row["name"]: row["trials"] for row in more["stages"]}["reduce"] == 0
    assert more["reproducer"]["axes"] == first["reproducer"]["axes"]
    assert more["reproducer"]["elsewhere"] == {"reproduced": 1, "of": 1}
    assert more["failure"]["class"] == "nan"
    again = solve(tmp_path, more["run_dir"])
    assert (again["trials"], again["bundle"]) == (more["trials"], more["bundle"])


def test_data_and_configurations_that_a_run_opens_shrink_where_they_lie(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    for number in range(3):
        (tmp_path / "shards" / f"s{number}.txt").write_text(f"x{number}\n")
    (tmp_path / "rows.txt").write_text("".join(f"row{n}\n" for n in range(6)))
    (tmp_path / "config.json").write_text('{\n  "layers": 6,\n  "seed": 7\n}\n')
    (tmp_path / "train.py").write_text(
        "import argparse, json, os\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--warmup', type=int, default=9)\n"
        "given = parser.parse_args()\n"
        "rows = open('rows.txt').read().split()\n"
        "layers = json.load(open('config.json'))['layers']\n"
        "shards = [open(f'shards/{n}').read().strip() for n in sorted(os.listdir('shards'))]\n"
        "if {'row1', 'row4'} <= set(rows) and layers >= 4 and 'x1' in shards and given.warmup >= "
        "3:\n"
        "    raise RuntimeError('a bad mix of rows')\n"
    )
    document = solve(tmp_path, "--stages", "reproduce,reduce,bundle", *COMMAND)
    finals = {axis["name"]: axis["final"] for axis in document["reproducer"]["axes"]}
    assert finals == {"WARMUP": 3, "SHARDS_DIR": 1, "CONFIG_LAYERS": 4, "ROWS_FILE": 2}
    assert document["reproducer"]["elsewhere"] == {"reproduced": 1, "of": 1}


def test_numbers_of_a_configuration_that_the_command_names_shrink(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "a.yaml").write_text(
        "net:\n  layers:\n    - 4\n    - 8\n    - 15\n  width: 4\nsteps: 9\nrates: [1, 2, 3]\n"
    )
    (tmp_path / "train.py").write_text(
        "import sys, yaml\n"
        "config = yaml.safe_load(open(sys.argv[2]))\n"
        "total = sum(config['rates'])\n"
        "if 8 in config['net']['layers'] and config['steps'] >= 3 and config['net']['width'] > 1:\n"
        "    raise RuntimeError('a bad mix of settings')\n"
    )
    words = ("--config", "conf/a.yaml")
    document = solve(tmp_path, "--stages", "reproduce,reduce,bundle", *COMMAND, *words)
    finals = {axis["name"]: axis["final"] for axis in document["reproducer"]["axes"]}
    assert finals == {"CONFIG_WIDTH": 2, "CONFIG_STEPS": 3}, "a list of a configuration stays"
    assert document["reproducer"]["elsewhere"] == {"reproduced": 1, "of": 1}
    said = (Path(document["reproducer"]["path"]).parent / "SHIP.md").read_text()
    assert "not in here" not in said
    assert "triage: left out by --stages or --skip" in document["not_found_out"]


def test_a_list_on_the_command_line_shrinks_to_the_items_that_matter(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--layers')\n"
        "given = parser.parse_args()\n"
        "if {'8', '23'} <= set(given.layers.split(',')):\n"
        "    raise RuntimeError('a bad mix of layers')\n"
    )
    words = ("--layers", "4,8,15,16,23,42")
    document = solve(tmp_path, "--stages", "reproduce,reduce", *COMMAND, *words)
    kept = {axis["name"]: axis["final_items"] for axis in document["reproducer"]["axes"]}
    assert kept == {"LAYERS": ["8", "23"]}
    assert document["shared_trials"] == 1  # the look at it


def test_a_dry_run_says_the_plan_and_runs_nothing(tmp_path: Path) -> None:
    program(tmp_path)
    done = aorta("solve", "--dry-run", "--json", *COMMAND, cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    rows = {row["name"]: row for row in done.json()["stages"]}
    assert [*rows] == ["reproduce", "reduce", "triage", "bisect", "diverge", "bundle"]
    assert "no git checkout" in rows["bisect"]["left_out"]
    assert [name for name, row in rows.items() if row["only_if"]] == ["triage", "diverge"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]


def test_what_is_wrong_with_the_command_line_is_said_before_anything_runs(tmp_path: Path) -> None:
    for words in (("--stages", "nonsense", *COMMAND), ("--skip", "reproduce", *COMMAND), ()):
        done = aorta("solve", *words, cwd=tmp_path)
        assert done.exit_code == 2, done.stderr
        assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("verb", ["reduce", "solve", "run"])
def test_a_directory_to_resume_that_is_not_there_is_said(verb: str, tmp_path: Path) -> None:
    done = aorta(verb, "--resume", "nowhere", cwd=tmp_path)
    assert (done.exit_code, done.stderr) == (
        2,
        "aorta: nowhere: there is no run directory of this name\n",
    )


def test_a_stage_can_be_rerun_by_hand(tmp_path: Path) -> None:
    program(tmp_path)
    document = solve(tmp_path, "--stages", "reproduce,reduce", *COMMAND)
    script = Path(document["reproducer"]["path"]) / "run_repro.sh"
    done = subprocess.run(("bash", str(script)), capture_output=True, text=True, check=False)
    assert "loss is nan at step 11" in done.stderr
    reduced = aorta("reduce", "--resume", script.parents[1], "--json", "-q", cwd=tmp_path).json()
    assert reduced["resumed_trials"] == reduced["trials"]


def test_a_size_that_another_number_divides_goes_in_steps_of_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--hidden-size', type=int)\n"
        "parser.add_argument('--num-heads', type=int)\n"
        "given = parser.parse_args()\n"
        "assert given.hidden_size % given.num_heads == 0, 'heads do not fit'\n"
        "if given.hidden_size >= 100 and given.num_heads >= 3:\n"
        "    raise RuntimeError('overflow')\n"
    )
    words = ("--hidden-size", "768", "--num-heads", "12")
    document = solve(tmp_path, "--stages", "reproduce,reduce", *COMMAND[:3], *words)
    left = {axis["name"]: axis["final"] for axis in document["reproducer"]["axes"]}
    assert left["HIDDEN_SIZE"] == 108
    assert left["NUM_HEADS"] in {3, 4, 6, 9, 12}


def test_its_whole_directory_packs_too_and_its_reproducer_fails_elsewhere(tmp_path: Path) -> None:
    program(tmp_path)
    document = solve(tmp_path, "--stages", "reproduce,reduce", *COMMAND)
    packed = aorta("bundle", document["run_dir"], "--ticket", "T-1", "--json", cwd=tmp_path)
    assert packed.exit_code == 0, packed.stderr
    ran = packed.json()["checked"]
    assert (ran["reproduced"], ran["of"]) == (1, 1)
    done = aorta("bundle", "verify", packed.json()["path"], "--run", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    assert "failed like the original 1 of 1 times" in done.stdout
