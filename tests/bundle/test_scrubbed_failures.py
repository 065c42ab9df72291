"""A failure whose words name this site ships without them, and is still the failure: the copy says
what scrubbing left of its program, and is held to just that.
"""

import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.aorta_cli import Finished, aorta
from support.reductions import numeric, reduce_spec, run_dir_of, write_spec

EXIT: Mapping[str, Any] = {"kind": "exit_code"}
HOST, HOME = "gpu-a100-017.acme-lab.com", "/home/jdoe77"
PYTHON = "import os\nif int(os.environ['N']) < 5:\n    raise SystemExit(0)\n"
SHELL = '[ "$N" -ge 5 ] || exit 0\n'
FAILURES: dict[str, tuple[str, Mapping[str, Any], tuple[str, ...]]] = {
    "a path in the message of an exception": (
        f'{PYTHON}raise RuntimeError("no shard in {HOME}/corpus/train.bin")\n',
        EXIT,
        ("jdoe77", "corpus"),
    ),
    "a path that is put together while it runs": (
        f'{PYTHON}root = "{HOME}/corpus"\nraise RuntimeError(f"no shard in {{root}}/deep/x.bin")\n',
        EXIT,
        ("jdoe77", "corpus"),
    ),
    "a host and its owner in words": (
        f'{SHELL}echo "Error: {HOST} was lost, jdoe77 was told" >&2\nls {HOME}/x\nexit 3\n',
        EXIT,
        ("jdoe77", "acme-lab"),
    ),
    "a host that a pattern looks for": (
        f'{SHELL}echo "lost {HOST} at step 3"\n',
        {"kind": "regex", "pattern": r"lost gpu-a100-017\.acme-lab\.com at step \d"},
        ("a100-017", "acme-lab"),
    ),
    "a path that a pattern looks for": (
        f'{PYTHON}print("{HOME}/corpus/train.bin is nan")\n',
        {"kind": "regex", "pattern": f"^{HOME}/corpus/train.bin is nan"},
        ("jdoe77", "corpus"),
    ),
}
WORDS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "in a message": (f'{PYTHON}raise RuntimeError("zebra head is nan")\n', EXIT),
    "in a message and the function": (
        f'{PYTHON}def zebra_loss():\n    raise ValueError("the zebra head")\nzebra_loss()\n',
        EXIT,
    ),
    "in a line of a shell": (f'{SHELL}echo "FATAL: zebra lost" >&2\nexit 4\n', EXIT),
    "in a pattern": (
        f'{PYTHON}print("zebra loss is nan")\n',
        {"kind": "regex", "pattern": "zebra loss is (nan|inf)"},
    ),
    "in a pattern of a number": (
        f'{PYTHON}print("zebra loss 7.5")\n',
        {"kind": "metric", "pattern": "zebra loss ([0-9.]+)", "above": 2},
    ),
}


def _reduced(
    folder: Path, program: str, oracle: Mapping[str, Any], *arguments: str
) -> tuple[dict[str, Any], Path]:
    command = f"{'python3' if program.startswith('import') else 'bash'} fails.sh"
    spec = write_spec(
        folder, program, [numeric("N", 6, 4)], oracle=dict(oracle), workload={"command": command}
    )
    report = reduce_spec(spec, *arguments).json()
    return report, run_dir_of(report, folder)


def _packed(run_dir: Path, out: Path, *arguments: str) -> tuple[Finished, bytes]:
    """What the command said, and every byte and name of the bundle."""
    done = aorta("bundle", run_dir, "--output", out, *arguments, "--json")
    with tarfile.open(bundle := Path(done.json()["path"])) as archive:
        files = {one.name: archive.extractfile(one) for one in archive.getmembers()}
        texts = [
            part for name, file in files.items() if file for part in (name.encode(), file.read())
        ]
    return done, b"\n".join([bundle.name.encode(), *texts])


@pytest.mark.parametrize("name", FAILURES)
def test_what_names_this_site_is_taken_out_of_a_failure_and_the_copy_still_fails_like_it(
    name: str, tmp_path: Path
) -> None:
    program, oracle, private = FAILURES[name]
    report, run_dir = _reduced(tmp_path, program, oracle)
    assert report["shipped_copy"]["self_contained"] is True
    done, everything = _packed(run_dir, tmp_path / "bundles", "--ticket", "T")
    assert done.json()["checked"] == {"reproduced": 1, "of": 1, "why": ""}
    assert [word for word in private if word.encode() in everything] == []


@pytest.mark.parametrize("name", WORDS)
def test_a_word_that_is_to_go_may_be_what_the_failure_is_told_by(name: str, tmp_path: Path) -> None:
    report, run_dir = _reduced(tmp_path, *WORDS[name], "--scrub", "zebra")
    assert report["shipped_copy"]["self_contained"] is True
    done, everything = _packed(run_dir, tmp_path / "bundles", "--ticket", "zebra-17")
    assert done.json()["checked"] == {"reproduced": 1, "of": 1, "why": ""}
    assert b"zebra" not in everything.lower()


@pytest.mark.parametrize("name", WORDS)
def test_a_word_that_the_bundle_takes_out_may_be_what_the_failure_is_told_by(
    name: str, tmp_path: Path
) -> None:
    _, run_dir = _reduced(tmp_path, *WORDS[name])
    arguments = ("--ticket", "Zebra-17", "--scrub", "zebra")
    done, everything = _packed(run_dir, tmp_path / "bundles", *arguments)
    assert done.json()["checked"] == {"reproduced": 1, "of": 1, "why": ""}
    assert b"zebra" not in everything.lower()


def test_another_failure_of_the_copy_is_not_taken_for_the_one_whose_words_are_gone(
    tmp_path: Path,
) -> None:
    program = (
        f'{PYTHON}if len("zebra") != 5:\n    raise RuntimeError("the checkpoint is torn")\n'
        'raise RuntimeError("zebra head is nan")\n'
    )
    report, _ = _reduced(tmp_path, program, EXIT, "--scrub", "zebra")
    assert report["shipped_copy"]["self_contained"] is False
    assert "the checkpoint is torn" in report["shipped_copy"]["why"]
    _, plain = _reduced(tmp_path / "unscrubbed", program, EXIT)
    done, _ = _packed(plain, tmp_path / "bundles", "--ticket", "T", "--scrub", "zebra")
    assert done.exit_code == 3
    assert done.json()["checked"]["reproduced"] == 0


@pytest.mark.parametrize("word", ["repro", "run", "shrunken", "workload", "trials"])
def test_names_that_we_give_stay_whatever_is_to_go(word: str, tmp_path: Path) -> None:
    program = f'{SHELL}echo "Error: the {word} of zebra is torn" >&2\nexit 3\n'
    report, run_dir = _reduced(tmp_path, program, EXIT, "--scrub", word)
    assert report["shipped_copy"]["self_contained"] is True
    assert (run_dir / "shrunken" / "run_repro.sh").is_file()
    done, everything = _packed(run_dir, tmp_path / "bundles", "--ticket", "T")
    assert done.json()["checked"] == {"reproduced": 1, "of": 1, "why": ""}
    assert f"the {word} of".encode() not in everything
    assert b"/shrunken/run_repro.sh" in everything
