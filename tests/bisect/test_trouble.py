"""What goes wrong in a repository of the host: one clear line each, and nothing left behind."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.aorta_cli import Finished, aorta
from support.git_repositories import Repository, numbered
from support.services import requirements

FAILS_FROM_6 = ("--", "sh", "-c", "test $(cat number) -lt 6")


def bisect(repository: Repository, out: Path, *words: str | Path) -> Finished:
    how = ("--json", "--no-checks", "--output-prefix", out)
    return aorta("bisect", *how, *words, cwd=repository.path)


def spec_of(tmp_path: Path, repository: Repository, shas: list[str], build: str) -> Path:
    package = {"name": "repo", "path": str(repository.path), "good": shas[0], "bad": shas[-1]}
    spec = tmp_path / "bisect.yaml"
    spec.write_text(yaml.safe_dump({"packages": [{**package, "build": build}]}))
    return spec


def test_a_build_that_fails_everywhere_is_said_with_its_words_and_its_log_is_kept(
    tmp_path: Path,
) -> None:
    repository, shas = numbered(tmp_path / "repo", 8)
    spec = spec_of(tmp_path, repository, shas, "echo there is no compiler >&2; false")
    done = bisect(repository, tmp_path / "out", "--spec", spec, *FAILS_FROM_6)
    assert done.exit_code == 3
    assert done.json()["status"] == "did_not_reproduce"
    assert "it could not be made: there is no compiler" in done.json()["warnings"][0]
    logs = list((tmp_path / "out").rglob("build.log"))
    assert len(logs) == 2  # of both ends
    assert all("there is no compiler" in log.read_text() for log in logs)
    assert repository.worktrees() == [str(repository.path)]


def test_a_build_that_hangs_is_ended_by_its_own_time_limit(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 8)
    spec = spec_of(tmp_path, repository, shas, "test $(cat number) -ne 4 || sleep 600")
    words = ("--spec", spec, "--build-timeout", "3s", *FAILS_FROM_6)
    done = bisect(repository, tmp_path / "out", *words)
    assert done.json()["culprits"][0]["bad"] == shas[6], done.stderr
    assert all("ran out of time" in entry["why"] for entry in done.json()["skipped"])
    assert repository.worktrees() == [str(repository.path)]


def test_good_and_bad_the_wrong_way_round_are_both_ways_said(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 8)
    swapped = ("--good", shas[7], "--bad", shas[0])
    refused = bisect(repository, tmp_path / "out", *swapped, *FAILS_FROM_6)
    assert refused.exit_code == 2
    assert "is newer than the bad end" in refused.stderr
    passes = ("--good", shas[0], "--", "sh", "-c", "test $(cat number) -ge 6")
    done = bisect(repository, tmp_path / "two", *passes)
    assert done.exit_code == 3
    assert "good and bad are not swapped" in done.json()["warnings"][0]


def test_histories_without_a_common_commit_are_refused(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 4)
    repository.git("checkout", "--quiet", "--orphan", "other")
    other = repository.commit("elsewhere", {"number": "9\n"})
    done = bisect(repository, tmp_path / "out", "--good", shas[0], "--bad", other, *FAILS_FROM_6)
    assert done.exit_code == 2
    assert "no common ancestor" in done.stderr


def test_spaces_quotes_and_umlauts_in_paths_reach_every_command(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "mein 'Pröjekt' \"x\"", 9)
    found = bisect(repository, tmp_path / "öut put", "--good", shas[0], *FAILS_FROM_6).json()
    assert found["culprits"][0]["bad"] == shas[6]
    for side, code in (("good", 0), ("bad", 1)):
        command = ("sh", "-c", found["reproduce"][side])
        shown = subprocess.run(command, capture_output=True, cwd=tmp_path, check=False)
        assert shown.returncode == code, shown.stderr


def test_submodules_are_checked_out_with_every_state(tmp_path: Path) -> None:
    library, _ = numbered(tmp_path / "library", 2, name="library")
    repository = Repository.create(tmp_path / "repo")
    allow = ("-c", "protocol.file.allow=always")
    repository.git(*allow, "submodule", "--quiet", "add", str(library.path), "library")
    shas = [repository.commit(f"commit {i}", {"number": f"{i}\n"}) for i in range(9)]
    script = "test -e library/library || exit 125; test $(cat number) -lt 6"
    words = ("--good", shas[0], "--", "sh", "-c", script)
    found = bisect(repository, tmp_path / "out", *words).json()
    assert found["culprits"][0]["bad"] == shas[6]


def test_the_words_of_the_first_failure_are_shown_and_a_slip_ends_soon(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 4)
    (repository.path / "not-executable").write_text("")
    shas.append(repository.commit("a file", {"not-executable": ""}))
    slips = (["./not-executable"], "ermission denied"), (["sh", "-c", "if"], "yntax error")
    for number, (command, said) in enumerate(slips):
        done = bisect(repository, tmp_path / f"{number}", "--good", shas[0], "--", *command)
        assert done.exit_code == (5, 3)[number]  # what cannot be executed tells nothing
        assert said in done.stderr
        assert done.json()["tests"] <= 6


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        requirements.end_without("a small disk needs root here; run with: sudo make test")
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(("mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(place)), check=True)
    yield place
    subprocess.run(("umount", str(place)), check=True)


def test_a_disk_that_fills_up_ends_the_run_with_one_line_and_it_goes_on_where_there_is_room(
    small_disk: Path, tmp_path: Path
) -> None:
    repository, shas = numbered(tmp_path / "repo", 33)
    script = "head -c 150000 /dev/zero; test $(cat number) -lt 20"
    words = ("--good", shas[0], "--", "sh", "-c", script)
    done = bisect(repository, small_disk / "out", *words)
    assert done.exit_code == 5
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr.splitlines()[-1]
    assert repository.worktrees() == [str(repository.path)]
    subprocess.run(("mount", "-o", "remount,size=64m", str(small_disk)), check=True)
    resumed = ("bisect", "--json", "--resume", str(small_disk / "out"), *words)
    found = aorta(*resumed, cwd=repository.path).json()
    assert found["culprits"][0]["bad"] == shas[20]
    assert found["resumed_trials"] > 0
