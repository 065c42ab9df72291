"""What a reduction writes to ship: it fails like the original from anywhere, holds its own workload
and nobody's secrets.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest

from aorta.engine.rundir import RunDir
from aorta.reduce.files import made_portable
from support.aorta_cli import aorta, environ
from support.reductions import (
    BOOM,
    finals,
    numeric,
    reduce_spec,
    run_dir_of,
    with_trials,
    write_spec,
)
from support.waiting import patience

FAILS = {"kind": "exit_code"}
TRAIN = """import os, sys
if int(os.environ["N"]) >= 5:
    raise RuntimeError("loss is nan")
"""


def elsewhere(run_dir: Path, tmp_path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """The reproducer as a stranger gets it: a copy of its files in another place."""
    there = tmp_path / "there"
    there.mkdir()
    archive = tmp_path / "sent.tar"
    with tarfile.open(archive, "w") as made:
        for path in sorted((run_dir / "shrunken").rglob("*")):
            if path.is_file():  # as in a bundle: no folder travels by itself
                made.add(path, path.relative_to(run_dir))
    with tarfile.open(archive) as read:
        read.extractall(there, filter="data")
    return subprocess.run(
        ["bash", there / "shrunken" / "run_repro.sh"],
        cwd="/", env={**os.environ, **env}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def commands(tmp_path: Path) -> dict[str, Any]:
    """Commands of every shape: with files and without, by absolute and relative names, as text and
    as a list.
    """
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text(TRAIN)
    (work / "check.sh").write_text("#!/bin/bash\nexec python3 train.py\n")
    (work / "check.sh").chmod(0o755)
    (work / "job.sh").write_text(f'ulimit -c 0\nexec {sys.executable} train.py "$@"\n')
    (work / "pkg").mkdir()
    (work / "pkg" / "__init__.py").write_text("")
    (work / "pkg" / "__main__.py").write_text(TRAIN)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "tool").write_text(f"#!/usr/bin/env python3\n{TRAIN}")
    (tmp_path / "elsewhere" / "tool").chmod(0o755)
    return {
        "shell text": f"python3 -c '{TRAIN}'",
        "bash -c": ["bash", "-c", '[ "$N" -lt 5 ] || { echo "loss is nan" >&2; exit 1; }'],
        "python -c": [sys.executable, "-c", TRAIN],
        "absolute inside": [str(work / "check.sh")],
        "absolute in text": f"{work}/check.sh",
        "own interpreter in a script": ["bash", "job.sh"],
        "own interpreter": f"{sys.executable} train.py",
        "python -m": ["python3", "-m", "pkg"],
        "a tool of its own": [str(tmp_path / "elsewhere" / "tool")],
    }


@pytest.mark.parametrize(
    "shape",
    ["shell text", "bash -c", "python -c", "absolute inside", "absolute in text", "own interpreter",
     "own interpreter in a script", "python -m", "a tool of its own"],
)  # fmt: skip
def test_a_reproducer_of_any_command_fails_the_same_way_elsewhere(
    shape: str, tmp_path: Path
) -> None:
    command = commands(tmp_path)[shape]
    spec = write_spec(
        tmp_path / "work", "", [numeric("N", 6, 4)], oracle=FAILS, workload={"command": command},
    )  # fmt: skip
    done = reduce_spec(spec)
    assert done.exit_code == 0, done.stderr
    report = done.json()
    assert report["shipped_copy"]["self_contained"] is True, report["shipped_copy"]
    run_dir = run_dir_of(report, spec.parent)
    assert "failed the same way" in (run_dir / "SHIP.md").read_text()
    ran = elsewhere(run_dir, tmp_path)
    assert ran.returncode == 1
    assert "loss is nan" in ran.stderr
    assert str(tmp_path) not in (run_dir / "shrunken" / "run_repro.sh").read_text()


def test_a_script_that_calls_its_interpreter_by_path_ships_without_that_path(
    tmp_path: Path,
) -> None:
    place = tmp_path / "work"
    place.mkdir()
    (place / "train.py").write_text(TRAIN)
    (place / "job.sh").write_text(f'#!/bin/bash\nexec {sys.executable} train.py "$@"\n')
    spec = write_spec(
        place, "", [numeric("N", 6, 4)], oracle=FAILS, workload={"command": ["bash", "job.sh"]}
    )
    report = reduce_spec(spec).json()
    script = run_dir_of(report, place) / "shrunken" / "workload" / "job.sh"
    name = Path(sys.executable).name
    assert script.read_text() == f'#!/bin/bash\nexec {name} train.py "$@"\n'


FLAKY = """import os, pathlib
mark = pathlib.Path(MARKS, f"{os.environ['N']}-{pathlib.Path.cwd().name}")
if os.environ["N"] == "1" and not mark.exists():
    mark.touch()
