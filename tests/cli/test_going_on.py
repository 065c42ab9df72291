"""What a budget ended is gone on with in the same way by every verb: by the command that it prints,
or without a name; and what is over is not offered.
"""

from pathlib import Path

import pytest

from support.aorta_cli import aorta
from support.git_repositories import Repository

SPEC = """\
workload: {command: 'test $NUM_STEPS -lt 17 || { echo "RuntimeError: bad step" >&2; exit 1; }'}
axes: [{name: NUM_STEPS, kind: env, type: int, initial: 500, floor: 1, monotone: true}]
oracle: {kind: exit_code}
"""
LIMITS = {
    "reduce": ("--max-trials", "5", "--spec", "aorta.yaml"),
    "isolate": ("--max-trials", "3", "--nodes", "0-3", "--", "bash", "job.sh"),
    "bisect": ("--max-trials", "3", "--good", "HEAD~9", "--", "bash", "test.sh"),
}


def laid_out(place: Path) -> None:
    repository = Repository.create(place)
    for number in range(10):
        repository.commit(f"change {number}", {"number": str(number)})
    (place / "test.sh").write_text("[ $(cat number) -lt 6 ]\n")
    (place / "aorta.yaml").write_text(SPEC)
    (place / "job.sh").write_text(
        "case ,$AORTA_NODES, in *,2,*) echo 'RuntimeError: ECC' >&2; exit 1;; esac\n"
    )
    repository.commit("tests", {"test.sh": (place / "test.sh").read_text(), "number": "10"})


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("verb", LIMITS)
def test_a_run_that_a_budget_ended_is_gone_on_with_to_its_end(
    tmp_path: Path, verb: str, named: bool
) -> None:
    place = tmp_path / "work"
    laid_out(place)
    ended = aorta(verb, *LIMITS[verb], cwd=place)
    assert ended.exit_code == 4, ended.stderr
    _, _, command = ended.stderr.partition("go on with: aorta ")
    words = command.split() if named else [verb, "--resume"]
    done = aorta(*words, "--json", "-q", cwd=place)
    assert done.exit_code == 0, done.stderr
    assert aorta(verb, "--resume", cwd=place).exit_code == 2, "nothing is left to go on with"
