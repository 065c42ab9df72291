"""`aorta reduce init`: a first spec from how a command really failed."""

import re
from pathlib import Path

import pytest

from aorta.reduce.draft import pattern_for
from aorta.reduce.proposals import proposal_for
from aorta.reduce.spec import load_spec
from support.aorta_cli import aorta
from support.reductions import finals

TRAIN = """
import os, sys
steps = int(os.environ.get("NUM_STEPS", "600"))
batch = int(sys.argv[sys.argv.index("--batch") + 1])
rows = open(sys.argv[sys.argv.index("--rows") + 1]).read().split()
for step in range(steps):
    if step * batch >= 2000 and "bad" in rows:
        raise ValueError(f"loss is nan at step {step}")
"""


def test_the_draft_runs_as_it_is_and_finds_the_minimum(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "rows.txt").write_text("a\nb\nbad\nc\n")
    done = aorta(
        "reduce", "init", "--json",
        "--", "python3", "train.py", "--batch", "64", "--rows", "rows.txt", "--seed", "7",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert done.json()["oracle"] == {"kind": "exit_code"}
    spec = load_spec(tmp_path / "aorta.yaml").content
    assert {axis.name: axis.kind for axis in spec.axes} == {
        "BATCH": "env",
        "ROWS": "file_subset",
        "NUM_STEPS": "env",
    }
    assert spec.workload.command == 'python3 train.py --batch "$BATCH" --rows "$ROWS" --seed 7'
    text = (tmp_path / "aorta.yaml").read_text()
    assert "# Run once, it ended with exit 1." in text
    reduced = aorta(
        "reduce", "--spec", "aorta.yaml", "--output", "out", "--json", "-q", cwd=tmp_path
    )
    assert reduced.exit_code == 0, reduced.stderr
    found = finals(reduced.json())
    assert found["ROWS"] == 1
    assert (found["NUM_STEPS"] - 1) * found["BATCH"] >= 2000


def test_a_variable_that_is_not_set_is_no_axis(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "train.py").write_text(
        "import os\nos.environ.get('X'); os.environ.get('Y', '')\nraise ValueError('broken')\n"
    )
    done = aorta("reduce", "init", "--json", "--", "python3", "train.py", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    assert "axes: []" in (tmp_path / "aorta.yaml").read_text()


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "aorta.yaml").write_text("mine")
    done = aorta("reduce", "init", "--", "false", cwd=tmp_path)
    assert done.exit_code == 2
    assert "aorta.yaml: is already there" in done.stderr
    assert (tmp_path / "aorta.yaml").read_text() == "mine"
    assert aorta("reduce", "init", "--force", "--", "false", cwd=tmp_path).exit_code == 0
    assert "kind: exit_code" in (tmp_path / "aorta.yaml").read_text()


def test_a_script_that_is_not_there_is_said_before_anything_runs(tmp_path: Path) -> None:
    done = aorta("reduce", "init", "--", "python3", "nothere.py", cwd=tmp_path)
    assert done.exit_code == 2
    assert "there is no file 'nothere.py'" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_signal_and_a_hang_become_oracles_of_their_own(tmp_path: Path) -> None:
    aorta("reduce", "init", "-o", "a.yaml", "--", "bash", "-c", "kill -SEGV $$", cwd=tmp_path)
    assert "codes:\n  - -11" in (tmp_path / "a.yaml").read_text()
    aorta("reduce", "init", "-o", "b.yaml", "--timeout", "2", "--", "sleep", "600", cwd=tmp_path)
    assert "silent_for: 1s" in (tmp_path / "b.yaml").read_text()


def test_what_ends_well_is_said_so(tmp_path: Path) -> None:
    done = aorta("reduce", "init", "--", "true", cwd=tmp_path)
    assert done.exit_code == 0
    assert "its exit was 0" in done.stderr
    assert "nothing was found that may shrink" in done.stderr


@pytest.mark.parametrize(
    ("line", "again", "another"),
    [
        ("ValueError: loss 12.5 at 0x7f", "ValueError: loss 3 at 0x8a", "ValueError: loss is nan"),
        ("[default0]: NaN (step 3)", "[default1]: NaN (step 41)", "NaN here"),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. Process 12",
            "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 512.00 MiB. GPU 0 has",
        ),
        ("IOError: no rows in /data/a/rows.txt", "IOError: no rows in /tmp/x/rows.txt", "no rows"),
    ],
)
def test_a_line_is_known_again_with_other_numbers_units_and_folders(
    line: str, again: str, another: str
) -> None:
    pattern = pattern_for(line)
    assert pattern is not None
    assert re.search(pattern, line)
    assert re.search(pattern, again)
    assert not re.search(pattern, another)


