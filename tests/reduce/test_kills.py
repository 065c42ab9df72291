"""Killed with -9 at ten random moments and taken up again, with one or with three trials side by
side.
"""

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

from aorta.engine.journal import read_records
from support.aorta_cli import environ
from support.reductions import finals, numeric, reduce_spec, write_spec
from support.waiting import patience

KILLS = 10

# One interpreter that has everything imported forks a child a command line, so that ten kills cost
# no start-ups.
DRIVER = """
import glob, json, os, random, signal, sys, time
from aorta.cli.app import run
import aorta.cli.reduce, aorta.reduce.plan, aorta.reduce.running, aorta.reduce.report, aorta.executors.choosing

kills, seed, longest, *arguments = json.loads(sys.argv[1])
draw = random.Random(seed)
while True:
    jobs = draw.choice("13")
    child = os.fork()
    if child == 0:
        begun = ["out/" + path.split("/")[2] for path in glob.glob("out/.aorta/*/journal.jsonl")]
        os.setsid()
        log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        # By name: the last kill may have come after the results were written, when nothing is unfinished.
        run([*arguments, "--jobs", jobs, *(["--resume", *begun] if begun else [])])
    if kills:
        time.sleep(draw.uniform(0.02, longest))
    ended, status = os.waitpid(child, os.WNOHANG if kills else 0)
    if ended:
        sys.exit(os.waitstatus_to_exitcode(status))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print(jobs)
    kills -= 1
"""

SCRIPT = (
    'echo "begin $N $(cksum < "$F")" >> "$COUNT"; sleep 0.15\n'
    'echo "end $N $(cksum < "$F")" >> "$COUNT"\n'
    '[ "$N" -ge 137 ] && grep -qx c "$F" && grep -qx f "$F" && echo BOOM\n'
)


def test_killed_ten_times_it_answers_the_same_and_runs_no_trial_twice(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("a\nc\nd\nf\ng\n")
    axes = [numeric("N", 200, 120), {"name": "F", "kind": "file_subset", "initial": "f.txt"}]
    spec = write_spec(tmp_path, SCRIPT, axes)
    count = tmp_path / "count"
    (tmp_path / "out").mkdir()
    seed = random.randrange(10**6)
    order = [KILLS, seed, 0.9, "reduce", "--spec", "aorta.yaml", "--output", "out", "-v"]
    driven = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(order)],
        cwd=tmp_path, env=environ({"COUNT": str(count)}), timeout=patience(500), check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    said = (tmp_path / "log.txt").read_text()
    assert driven.returncode == 0, (seed, driven.stderr, said)
    (journal,) = (tmp_path / "out").glob(".aorta/*/journal.jsonl")
    done = reduce_spec(spec, "--resume", tmp_path / "out" / journal.parent.name)
    report = done.json()
    assert finals(report) == {"N": 137, "F": 2}, seed
    assert report["axes"][1]["final_items"] == ["c", "f"]
    assert report["resumed_trials"] == report["trials"], (seed, "a finished run ran something")

    lines = count.read_text().splitlines()
    begun = sum(line.startswith("begin") for line in lines)
    ended = Counter(line for line in lines if line.startswith("end"))
    trials = read_records(journal)
    keys = Counter((record.point, record.index) for record in trials)
    assert max(keys.values()) == 1, "a trial is in the journal twice"
    unused = said.count("no longer matters")
    cut_short = sum(map(int, driven.stdout.split()))  # at most a trial of each job that was killed
    assert begun <= len(trials) + unused + cut_short, seed
    assert sum(ended.values()) <= len(trials) + unused + cut_short, seed
