"""No result contradicts itself or its trials, and every search ends."""

import json
import marshal
import math
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from aorta.bisect.findings import Findings, without_contradictions
from aorta.bisect.report import write_answer
from aorta.bisect.request import run_bisection
from aorta.bisect.run import BisectRun, ResolvedRequest
from aorta.bisect.spec import BisectSpec, PackageSpec
from aorta.core.trial import TrialSpec
from aorta.executors.local import LocalExecutor
from support.aorta_cli import Finished, aorta, start_aorta
from support.git_repositories import Repository, contained, drawn_dates, drawn_parents, numbered
from support.processes import wait_for_file
from support.simulated import SimulatedExecutor
from support.waiting import patience


def bisect(repository: Repository, out: Path, *words: str | Path) -> Finished:
    how = ("--json", "--output-prefix", out, "--max-trials", "60")
    return aorta("bisect", *how, *words, cwd=repository.path)


def check(found: dict[str, Any], out: Path) -> None:
    """What holds for every result, whatever was searched."""
    journal = [
        json.loads(line) for line in next(out.glob("**/journal.jsonl")).read_text().splitlines()
    ]
    failed = [line for line in journal if line.get("outcome") == "reproduced"]
    if found["status"] == "did_not_reproduce":
        assert not failed
    if found["status"] in {"found", "pair", "range"}:
        assert found["culprits"]
        assert found["seen"]["bad"]["failed"] > 0
        assert found["seen"]["good"]["failed"] < found["seen"]["good"]["of"]
    elif found["status"] != "partial":
        assert not found["culprits"]
        assert found["confidence"] is None


@pytest.mark.parametrize(
    ("test", "status", "checks"),
    [
        ("exit 1", "inconsistent", ()),
        ("exit 1", "inconsistent", ("--no-checks",)),
        ("exit 0", "did_not_reproduce", ()),
        ("exit 125", "did_not_reproduce", ("--no-checks",)),
        ("test $(cat number) -lt 7", "found", ()),
        ("test $(cat number) -lt 1", "found", ("--no-checks",)),
        ("test $(cat number) -lt 11", "found", ()),
        ("test $(cat number) -gt 3 && exit 125; exit 0", "did_not_reproduce", ()),
    ],
)
def test_without_the_check_of_the_bad_end_every_answer_was_still_seen(
    tmp_path: Path, test: str, status: str, checks: tuple[str, ...]
) -> None:
    repository, shas = numbered(tmp_path / "repo", 12)
    words = ("--good", shas[0], "--skip-precondition-checks", *checks, "--", "sh", "-c", test)
    done = bisect(repository, tmp_path / "out", *words)
    found = done.json()
    check(found, tmp_path / "out")
    assert found["tests"] <= 4 + 20
    assert found["status"] == status, done.stderr
    if status == "found":
        assert found["culprits"][0]["commit"] == shas[int(test.rsplit(maxsplit=1)[-1])]
        assert found["confidence"] <= 0.97
    if test == "exit 1":
        assert "the good end fails too" in done.stderr


def test_the_good_end_is_tried_though_the_bad_one_is_trusted(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 8)
    log = tmp_path / "tried"
    script = f"cat number >> {log}; test $(cat number) -lt 5"
    words = ("--good", shas[0], "--skip-precondition-checks", "--", "sh", "-c", script)
    assert bisect(repository, tmp_path / "out", *words).json()["status"] == "found"
    tried = log.read_text().split()
    assert tried[0] == "0"
    assert "7" not in tried[:3]


def test_what_stays_of_a_request_holds_no_token(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 4)
    spec = tmp_path / "bisect.yaml"
    package = f"{{name: p, path: {repository.path}, good: {shas[0]}, bad: {shas[-1]}, "
    spec.write_text(f"packages: [{package} remote: 'https://x:hunter2secret@host.invalid/p'}}]\n")
    test = ("--", "sh", "-c", "test $(cat number) -lt 2")
    done = bisect(repository, tmp_path / "out", "--spec", spec, *test)
    assert done.json()["status"] == "found", done.stderr
    kept = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert not [path for path in kept if b"hunter2secret" in path.read_bytes()]
    again = aorta("bisect", "--json", "--resume", tmp_path / "out", cwd=repository.path)
    assert again.json()["status"] == "found", again.stderr
    spec.write_text("packages: []\n")
    refused = bisect(repository, tmp_path / "two", "--spec", spec, *test)
    assert refused.exit_code == 2
    assert "packages" in refused.stderr
    assert "empty" in refused.stderr


COMMITS = 30


