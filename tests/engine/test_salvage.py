"""A journal with damage in its middle, as a user meets it: refused, and gone on with only when told
to.
"""

import json
from pathlib import Path

import pytest

from support.aorta_cli import aorta
from support.reductions import finals, numeric, write_spec

LOGGED = 'echo x >> "$COUNT"; [ "$N" -ge 137 ] && echo BOOM'


def damaged(journal: Path) -> int:
    """Spoils a trial in the middle; says how many whole trials stand behind it."""
    lines = journal.read_text().splitlines()
    trials = [i for i, line in enumerate(lines) if json.loads(line)["kind"] == "trial"]
    spoilt = trials[len(trials) // 2]
    lines[spoilt] = lines[spoilt][:20] + "\0" * 8
    journal.write_text("\n".join(lines) + "\n")
    return len([i for i in trials if i > spoilt])


@pytest.mark.parametrize("verb", ["run", "reduce"])
def test_a_damaged_journal_is_refused_and_with_salvage_only_what_is_lost_runs_again(
    tmp_path: Path, verb: str
) -> None:
    count = tmp_path / "count"
    if verb == "run":
        words = ["run", "--trials", "9", "--json", "-q"]
        what = ["--", "bash", "-c", LOGGED]
    else:
        words = ["reduce", "--spec", str(write_spec(tmp_path, LOGGED, [numeric("N", 5000, 50)]))]
        words, what = [*words, "--output", "out", "--json", "-q"], []
    env = {"COUNT": str(count), "N": "1"}
    first = aorta(*words, *what, cwd=tmp_path, env=env).json()
    run_dir = tmp_path / first["run_dir"]
    journal = run_dir / ".aorta" / "journal.jsonl"
    before, behind = len(count.read_text().split()), damaged(journal)
    spoilt = journal.read_bytes()

    refused = aorta(*words, "--resume", run_dir, *what, cwd=tmp_path, env=env)
    assert refused.exit_code == 2
    said = refused.json()["error"]["message"]
    assert f"{behind} trials behind it can still be read" in said
    assert "--salvage" in said
    assert journal.read_bytes() == spoilt

    done = aorta(*words, "--resume", run_dir, "--salvage", *what, cwd=tmp_path, env=env)
    answer = done.json()
    assert len(count.read_text().split()) == before + 1, "the one that is lost"
    assert (run_dir / ".aorta" / "journal.damaged-1.jsonl").read_bytes() == spoilt
    if verb == "run":
        assert answer["rate"] == first["rate"]
    else:
        assert finals(answer) == finals(first) == {"N": 137}
    again = aorta(*words, "--resume", run_dir, *what, cwd=tmp_path, env=env)
    assert again.exit_code == done.exit_code
    assert len(count.read_text().split()) == before + 1, "a finished run runs nothing"


def test_salvage_without_a_run_to_go_on_with_is_refused(tmp_path: Path) -> None:
    done = aorta("run", "--salvage", "--", "true", cwd=tmp_path)
    assert done.exit_code == 2
    assert "give --resume too" in done.stderr