def test_numbers_alone_are_no_line_of_a_failure() -> None:
    assert pattern_for("12 34") is None
    assert pattern_for("") is None


@pytest.mark.parametrize(
    ("words", "command", "axes"),
    [
        (["./check.sh", "lines.txt"], './check.sh "$LINES_FILE"', {"LINES_FILE": "file_subset"}),
        (["./check.sh", "shards"], './check.sh "$SHARDS_DIR"', {"SHARDS_DIR": "dir_subset"}),
        (["./check.sh", "data/in"], './check.sh "$IN_DIR"', {"IN_DIR": "dir_subset"}),
        (["env", "STEPS=2000", "./check.sh"], 'env STEPS="$STEPS" ./check.sh', {"STEPS": "env"}),
        (["./fmt", "input.py"], './fmt "$INPUT_FILE"', {"INPUT_FILE": "file_subset"}),
        (["python3", "main.py", "input.py"], 'python3 main.py "$INPUT_FILE"', {"INPUT_FILE": "file_subset"}),
        (["python3", "main.py"], "python3 main.py", {}),
        (["./fmt", "Größe 1.txt"], './fmt "$GR_E_1_FILE"', {"GR_E_1_FILE": "file_subset"}),
        (["./fmt", "--layers", "4,8,15"], './fmt --layers "$LAYERS"', {"LAYERS": "list"}),
        (["./fmt", "--layers=a,b"], './fmt --layers="$LAYERS"', {"LAYERS": "list"}),
        (["env", "LAYERS=4,8", "./fmt"], 'env LAYERS="$LAYERS" ./fmt', {"LAYERS": "list"}),
        (["./fmt", "net.steps=500"], './fmt net.steps="$NET_STEPS"', {"NET_STEPS": "env"}),
        (["./fmt", "a=[4]", "b=[1", "lr=1e-3", "seed=7"], "./fmt 'a=[4]' 'b=[1' lr=1e-3 seed=7", {}),
        (["./fmt", "--text", "one, two"], "./fmt --text 'one, two'", {}),
        (["./fmt", "--devices", "0,1"], "./fmt --devices 0,1", {}),
        (["./fmt", "--sizes", "5", "6"], './fmt --sizes "$SIZES" "$ARG_1"', {"SIZES": "env", "ARG_1": "env"}),
        (["./fmt", "+a.b=4,8"], './fmt +a.b="$A_B"', {"A_B": "list"}),
        (["python3", "reads.py"], "python3 reads.py", {"LAYERS": "list"}),
        (["./fmt", "a", "40"], './fmt a "$ARG_2"', {"ARG_2": "env"}),
        (["bash", "-c", "ulimit -v 9; ./fmt --rows 40 --seed 7"],
         "bash -c 'ulimit -v 9; ./fmt --rows \"$ROWS\" --seed 7'", {"ROWS": "env"}),
    ],
)  # fmt: skip
def test_what_may_shrink_is_seen_and_put_in_its_place(
    tmp_path: Path, words: list[str], command: str, axes: dict[str, str]
) -> None:
    for name in ("lines.txt", "input.py", "main.py", "Größe 1.txt"):
        (tmp_path / name).write_text("a = 1\nb = 2\n")
    (tmp_path / "reads.py").write_text("import os\nos.environ.get('LAYERS', '4,8,15')\n")
    for folder in ("shards", "data/in"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "1").write_text("x")
        (tmp_path / folder / "2").write_text("y")
    found = proposal_for(words, tmp_path)
    assert found.command == command
    assert {axis["name"]: axis["kind"] for axis in found.axes} == axes


@pytest.mark.parametrize(
    "named", ["shards", "./shards/", "rows.csv", "./rows.csv", "{cwd}/rows.csv"]
)
def test_what_the_command_names_does_not_shrink_a_second_time_where_it_lies(
    tmp_path: Path, named: str
) -> None:
    (tmp_path / "shards").mkdir()
    opened = ["rows.csv", *(f"shards/{n}.json" for n in range(4))]
    for name in opened:
        (tmp_path / name).write_text("1\n2\n")
    word = named.format(cwd=tmp_path)
    seen = [name for name in opened if name.startswith("shards") == ("shards" in named)]
    (axis,) = proposal_for(["./fmt", word], tmp_path, seen).axes
    assert (axis["initial"], "in_place" in axis) == (word, False)


def test_without_axes_no_command_is_proposed_that_would_be_refused(tmp_path: Path) -> None:
    done = aorta("reduce", "init", "--", "false", cwd=tmp_path)
    assert "next: " not in done.stderr
    assert "name it under axes:" in done.stderr
