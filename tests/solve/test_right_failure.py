"""What solve takes for the failure: a command that cannot start, one that never ends, one that
failed once.
"""

import itertools
from pathlib import Path

import pytest

from support.aorta_cli import aorta


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("pyhton", "x.py"), "did you mean 'python"),
        (("echo a | cat",), "bash -c 'echo a | cat'"),
        (("./x.py",), "python ./x.py"),
        (("python3", "-u", "xx.py"), "did you mean 'x.py'?"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "solve"])
def test_a_command_that_cannot_start_is_said_at_once(
    tmp_path: Path, verb: str, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "x.py").write_text("print(1)\n")
    done = aorta(verb, "--", *words, cwd=tmp_path)
    assert done.exit_code == 2, done.stderr
    assert said in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["x.py"]


def test_a_command_that_still_runs_when_the_budget_ends_is_said_with_where_it_stands(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(
        "import threading\n\ndef wait_for_peer():\n    threading.Event().wait()\n\nwait_for_peer()\n"
    )
    done = aorta("solve", "--budget", "6s", "--json", "-q", "--", "python", "train.py",
                 cwd=tmp_path)  # fmt: skip
    assert done.exit_code == 4, done.stderr
    (said,) = done.json()["not_found_out"]
    assert "still runs" in said
    assert "--timeout" in said
    assert "train.py:4 wait_for_peer" in said
    words = ("--resume", done.json()["run_dir"], "--budget", "12s", "--json", "-q")
    again = aorta("solve", *words, cwd=tmp_path)
    assert again.exit_code == 4, again.stderr
    assert "still runs after 9" in again.json()["not_found_out"][0]


def test_a_failure_that_was_seen_once_and_never_again_stops_the_solve(tmp_path: Path) -> None:
    (tmp_path / "once.sh").write_text("[ -e seen ] || { touch seen; echo torn >&2; exit 3; }\n")
    done = aorta("solve", "--json", "-q", "--", "bash", "once.sh", cwd=tmp_path)
    assert done.exit_code == 3, done.stderr
    document = done.json()
    assert document["status"] == "did_not_reproduce"
    assert document["trials"] <= 45
    assert "in less than" in document["not_found_out"][0]
    summary = (Path(document["run_dir"]) / "summary.md").read_text()
    assert f"it failed 1 of {document['trials']} times" in summary
    assert "did not fail:" not in summary


def test_what_a_wrapper_says_of_its_child_is_not_what_failed(tmp_path: Path) -> None:
    (tmp_path / "launch.py").write_text(
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, 'read.py', 'rows.txt'], check=True)\n"
    )
    (tmp_path / "read.py").write_text(
        "import sys\nfor line in open(sys.argv[1]):\n    line.strip().encode('ascii')\n"
    )
    (tmp_path / "rows.txt").write_text("plain\ncaf\u00e9\n", encoding="utf-8")
    done = aorta("solve", "--json", "-q", "--stages", "reproduce", "--", "python", "launch.py",
                 cwd=tmp_path)  # fmt: skip
    failure = done.json()["failure"]
    assert failure["type"] == "UnicodeEncodeError"
    assert "UnicodeEncodeError: 'ascii' codec can't encode" in failure["summary"]
    assert "CalledProcessError" not in failure["summary"]


@pytest.mark.parametrize("given", ["configuration", "option"])
def test_a_bad_row_is_kept_where_a_smaller_vocabulary_would_make_every_row_bad(
    tmp_path: Path, given: str
) -> None:
    (tmp_path / "train.py").write_text(
        "import json, sys\n"
        "size = int(sys.argv[3]) if sys.argv[2:] else json.load(open('c.json'))['vocab_size']\n"
        "table = [0] * size\n"
        "epochs = json.load(open('c.json'))['epochs']\n"
        "for line in list(open(sys.argv[1])) * epochs:\n    table[int(line)] += 1\n"
    )
    (tmp_path / "c.json").write_text('{"vocab_size": 100,\n "epochs": 3}\n')
    rows = [f"{7 * row % 90 + 5}\n" for row in range(40)]
    rows[23] = "999\n"
    (tmp_path / "rows.txt").write_text("".join(rows))
    option = ("--vocab-size", "100") if given == "option" else ()
    done = aorta("solve", "--json", "-q", "--stages", "reproduce,reduce", "--",
                 "python", "train.py", "rows.txt", *option, cwd=tmp_path)  # fmt: skip
    assert done.exit_code == 0, done.stderr
    shrunken = Path(done.json()["reproducer"]["path"])
    assert [path.read_text() for path in shrunken.glob("**/rows.txt")] == ["999\n"]


