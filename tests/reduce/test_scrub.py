"""Planted secrets are in no byte of what ships: not in a file, a name, or an encoding. The private
state keeps them.
"""

import json
import subprocess
from pathlib import Path
from urllib.parse import quote

from aorta.engine.rundir import RunDir
from support.aorta_cli import aorta
from support.reductions import BOOM, numeric, reduce_spec, run_dir_of, write_spec

PROJECT, TOKEN = "zebra falcon/7", "tk-9f8e7d6c5b4a"
ENCODED = (
    PROJECT,
    TOKEN,
    quote(PROJECT, safe=""),
    json.dumps(PROJECT).strip('"').replace("/", "\\/"),
    PROJECT.upper(),
)


def _shipped(run_dir: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(run_dir)): path.read_bytes()
        for path in run_dir.rglob("*")
        if path.is_file() and ".aorta" not in path.relative_to(run_dir).parts
    }


def _assert_nothing_in(run_dir: Path) -> None:
    files = _shipped(run_dir)
    assert len(files) > 8
    for name, data in files.items():
        for secret in ENCODED:
            assert secret.encode() not in data, (name, secret)
            assert secret not in name
    assert not any("falcon" in path.name for path in run_dir.rglob("*") if path.is_dir())


def _leaky_spec(folder: Path, **keys: object) -> Path:
    """A workload that shows its secrets wherever it can."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shapes-tk-9f8e7d6c5b4a.txt").write_text(f"a {PROJECT}\nb\nc {TOKEN}\nd\n")
    script = (
        f"# made for {PROJECT}\n"
        f'echo "project {PROJECT} token {TOKEN}"\n'
        f"echo 'GET /api?q={quote(PROJECT, safe='')}' >&2\n"
        f"echo '{json.dumps({'name': PROJECT})}' >&2\n"
        f"printf '%s\\n' '{PROJECT.upper()}'\n"
        f'grep -q "tk-9f" "$F" && [ "$N" -ge 5 ] && echo "BOOM in {PROJECT}"\n'
    )
    axes = [
        numeric("N", 6, 4),
        {"name": "F", "kind": "file_subset", "initial": "shapes-tk-9f8e7d6c5b4a.txt"},
    ]
    spec = write_spec(folder, script, axes, extra_env={"OWNER": PROJECT, "T": TOKEN}, **keys)
    spec.write_text(spec.read_text() + f"# for {PROJECT}\n")
    return spec


def test_patterns_of_the_command_line_and_of_the_spec_reach_every_byte_that_ships(
    tmp_path: Path,
) -> None:
    spec = _leaky_spec(tmp_path, scrub=["re:tk-[0-9a-f]+"])
    done = reduce_spec(spec, "--scrub", f"{PROJECT},not-in-here")
    assert done.exit_code == 3, done.stderr
    assert "does not fail by itself" in done.json()["why"]  # what it greps for was taken out of it
    run_dir = run_dir_of(done.json(), tmp_path)
    _assert_nothing_in(run_dir)
    ship = (run_dir / "SHIP.md").read_text()
    assert "patterns given: 3" in ship
    assert "scrub:" not in (run_dir / "spec.yaml").read_text()  # a pattern would name what it hides
    assert "scrub:" not in (run_dir / "shrunken" / "aorta.yaml").read_text()


def test_the_private_journal_is_whole_and_a_stopped_run_is_scrubbed_too(tmp_path: Path) -> None:
    spec = _leaky_spec(tmp_path)
    done = reduce_spec(spec, "--scrub", f"{PROJECT},{TOKEN}", "--max-trials", "3")
    assert done.exit_code == 4
    run_dir = run_dir_of(done.json(), tmp_path)
    _assert_nothing_in(run_dir)
    assert PROJECT in RunDir(run_dir).journal.read_text()


def test_the_reproducer_still_runs_when_its_data_file_was_renamed(tmp_path: Path) -> None:
    (tmp_path / "acme-shapes.txt").write_text("a\nb\nc\n")
    axis = {"name": "F", "kind": "file_subset", "initial": "acme-shapes.txt"}
    spec = write_spec(tmp_path, 'grep -qx b "$F" && echo BOOM', [axis], oracle=dict(BOOM))
    done = reduce_spec(spec, "--scrub", "acme")
    run_dir = run_dir_of(done.json(), tmp_path)
    ran = subprocess.run(
        ["bash", run_dir / "shrunken" / "run_repro.sh"], capture_output=True, text=True, check=False
    )
    assert "BOOM" in ran.stdout, ran.stderr
    assert not [path for path in run_dir.glob("shrunken/*") if "acme" in path.name]


def test_data_that_is_not_text_and_matches_is_left_out_and_named(tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    shards.mkdir()
    (shards / "good").write_bytes(b"\0\1fine")
    (shards / "bad").write_bytes(b"\0\1broken acme")
    axis = {"name": "S", "kind": "dir_subset", "initial": "shards"}
    spec = write_spec(tmp_path, 'grep -qs broken "$S"/* && echo BOOM', [axis])
    done = reduce_spec(spec, "--scrub", "acme")
    run_dir = run_dir_of(done.json(), tmp_path)
    assert not (run_dir / "shrunken" / "shards" / "bad").exists()
    assert "is not text, and was left out" in (run_dir / "SHIP.md").read_text()


def test_a_run_that_is_resumed_by_its_directory_alone_is_scrubbed_as_before(tmp_path: Path) -> None:
    script = 'echo "project zebra-9"; [ "$N" -ge 5 ] && echo BOOM'
    spec = write_spec(tmp_path, script, [numeric("N", 6, 4)])
    run_dir = run_dir_of(reduce_spec(spec, "--scrub", "zebra-9").json(), tmp_path)
    again = aorta("reduce", "--resume", run_dir, "--json", "-q", cwd=tmp_path)
    assert again.exit_code == 0, again.stderr
    assert "logs/stdout.log" in _shipped(run_dir)
    assert not [name for name, data in _shipped(run_dir).items() if b"zebra-9" in data]
