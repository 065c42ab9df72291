"""Every dry run is one document of `--json`, and leaves nothing."""

from pathlib import Path

import pytest

from support.aorta_cli import aorta
from support.git_repositories import Repository

JOB = ("--", "true")
VERBS = {
    "run": ("run", *JOB),
    "triage": ("triage", "run", "--mode", "optimize", *JOB),
    "bisect": ("bisect", "--good", "HEAD~1", *JOB),
    "diverge": ("diverge", *JOB),
    "isolate": ("isolate", "--nodes", "0,1", *JOB),
    "solve": ("solve", *JOB),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_dry_run_is_one_document_with_the_lines_for_people(tmp_path: Path, verb: str) -> None:
    repository = Repository.create(tmp_path / "work")
    for number in range(2):
        repository.commit(f"change {number}", {"number": str(number)})
    (word, *more) = VERBS[verb]
    at = more.index("--")
    words = (word, *more[:at], "--dry-run", *more[at:])
    told = aorta(*words, cwd=tmp_path / "work")
    assert told.exit_code == 0, told.stderr
    assert told.stderr.endswith("nothing was run\n")
    done = aorta(*words[:-2], "--json", *words[-2:], cwd=tmp_path / "work")
    assert done.exit_code == 0, done.stderr
    document = done.json()
    assert document["schema"] == f"aorta.{verb}.plan/1"
    assert document["lines"]
    for line in document["lines"]:
        assert line in told.stdout + told.stderr
    assert {path.name for path in (tmp_path / "work").iterdir()} == {".git", "number"}