def test_the_class_is_right_beside_a_pattern_and_no_rank_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch_of_nobody\n")
    done = aorta("solve", "--json", "-q", "--pattern", "torch_of_nobody", "--stages", "reproduce",
                 "--", "python", "train.py", cwd=tmp_path)  # fmt: skip
    failure = done.json()["failure"]
    assert failure["class"] == "import_error"
    assert "rank" not in failure["summary"]


def test_a_failure_without_an_exception_is_told_in_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "check.py").write_text(
        "import os, sys\nprint('run', os.getpid(), 'started, 60 rows')\n"
        "print(f'ERROR: ledger {os.getpid()} out of balance', file=sys.stderr)\nsys.exit(1)\n"
    )
    done = aorta("solve", "--json", "-q", "--stages", "reproduce", "--", "python", "check.py",
                 cwd=tmp_path)  # fmt: skip
    summary = done.json()["failure"]["summary"]
    assert summary.endswith("ERROR: ledger <*> out of balance")


def test_what_stands_on_stdin_is_not_lost_in_silence(tmp_path: Path) -> None:
    done = aorta("run", "-q", "--", "cat", cwd=tmp_path, stdin="a line\n")
    assert "stdin" in done.stderr


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("raise AssertionError(f'reduced {1197 - 69}, expected 1197')", "assertion"),
        ("raise ValueError('odd total 7')", "user_exception"),
        ("float('n/a?')", "data_error"),
    ],
)
def test_a_guess_says_less_than_the_type_of_the_exception(
    tmp_path: Path, line: str, kind: str
) -> None:
    (tmp_path / "total.py").write_text(f"{line}\n")
    done = aorta("solve", "--json", "-q", "--stages", "reproduce", "--", "python", "total.py",
                 cwd=tmp_path)  # fmt: skip
    failure = done.json()["failure"]
    assert failure["class"] == kind
    assert failure["summary"].startswith(f"{kind}: ")


def test_candidates_that_show_the_exception_in_other_words_show_the_failure(
    tmp_path: Path,
) -> None:
    rows = ["".join(letters) for letters in itertools.product("aeiou", repeat=3)]
    (tmp_path / "rows.txt").write_text("\n".join(rows) + "\n")
    (tmp_path / "load.py").write_text(
        "import sys\n"
        "rows = open(sys.argv[1]).read().split()\n"
        "raise ValueError(f'no shard for {rows[0]!r} up to {rows[-1]!r} of these')\n"
    )
    document = aorta("solve", "--json", "-q", "--stages", "reproduce,reduce", "--", "python",
                     "load.py", "rows.txt", cwd=tmp_path).json()  # fmt: skip
    assert document["reproducer"]["axes"][0]["final"] == 1
    assert document["trials"] <= 25
    (spec,) = tmp_path.glob("solve/*/aorta.yaml")
    assert "exit_code" in spec.read_text()


def test_memory_that_runs_out_beside_other_processes_fails_every_time(tmp_path: Path) -> None:
    """As torch says it: which processes hold memory, how many and in which unit varies."""
    (tmp_path / "train.py").write_text(
        "import os, random\n"
        "class OutOfMemoryError(RuntimeError): __module__ = 'torch'\n"
        "batch = int(os.environ.get('BATCH', '64'))\n"
        "others = [f'Process {random.randint(9, 99999)} has {random.random():.2f} GiB memory in use. '\n"
        "          for _ in range(random.randint(0, 4))]\n"
        "own = ['Including non-PyTorch memory, this process has 3.19 GiB memory in use. ']\n"
        "asked = random.choice(['512.00 MiB', '1.50 GiB'])\n"
        "if batch >= 8:\n"
        "    raise OutOfMemoryError(f'CUDA out of memory. Tried to allocate {asked}. GPU 0 has a '\n"
        "        'total capacity of 139.80 GiB of which 133.42 GiB is free. '\n"
        "        + ''.join(random.sample(others + own, len(others) + 1)))\n"
    )
    document = aorta("solve", "--json", "-q", "--stages", "reproduce,reduce", "--", "python",
                     "train.py", cwd=tmp_path).json()  # fmt: skip
    rate = document["failure"]["rate"]
    assert rate["reproduced"] == rate["of"]
    assert document["failure"]["class"] == "device_oom"
    assert document["reproducer"]["axes"][0]["final"] == 8
    assert document["trials"] <= 25
