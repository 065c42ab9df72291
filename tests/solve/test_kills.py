"""A solve that is killed on the way comes to the same answer, and no finished trial is run
again.
"""

import json
import os
import signal
from pathlib import Path

from benchmarks import solve_stories
from benchmarks.solve_stories import Story

from support.aorta_cli import aorta, start_aorta
from support.waiting import wait_until


def trials_in(output: Path) -> int:
    files = list(output.glob("*/.aorta/trials.jsonl"))
    return sum(file.read_bytes().count(b"\n") for file in files)


def kill_after(story: Story, words: tuple[str, ...], more: int) -> None:
    """Start it, and kill it as soon as so many more trials have ended."""
    output = story.directory / "solve"
    before = trials_in(output)
    process = start_aorta("solve", "--json", "-q", *words, cwd=story.directory)
    wait_until(
        lambda: trials_in(output) >= before + more or process.poll() is not None,
        f"{more} more trials",
    )
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def test_killed_three_times_it_comes_to_the_same_answer(tmp_path: Path) -> None:
    story = solve_stories.race_of_threads(tmp_path, rate=1.0)
    kill_after(story, (*story.options, "--", *story.command), 2)
    for more in (12, 10):
        kill_after(story, ("--resume",), more)
    (run_dir,) = (tmp_path / "solve").glob("2*")
    done = aorta("solve", "--resume", run_dir, "--json", "-q", cwd=tmp_path, timeout=300)
    assert done.exit_code == 0, done.stderr
    document = done.json()
    finals = {axis["name"]: axis["final"] for axis in document["reproducer"]["axes"]}
    assert finals == story.truth["axes"]
    assert document["cure"]["mitigations"] == story.truth["cure"]
    assert document["cure"]["verified_on"] == "original"
    assert document["reproducer"]["elsewhere"]["reproduced"] == 1
    written = (run_dir / ".aorta/trials.jsonl").read_text()
    lines = [json.loads(line) for line in written.splitlines()]
    ran = [line["end"]["stdout"]["path"] for line in lines if "end" in line]
    twice = len(ran) - len(set(ran))
    assert twice <= 3  # at most the one that was under way, each time it was killed
    again = aorta("solve", "--resume", run_dir, "--json", "-q", cwd=tmp_path)
    assert again.exit_code == 0
    assert again.json()["trials"] == document["trials"]