class States:
    """Answers the trials of a bisection without a process: a checkout is noted, a test is drawn. It
    fails in `fails` of its trials with the commit `culprit` and in `flakes` of them without it; the
    states of `broken` cannot be tested.
    """

    def __init__(self, held: dict[str, set[int]], draw: random.Random) -> None:
        self.held, self._draw, self._at = held, draw, dict[str, str]()
        self.culprit = draw.randrange(COMMITS)
        self.fails, self.flakes = draw.choice([(1, 0), (0.5, 0), (0.9, 0.1), (0, 0), (1, 1)])
        share = draw.choice([0, 0, 0.3, 1])
        self.broken = {sha for sha in held if draw.random() < share}

    def __call__(self, trial: TrialSpec) -> int:
        if trial.argv[-1].endswith("/job"):
            for tree in marshal.loads(Path(trial.argv[-1]).read_bytes())["trees"]:
                self._at[tree["tree"]] = tree["sha"]
            return 0
        sha = self._at[str(trial.cwd)]
        rate = self.fails if self.culprit in self.held[sha] else self.flakes
        return 125 if sha in self.broken else int(self._draw.random() < rate)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_history_its_dates_and_its_tests_the_result_agrees_with_the_trials(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    made = Repository.create(tmp_path / "repo")
    parents = drawn_parents(draw, COMMITS)
    shas = made.graph(parents, drawn_dates(draw, COMMITS))
    held = [contained(parents, number) for number in range(COMMITS)]
    bad = COMMITS - 1
    good = draw.choice([n for n in range(bad) if n in held[bad]])
    states = States(dict(zip(shas, held, strict=True)), draw)
    executor = SimulatedExecutor(states)
    package = PackageSpec(name="package", path=str(made.path), good=shas[good], bad=shas[bad])
    request = ResolvedRequest(
        BisectSpec(
            command=("test",),
            packages=(package,),
            skip_precondition_checks=draw.random() < 0.3,
        ),
        made.path,
        tmp_path / "out",
        lambda: executor,
        checks=draw.random() < 0.5,
    )
    written = run_bisection(request)
    found = json.loads((tmp_path / "out" / "result.json").read_text())
    check(found, tmp_path / "out")
    assert found["status"] != "partial"
    assert (found["status"] in {"found", "range"}) is (written.exit_code == 0)
    assert {*found["good"].values(), *found["bad"].values()} <= set(shas)
    changes = len(held[bad] - held[good])
    assert found["tests"] <= 60 * (2 + math.log2(changes + 1))
    if states.fails == 1 and states.flakes == 0 and not states.broken:
        is_there = states.culprit in held[bad] - held[good]
        named = [one["commit"] for one in found["culprits"]]
        assert named == ([shas[states.culprit]] if is_there else [])
        assert found["tests"] <= (2 + math.ceil(math.log2(changes)) + 8 if is_there else 24)


def test_a_result_that_contradicts_its_trials_is_no_answer(tmp_path: Path) -> None:
    seen = {"good": {"failed": 0, "of": 3}, "bad": {"failed": 0, "of": 0}}
    culprit = {"package": "p", "good": "1", "bad": "2"}
    said = Findings("found", [culprit], 0.954, good={"p": "1"}, bad={"p": "2"}, seen=seen)
    mended = without_contradictions(said, [])
    assert (mended.status, mended.culprits, mended.confidence) == ("inconsistent", (), None)
    assert mended.exit_code == 3
    assert "no trial of the bad side failed" in mended.warnings
    fine = Findings("did_not_reproduce", exit_code=3)
    assert without_contradictions(fine, []) is fine
    spec = BisectSpec(command=("true",))
    with BisectRun(ResolvedRequest(spec, tmp_path, tmp_path / "out", LocalExecutor)) as run:
        write_answer(run, said, {})
    written = json.loads((tmp_path / "out" / "result.json").read_text())
    assert written["status"] == "inconsistent"
    assert "no trial of the bad side failed" in written["warnings"]


def test_a_second_interrupt_still_leaves_the_result_and_how_to_go_on(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 8)
    # A test that does not let itself be stopped at once: time for a second Ctrl-C.
    script = f"trap 'sleep 1' TERM INT; touch {tmp_path}/going; sleep 300 & wait; sleep 1"
    words = ("--json", "--good", shas[0], "--output-prefix", tmp_path / "out")
    running = start_aorta("bisect", *words, "--", "sh", "-c", script, cwd=repository.path)
    wait_for_file(tmp_path / "going")
    running.send_signal(signal.SIGINT)
    time.sleep(0.3)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=patience())
    assert running.returncode == 130, err
    assert json.loads(out)["status"] == "partial"
    assert (tmp_path / "out" / "result.json").exists()
    assert b"--resume" in err