elif int(os.environ["N"]):
    raise RuntimeError("loss is nan")
"""


def test_a_copy_may_miss_once_where_the_search_saw_the_failure_come_and_go(tmp_path: Path) -> None:
    """The original and the confirmation never missed, and the answer itself did on the way."""
    work, marks = tmp_path / "work", tmp_path / "marks"
    work.mkdir()
    marks.mkdir()
    (work / "train.py").write_text(FLAKY.replace("MARKS", repr(str(marks))))
    spec = write_spec(
        work, "", [numeric("N", 4, 1)],
        oracle=FAILS, workload={"command": "python3 train.py"}, budget={},
    )  # fmt: skip
    report = reduce_spec(spec).json()
    assert report["axes"][0]["final"] == 1
    assert report["confirmed"]["reproduced"] == report["confirmed"]["of"]
    assert (report["status"], report["shipped_copy"]["self_contained"]) == ("reduced", True)
    assert report["shipped_copy"]["of"] == 2


def test_files_opened_by_a_computed_name_ship_too(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number in range(3):
        (tmp_path / "data" / f"shard_{number}.bin").write_text(f"{number}")
    (tmp_path / "data" / "not_opened.bin").write_text("private")
    (tmp_path / "train.py").write_text(
        "import os\n"
        "for i in range(3):\n    open(f'data/shard_{i}.bin').read()\n"
        "assert int(os.environ['N']) < 5, 'the loss is nan'\n"
    )
    spec = write_spec(
        tmp_path, "", [numeric("N", 6, 4)], oracle=FAILS, workload={"command": "python3 train.py"}
    )
    report = reduce_spec(spec).json()
    assert report["shipped_copy"]["self_contained"] is True, report["shipped_copy"]
    shipped = run_dir_of(report, tmp_path) / "shrunken" / "workload"
    assert sorted(path.name for path in (shipped / "data").iterdir()) == [
        "shard_0.bin", "shard_1.bin", "shard_2.bin",
    ]  # fmt: skip


def test_what_a_command_reads_in_shared_memory_ships_too() -> None:
    with tempfile.NamedTemporaryFile("w", dir="/dev/shm", suffix=".txt") as staged:
        staged.write("3\n")
        staged.flush()
        command, found = made_portable(("cat", staged.name, "/dev/null"), Path("/job"))
    name = Path(staged.name).name
    assert command == ("cat", f"./outside/{name}", "/dev/null")
    assert found.copied == {f"outside/{name}": Path(staged.name)}


def test_a_file_too_large_to_ship_is_linked_to_beside_the_reduced_ones(tmp_path: Path) -> None:
    """The command finds its rows and its configuration by itself, beside what is not shipped."""
    script = (
        '[ -s in/large.txt ] && grep -q "size: 9" c.yaml && grep -qx "row 33" rows.txt && echo BOOM'
    )
    (tmp_path / "rows.txt").write_text("".join(f"row {n}\n" for n in range(50)))
    (tmp_path / "c.yaml").write_text("size: 9\ndepth: 40\n")
    (tmp_path / "in").mkdir()
    with (tmp_path / "in" / "large.txt").open("wb") as large:
        large.truncate(40 << 20)
    rows = {"name": "ROWS", "kind": "file_subset", "initial": "rows.txt", "in_place": True}
    axes = [rows, numeric("DEPTH", 40, 1, file="c.yaml", key="depth")]
    report = reduce_spec(write_spec(tmp_path, script, axes)).json()
    assert report["status"] == "reduced"
    assert finals(report) == {"ROWS": 1, "DEPTH": 1}
    copy = report["shipped_copy"]
    assert (copy["self_contained"], copy["in_original_directory"]) == (False, True)
    run_dir = run_dir_of(report, tmp_path)
    assert f"it needs `{tmp_path}/in/large.txt`" in (run_dir / "SHIP.md").read_text()
    workload = run_dir / "shrunken" / "workload"
    assert (workload / "rows.txt").read_text() == "row 33\n"
    assert (workload / "c.yaml").read_text() == "size: 9\ndepth: 1\n"
    assert not (workload / "in").exists()

    def run_again(**variables: str) -> subprocess.CompletedProcess[bytes]:
        words, env = ["bash", str(workload.parent / "run_repro.sh")], {**os.environ, **variables}
        return subprocess.run(words, env=env, capture_output=True, check=False)

    assert run_again(AORTA_WORKDIR=str(tmp_path / "nowhere")).returncode == 127
    assert b"BOOM" in run_again().stdout


def test_a_copy_that_dies_of_something_else_is_not_called_self_contained(tmp_path: Path) -> None:
    """With an exit code as the oracle, a missing file looks like the failure to anyone who does not
    look closer.
    """
    outside = tmp_path / "outside.txt"
    outside.write_text("x")
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text(
        "import os, pathlib\n"
        f"pathlib.Path({str(tmp_path)!r}, 'out' + 'side.txt').read_text()\n"
        "assert not pathlib.Path.cwd().name == 'workload', 'not here'\n"
        "assert int(os.environ['N']) < 5, 'the loss is nan'\n"
    )
    spec = write_spec(
        work, "", [numeric("N", 6, 4)], oracle=FAILS, workload={"command": "python3 train.py"}
    )
    report = reduce_spec(spec).json()
    assert report["status"] == "partial"
    assert report["shipped_copy"]["self_contained"] is False
    assert "another failure" in report["shipped_copy"]["why"]
    ship = (run_dir_of(report, work) / "SHIP.md").read_text()
    assert "does not fail the same way by itself" in ship


MINE = """from typing import ClassVar
import helper
from aorta.workloads.base import Workload, WorkloadResult


