"""What people who use `git bisect run` count on."""

from pathlib import Path

import pytest

from support.aorta_cli import Finished, aorta
from support.git_repositories import Repository, numbered


def bisect(repository: Repository, out: Path, *words: str | Path) -> Finished:
    return aorta(
        "bisect", "--json", "--no-cache", "--output-prefix", out, *words, cwd=repository.path
    )


def fails_from(number: int, code: str = "exit 1") -> tuple[str, ...]:
    return (
        "--",
        "sh",
        "-c",
        f"test $(cat number) -lt {number} || {{ echo Error: broken; {code}; }}",
    )


@pytest.mark.parametrize(
    "code",
    ["exit 1", "exit 124", "exit 127", "exit 143", "kill -SEGV $$", "kill -KILL $$", "exit 255"],
)
def test_every_ordinary_exit_code_and_a_crash_are_bad(tmp_path: Path, code: str) -> None:
    repository, shas = numbered(tmp_path / "repo", 9)
    found = bisect(repository, tmp_path / "out", "--good", shas[0], *fails_from(5, code)).json()
    assert found["culprits"][0]["bad"] == shas[5]


def test_a_script_that_no_commit_has_tests_every_commit(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 12)
    script = repository.path / "check it.sh"
    script.write_text("#!/bin/sh\ntest $(cat number) -lt 7\n")
    script.chmod(0o755)
    done = bisect(repository, tmp_path / "out", "--good", shas[0], "--", "./check it.sh")
    assert done.json()["culprits"][0]["bad"] == shas[7], done.stderr
    assert "is in no commit" in done.stderr
    assert str(script) in done.json()["reproduce"]["bad"]


def test_a_script_of_the_repository_is_the_one_of_each_commit(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repo")
    script = "test $(cat number) -lt {limit}\n"
    shas = [
        repository.commit(f"commit {i}", {"number": f"{i}\n", "check.sh": script.format(limit=99)})
        for i in range(8)
    ]
    shas.append(repository.commit("stricter", {"check.sh": script.format(limit=3)}))
    found = bisect(repository, tmp_path / "out", "--good", shas[0], "--", "sh", "check.sh").json()
    assert found["culprits"][0]["title"] == "stricter"


def merged(tmp_path: Path) -> tuple[Repository, list[str], str]:
    """A branch of four commits, the second of which breaks it, merged between others."""
    repository, shas = numbered(tmp_path / "repo", 4)
    repository.git("checkout", "--quiet", "-b", "branch")
    inner = [
        repository.commit(f"branch {i}", {"other": "bad\n" if i >= 1 else "good\n"})
        for i in range(4)
    ]
    repository.git("checkout", "--quiet", "main")
    repository.commit("beside", {"number": "4\n"})
    repository.git("merge", "--quiet", "--no-ff", "--message=merge it", "branch")
    merge = repository.head
    repository.commit("after", {"number": "5\n"})
    return repository, [shas[0], merge, *inner], inner[1]


def test_first_parent_names_the_merge_and_its_absence_the_commit_it_merged(tmp_path: Path) -> None:
    repository, (good, merge, *_), culprit = merged(tmp_path)
    words = ("--good", good, "--", "sh", "-c", "! grep -q bad other")
    inside = bisect(repository, tmp_path / "out", *words).json()
    assert inside["culprits"][0]["bad"] == culprit
    assert inside["culprits"][0]["merge"] == merge
    outside = bisect(repository, tmp_path / "two", "--first-parent", *words).json()
    assert outside["culprits"][0]["bad"] == merge
    assert outside["culprits"][0]["title"] == "merge it"


def in_turn(tmp_path: Path) -> tuple[Repository, list[str]]:
    """Commits that touch `src/a` and `docs/b` in turn."""
    repository = Repository.create(tmp_path / "repo")
    for directory in ("src", "docs"):
        (repository.path / directory).mkdir()
    repository.commit("begin", {"src/a": "0\n", "docs/b": "0\n"})
    files = ("src/a", "docs/b")
    return repository, [
        repository.commit(f"commit {i}", {files[i % 2]: f"{i}\n"}) for i in range(20)
    ]


def test_only_commits_that_touch_a_path_are_candidates(tmp_path: Path) -> None:
    repository, shas = in_turn(tmp_path)
    words = ("--good", shas[0], "--path", "src", "--", "sh", "-c", "test $(cat src/a) -lt 12")
    planned = bisect(repository, tmp_path / "out", "--dry-run", *words).json()
    assert planned["changes"] == 10  # nine of src, and the end
    found = bisect(repository, tmp_path / "out", *words).json()
    assert found["culprits"][0]["bad"] == shas[12]
    assert found["culprits"][0]["title"] == "commit 12"
    assert found["warnings"] == []


def test_a_failure_that_no_commit_of_the_path_brings_is_said_to_be_so(tmp_path: Path) -> None:
    repository, shas = in_turn(tmp_path)
    words = ("--path", "src", "--", "sh", "-c", "test $(cat docs/b) -lt 19")
    found = bisect(repository, tmp_path / "out", "--good", shas[0], *words).json()
    assert any("no commit that touches src" in warning for warning in found["warnings"])


def test_skipped_commits_are_never_tried_and_the_answer_says_what_they_hide(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 20)
    log = tmp_path / "tried"
    script = f"cat number >> {log}; test $(cat number) -lt 11"
    words = ("--skip", f"{shas[8]}..{shas[10]}", "--skip", shas[11], "--", "sh", "-c", script)
    found = bisect(repository, tmp_path / "out", "--good", shas[0], *words).json()
    assert found["status"] == "range"
    assert [culprit["bad"] for culprit in found["culprits"]] == shas[9:13]
    assert not {"9", "10", "11"} & set(log.read_text().split())
