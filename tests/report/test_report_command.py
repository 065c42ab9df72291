"""`aorta report` as a user runs it."""

import json
import shutil
from pathlib import Path

import pytest

from support import run_dirs
from support.aorta_cli import aorta
from support.report_runs import launch_dir

FLAKY = (
    'n=$(cat n 2>/dev/null || echo 0); echo $((n+1)) > n; [ $((n%2)) = 0 ] || { echo "Error: '
    'loss is nan" >&2; exit 1; }'
)


def test_a_run_becomes_one_page_that_begins_with_the_answer(tmp_path: Path) -> None:
    ran = aorta("run", "--trials", "4", "-q", "--", "bash", "-c", FLAKY, cwd=tmp_path)
    assert ran.exit_code == 1, ran.stderr
    done = aorta("report", "results/command", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines() == [
        "command: 2 of 4 trials reproduced the failure (95 % interval 15-85 %)",
        "results/command/report.html",
    ]
    text = (tmp_path / "results/command/report.html").read_text("utf-8")
    assert text.startswith("<!doctype html>")
    assert "<h1>command: 2 of 4 trials reproduced the failure" in text
    assert "exit 1 | Error: loss is nan" in text
    assert "default-src &#x27;none&#x27;" in text


def test_json_says_where_the_page_is_and_what_it_answers(tmp_path: Path) -> None:
    aorta("run", "-q", "--", "true", cwd=tmp_path)
    done = aorta("report", "results/command", "-o", "out/page.html", "--json", cwd=tmp_path)
    told = done.json()
    assert told["schema"] == "aorta.report/1"
    assert told["path"] == "out/page.html"
    assert told["bytes"] == (tmp_path / "out/page.html").stat().st_size
    assert told["answer"].startswith("command: 0 of 1 trials reproduced")
    assert not (tmp_path / "results/command/report.html").exists()


@pytest.mark.parametrize("verb", run_dirs.MAKERS)
def test_nothing_private_reaches_a_page_for_others(verb: str, tmp_path: Path) -> None:
    """Run directories with names, addresses, paths and secrets in every place, also with the rest
    missing or odd.
    """
    run = run_dirs.MAKERS[verb](tmp_path)
    done = aorta("report", run, "--share", "-o", tmp_path / "page.html")
    assert done.exit_code == 0, done.stderr
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "<h1>" in text
    for value in run_dirs.PRIVATE_VALUES:
        assert value not in text


def test_a_page_of_ones_own_names_paths_and_no_secret(tmp_path: Path) -> None:
    token = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vX7zB9dF1hJ3"
    script = f"echo cannot open /home/alice77/data.bin with {token} >&2; exit 3"
    aorta("run", "-q", "--pattern", "cannot open", "--", "bash", "-c", script, cwd=tmp_path)
    run = tmp_path / "results" / "command"
    assert aorta("report", run, "-o", tmp_path / "own.html").exit_code == 0
    assert aorta("report", run, "--share", "-o", tmp_path / "shared.html").exit_code == 0
    own, shared = ((tmp_path / f"{name}.html").read_text() for name in ("own", "shared"))
    assert "alice77" not in shared
    assert "/home/alice77/data.bin" in own
    assert token not in own + shared


def test_a_page_goes_into_the_bundle(tmp_path: Path) -> None:
    run = run_dirs.reduce_dir(tmp_path)
    assert aorta("report", run).exit_code == 0
    packed = aorta("bundle", run, "--output", tmp_path / "ship", "--json")
    assert packed.exit_code == 0, packed.stderr
    shown = aorta("bundle", "show", packed.json()["path"])
    assert "report.html" in shown.stdout


@pytest.mark.parametrize("what", ["nothing", "empty", "file"])
def test_what_is_no_run_directory_is_refused_in_one_line(what: str, tmp_path: Path) -> None:
    place = tmp_path / "x"
    if what == "empty":
        place.mkdir()
    elif what == "file":
        place.write_text("x")
    done = aorta("report", place)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert str(place) in done.stderr
    assert "run directory" in done.stderr


def test_a_place_that_cannot_be_written_is_exit_5(tmp_path: Path) -> None:
    run = run_dirs.reduce_dir(tmp_path)
    (tmp_path / "blocked").write_text("a file, not a folder")
    done = aorta("report", run, "-o", tmp_path / "blocked" / "page.html")
    assert done.exit_code == 5
    assert done.stderr.count("\n") == 1


def test_a_run_cut_short_still_has_a_page(tmp_path: Path) -> None:
    """Killed before it wrote a result, with a torn last line in its journal."""
    aorta("run", "--trials", "3", "-q", "--", "false", cwd=tmp_path)
    run = tmp_path / "results" / "command"
    (run / "result.json").unlink()
    about = json.loads((run / ".aorta/run.json").read_text())
    del about["state"]
    (run / ".aorta/run.json").write_text(json.dumps(about))
    with (run / ".aorta/journal.jsonl").open("a") as journal:
        journal.write('{"kind": "trial", "seq": 3, "poi')
    done = aorta("report", run)
    assert done.exit_code == 0, done.stderr
    assert "failed in 3 of 3 trials" in done.stdout
    assert "its process is gone without a result" in (run / "report.html").read_text("utf-8")


def test_what_was_shipped_has_the_same_answer(tmp_path: Path) -> None:
    """A bundle holds no private state: no journal, no lock, no word of how the run stands."""
    ran = aorta("run", "--trials", "4", "-q", "--", "bash", "-c", FLAKY, cwd=tmp_path)
    assert ran.exit_code == 1, ran.stderr
    before = aorta("report", "results/command", cwd=tmp_path).stdout.splitlines()[0]
    shutil.rmtree(tmp_path / "results/command/.aorta")
    after = aorta("report", "results/command", cwd=tmp_path).stdout.splitlines()[0]
    assert after == before
    assert "finished" in (tmp_path / "results/command/report.html").read_text("utf-8")


def test_a_case_and_a_single_cycle_have_pages_of_their_own(tmp_path: Path) -> None:
    logs = launch_dir(tmp_path)
    for place in ("case", "cycle_1"):
        done = aorta("report", logs / place)
        assert done.exit_code == 0, done.stderr
        assert "hardware fault (probability 94 %)" in done.stdout