class Mine(Workload):
    predicates: ClassVar = {"too_many": lambda result: result.metrics["bad"]}

    def setup(self):
        pass

    def run(self):
        bad = helper.is_bad(int(self.variables()["N"]) * self.config["times"])
        return WorkloadResult(passed=True, metrics={"bad": bad}, step_times_ms=[1.5, 2.5], main_work_started=True)
"""


def test_a_registered_workload_ships_with_its_config_its_predicate_and_its_step_times(
    tmp_path: Path,
) -> None:
    """The workload calls every run a pass: its predicate alone says that it fails."""
    code, work = tmp_path / "code", tmp_path / "work"
    code.mkdir()
    (code / "mine.py").write_text(MINE)
    (code / "helper.py").write_text("def is_bad(n):\n    return n >= 111\n")
    spec = write_spec(
        work, "", [numeric("N", 40, 35)], oracle={"kind": "python", "predicate": "too_many"},
        workload={"name": "mine:Mine", "config": {"times": 3}},
    )  # fmt: skip
    paths = os.pathsep.join([environ()["PYTHONPATH"], str(code)])
    report = reduce_spec(spec, env={"PYTHONPATH": paths}).json()
    assert report["status"] == "reduced", report
    assert report["axes"][0]["final"] == 37
    assert report["shipped_copy"]["self_contained"] is True, report["shipped_copy"]
    run_dir = run_dir_of(report, work)
    here = {"PYTHON": sys.executable, "PYTHONPATH": paths}
    packed = aorta("bundle", run_dir, "--output", tmp_path / "ship", env=here)
    assert "failed like the original" in packed.stdout + packed.stderr, packed.stdout
    times = tmp_path / "times.txt"
    ran = elsewhere(run_dir, tmp_path, AORTA_STEP_TIMES=str(times), **here)
    assert ran.returncode == 1, ran.stderr
    assert times.read_text() == "1.5\n2.5\n"
    there = tmp_path / "there" / "shrunken"
    with_trials(there / "recipe.resolved.yaml", 1)
    matrix = aorta(
        "triage", "run", "--recipe", there / "recipe.resolved.yaml", "--output-dir", "t", "--json",
        cwd=tmp_path, env=here,
    ).json()  # fmt: skip
    cell = matrix["cells"][0]
    assert cell["mitigations"] == ["none"]
    assert (cell["failed_count"], cell["trials"]) == (1, 1)
    assert (cell["step_time_source"], cell["mean_step_time_ms"]) == ("per_step", 2)
    again = aorta(
        "reduce", "--spec", there / "aorta.yaml", "--output", "r", "--json", cwd=tmp_path, env=here
    )
    assert again.json()["status"] == "not_reduced", again.stdout


def test_other_runs_repositories_caches_and_environments_are_no_workload(tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    shards.mkdir()
    for name in ("secret.txt", "other.txt"):
        (shards / name).write_text("data of ticket A\n")
    axis = {"name": "S", "kind": "dir_subset", "initial": "shards"}
    first = write_spec(tmp_path, 'cat "$S"/secret.txt && echo BOOM', [axis])
    one = aorta("reduce", "--spec", first, "--output", "reduce/TICKET-A", "--json", cwd=tmp_path)
    assert one.exit_code == 0, one.stderr
    [of_a] = run_dir_of(one.json(), tmp_path).rglob("secret.txt")
    shutil.rmtree(shards)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "env"], cwd=tmp_path, check=True)
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    for place in ("env/lib", ".git", "__pycache__", ".cache"):
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / place / "secret.txt").write_text("not workload\n")
    script = f'cat {of_a} */secret.txt .git/secret.txt; [ "$N" -ge 5 ] && echo BOOM'
    workload = {"command": "bash fails.sh", "files": ["*"]}
    spec = write_spec(tmp_path, script, [numeric("N", 6, 4)], workload=workload)
    for output in ("reduce/TICKET-B", "deep/er/TICKET-C"):
        done = aorta("reduce", "--spec", spec, "--output", output, "--json", cwd=tmp_path)
        shipped = run_dir_of(done.json(), tmp_path) / "shrunken" / "workload"
        names = [str(path.relative_to(shipped)) for path in shipped.rglob("*") if path.is_file()]
        assert names == ["fails.sh"]


def test_a_secret_variable_is_asked_for_instead_of_written_down(tmp_path: Path) -> None:
    token = "hf_" + "q7Zk" * 8
    spec = write_spec(
        tmp_path,
        'echo "with $HF_TOKEN"; [ "$HF_TOKEN" ] && [ "$N" -ge 5 ] && echo BOOM',
        [numeric("N", 6, 4)],
        extra_env={"HF_TOKEN": token, "PGPASSWORD": "hunter2-x", "PLAIN": "kept"},
    )
    report = reduce_spec(spec).json()
    assert report["shipped_copy"]["self_contained"] is True, report["shipped_copy"]
    run_dir = run_dir_of(report, tmp_path)
    files = [path for path in run_dir.rglob("*") if path.is_file()]
    assert [path for path in files if token.encode() in path.read_bytes()] == []
    assert [path for path in files if b"hunter2-x" in path.read_bytes()] == []
    assert "set `HF_TOKEN` before running it" in (run_dir / "SHIP.md").read_text()
    assert "PLAIN" in (run_dir / "shrunken" / "aorta.yaml").read_text()
    unset = dict.fromkeys(("HF_TOKEN", "PGPASSWORD"), "")
    refused = elsewhere(run_dir, tmp_path, **unset)
    assert refused.returncode == 127
    assert "set HF_TOKEN" in refused.stderr


def test_mitigations_of_a_file_travel_with_the_recipe_and_the_spec_that_name_them(
    tmp_path: Path,
) -> None:
    key = "k3y-" + "q7Zk" * 8
    mine = {
        "version": 1,
        "mitigations": {
            "mine": {"MINE": "1", "MY_API_KEY": key},
            "unused": {"OTHER_TOKEN": "t0k-" + "x8Wm" * 8},
        },
    }
    (tmp_path / "site.json").write_text(json.dumps(mine))
    fails = '[ -n "$MINE" ] && [ "$N" -ge 5 ] && echo BOOM'
    spec = write_spec(tmp_path, fails, [numeric("N", 9, 1)], mitigations=["mine"])
    report = reduce_spec(spec, "--mitigations-file", tmp_path / "site.json").json()
    assert report["status"] == "reduced", report
    run_dir = run_dir_of(report, tmp_path)
    kept = [path.read_bytes() for path in run_dir.rglob("*") if path.is_file()]
    assert not [text for text in kept if b"q7Zk" in text or b"x8Wm" in text]
    (tmp_path / "site.json").unlink()

    (command, *_) = report["next"]
    known = {"MY_API_KEY": key}
    triaged = aorta(*command.split()[1:], "--json", "-q", cwd=tmp_path, env=known)
    assert triaged.exit_code == 0, triaged.stderr
    baseline = next(cell for cell in triaged.json()["cells"] if cell["name"] == "baseline")
    assert (baseline["mitigations"], baseline["failure_rate"]) == (["mine"], 1.0)

    packed = aorta("bundle", run_dir, "--output", "ship", "--json", cwd=tmp_path, env=known)
    assert packed.json()["checked"]["reproduced"] == 1, packed.stdout
    unpacked = aorta("bundle", "unpack", packed.json()["path"], "there", "--json", cwd=tmp_path)
    (command,) = unpacked.json()["next"]
    assert aorta(*command.split()[1:], "--dry-run", cwd=tmp_path).exit_code == 0
    shipped = Path(unpacked.json()["directory"]) / "shrunken" / "aorta.yaml"
    again = aorta("reduce", "--spec", shipped, "--dry-run", "-q", "--json", cwd=tmp_path, env=known)
    assert again.json()["original"]["reproduced"], again.stdout


def test_what_is_wrong_in_a_mitigations_file_is_said_of_that_file(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, "echo BOOM", [numeric("N", 6, 4)], mitigations=["mine"])
    bad = tmp_path / "site.json"
    bad.write_text('{"mitigations": {"mine": {"MINE": "1"}}}')
    refused = reduce_spec(spec, "--mitigations-file", bad)
    assert refused.exit_code == 2
    assert refused.json()["error"]["where"] == f"{bad}: version"


def test_files_that_do_not_parse_are_bytes_and_may_be_the_answer(tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    shards.mkdir()
    for name in ("a.json", "b.yaml", "c.jsonl", "d.json"):
        (shards / name).write_bytes(b"1\n")
    broken = {
        f"bad{number}{suffix}": content
        for number, content in enumerate(
            (b'{"a": 1', b"\xff\xfe\x00", b'{"a": 1, "a": 2}', b"a: [b")
        )
        for suffix in (".json", ".yaml")
    }
    for name, content in broken.items():
        (shards / name).write_bytes(content)
    axis = {"name": "S", "kind": "dir_subset", "initial": "shards"}
    spec = write_spec(tmp_path, '[ "$(ls "$S"/bad?.json | wc -l)" = 4 ] && echo BOOM', [axis])
    report = reduce_spec(spec, "--scrub", "nothing-of-this").json()
    shipped = run_dir_of(report, tmp_path) / "shrunken" / "shards"
    assert {path.name: path.read_bytes() for path in shipped.iterdir()} == {
        name: content for name, content in broken.items() if name.endswith(".json")
    }


def test_a_tar_of_a_scrubbed_run_directory_holds_nothing_of_what_was_scrubbed(
    tmp_path: Path,
) -> None:
    spec = write_spec(
        tmp_path, 'echo "project zebra-9"; [ "$N" -ge 5 ] && echo BOOM', [numeric("N", 6, 4)]
    )
    report = reduce_spec(spec, "--scrub", "zebra-9").json()
    run_dir = run_dir_of(report, tmp_path)
    made = tmp_path / "run.tar"
    # also where links are followed
    subprocess.run(["tar", "-chf", made, "-C", run_dir.parent, run_dir.name], check=True)
    assert b"zebra-9" not in made.read_bytes()
    subprocess.run(["cp", "-rL", run_dir, tmp_path / "copy"], check=True)
    copied = [path for path in (tmp_path / "copy").rglob("*") if path.is_file()]
    assert len(copied) > 8
    assert not [path for path in copied if b"zebra-9" in path.read_bytes()]
    private = RunDir(run_dir).private
    assert (private / "journal.jsonl").is_file()
    trials = (private / "trials").rglob("stdout.log")
    assert any("zebra-9" in log.read_text() for log in trials)
    assert "lie outside" in (run_dir / "SHIP.md").read_text()
    again = reduce_spec(spec, "--scrub", "zebra-9", "--resume", run_dir).json()
    assert again["resumed_trials"] == again["trials"]
    moved = run_dir.rename(tmp_path / "moved")
    lost = reduce_spec(spec, "--resume", moved)
    assert lost.exit_code == 2
    assert "move that along" in json.dumps(lost.json())


def test_scrubbing_that_breaks_the_reproducer_is_seen_and_said(tmp_path: Path) -> None:
    spec = write_spec(
        tmp_path, '[ "$N" -ge 5 ] && [ zebra = "$WHO" ] && echo BOOM',
        [numeric("N", 6, 4)], extra_env={"WHO": "zebra"}, oracle=dict(BOOM),
    )  # fmt: skip
    good = reduce_spec(spec, "--scrub", "zebra").json()
    assert good["shipped_copy"]["self_contained"] is True  # both sides changed alike
    spec = write_spec(
        tmp_path, '[ "$N" -ge 5 ] && [ "${#WHO}" = 5 ] && echo BOOM',
        [numeric("N", 6, 4)], extra_env={"WHO": "zebra"}, oracle=dict(BOOM),
    )  # fmt: skip
    done = reduce_spec(spec, "--scrub", "zebra")
    bad = done.json()
    assert bad["shipped_copy"]["self_contained"] is False
    assert (bad["status"], bad["search"], done.exit_code) == ("partial", "reduced", 3)
    assert "run_repro.sh does not fail by itself; scrubbing took 1 value out of it" in bad["why"]
    ship = (run_dir_of(bad, tmp_path) / "SHIP.md").read_text()
    assert "does not fail the same way by itself" in ship
    assert "workload: {files" not in ship  # no file is what it lacks


def test_a_script_that_ships_ends_badly_where_the_failure_is_a_line_alone(tmp_path: Path) -> None:
    script = 'echo "loss $([ "$N" -ge 7 ] && echo nan || echo 0.5)"; exit 0\n'
    oracle = {"kind": "regex", "pattern": "loss nan", "stream": "stdout"}
    report = reduce_spec(write_spec(tmp_path, script, [numeric("N", 40, 1)], oracle=oracle)).json()
    assert report["axes"][0]["final"] == 7
    shrunken = run_dir_of(report, tmp_path) / "shrunken"
    done = subprocess.run(["bash", shrunken / "run_repro.sh"], capture_output=True, check=False)
    assert done.returncode != 0
    fine = (shrunken / "run_repro.sh").read_text().replace("N=7", "N=6")
    (shrunken / "run_repro.sh").write_text(fine)
    done = subprocess.run(["bash", shrunken / "run_repro.sh"], capture_output=True, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    "reader", ["> /dev/null", "| (sleep 1; tail -1)", "| (read line; exec <&-; sleep 1)"]
)
@pytest.mark.parametrize("stream", ["stdout", "stderr", "both"])
def test_a_script_that_ships_ends_as_its_failure_says_whoever_reads_it(
    stream: str, reader: str, tmp_path: Path
) -> None:
    """More lines than a pipe holds, and a process that goes on and keeps the pipes open."""
    end = {"stdout": "", "stderr": " >&2", "both": " >&2"}[stream]
    script = (
        "sleep 30 & disown\nseq 1 20000\nseq 1 20000 >&2\n"
        f'[ "$N" -ge 5 ] && echo "NaN detected at step 5"{end}\nexit 0\n'
    )
    oracle = {"kind": "regex", "pattern": "NaN detected", "stream": stream}
    report = reduce_spec(write_spec(tmp_path, script, [numeric("N", 6, 4)], oracle=oracle)).json()
    repro = run_dir_of(report, tmp_path) / "shrunken" / "run_repro.sh"
    both = reader.replace("> ", "&> ").replace("| ", "|& ")
    for number, expected in ((5, 1), (4, 0)):
        repro.write_text(repro.read_text().replace("N=5", f"N={number}"))
        ran = subprocess.run(
            ["bash", "-c", f'bash "$0" {both}; exit ${{PIPESTATUS[0]}}', repro],
            check=False, start_new_session=True, timeout=patience(60),
        )  # fmt: skip
        assert ran.returncode == expected


@pytest.mark.parametrize(
    "command",
    [
        "python 'prüf lauf.py' \"$ROWS\"",
        'bash -c \'python "prüf lauf.py" < "$ROWS"\'',
        # Nothing in it says which file it runs.
        'python "$(ls | grep ^pr)" "$ROWS"',
    ],
)
def test_a_program_whose_name_has_spaces_ships_and_is_run_before_it_is_called_reduced(
    tmp_path: Path, command: str
) -> None:
    work = tmp_path / "Mein Ordner"
    work.mkdir()
    (work / "prüf lauf.py").write_text(
        "import sys\n"
        "for row in open(sys.argv[1]) if sys.argv[1:] else sys.stdin:\n"
        "    if not row.strip().isdigit():\n"
        "        raise RuntimeError('keine Zahl: ' + row)\n"
    )
    (work / "Läufe 1.txt").write_text("".join(f"{n}\n" for n in range(9)) + "übel\n")
    axis = {"name": "ROWS", "kind": "file_subset", "initial": "Läufe 1.txt"}
    workload = {"command": command, "cwd": "./"}
    done = reduce_spec(write_spec(work, "", [axis], workload=workload, oracle=FAILS))
    document = done.json()
    assert (done.exit_code, document["shipped_copy"]["self_contained"]) == (0, True), done.stderr
    run_dir = run_dir_of(document, work)
    assert f"--recipe '{run_dir}/shrunken/recipe.resolved.yaml'" in document["next"][0]
    ran = elsewhere(run_dir, tmp_path)
    assert (ran.returncode, "keine Zahl: übel" in ran.stderr) == (1, True), ran.stderr
