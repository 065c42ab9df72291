"""`aorta diverge` as its user types it."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from support.aorta_cli import COMMAND, Finished, aorta, environ, start_aorta
from support.git_repositories import Repository
from support.processes import wait_until_no_process_has
from support.real_runs import AND_OUT, QUICKLY, diverge_dir
from support.waiting import patience, wait_until

pytestmark = pytest.mark.xdist_group("torch-recordings")

PLAIN = """
    import os
    from aorta.diverge import record

    scale = float(os.environ.get("SCALE", "1"))
    values = [float(i) for i in range(100)]
    record("loaded", values)
    doubled = [2 * value for value in values]
    record("doubled", doubled)
    scaled = [scale * value for value in doubled]
    record("scaled", scaled)
    raise SystemExit(3 if scale != 1 else 0)
"""


def script(folder: Path, text: str) -> tuple[str, str]:
    (folder / "train.py").write_text(textwrap.dedent(text))
    return sys.executable, "train.py"


@pytest.fixture(scope="module")
def parted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Path]:
    """What was said of two sides that part, and the run directory."""
    place = tmp_path_factory.mktemp("parted")
    command = script(place, PLAIN)
    done = aorta(
        "diverge", "--bad-set", "SCALE=1.5", "--good-set", "SCALE=1", "--", *command, cwd=place
    )
    assert done.exit_code == 0, done.stderr
    (run_dir,) = (place / "diverge").glob("2*")
    return done, run_dir


def test_a_side_that_ends_early_after_the_same_operations_is_not_called_the_same(
    tmp_path: Path,
) -> None:
    """A bad side alone is compared with the command without what makes it bad."""
    command = script(
        tmp_path,
        """
        import os
        from aorta.diverge import record

        record("loaded", [1.0, 2.0])
        raise SystemExit(1 if os.environ.get("CRASH") else 0)
        """,
    )
    done = aorta("diverge", "--json", "-q", "--bad-set", "CRASH=1", "--", *command, cwd=tmp_path)
    assert (done.exit_code, done.json()["status"]) == (3, "not_aligned"), done.stderr
    ends = "the bad side ended with exit 1, the good side ended with exit 0"
    assert done.json()["notes"] == [f"the sides end otherwise: {ends}"]


def test_what_the_longer_side_does_behind_an_exception_is_no_difference(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        """
        import os, torch

        torch.manual_seed(0)
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            model(torch.randn(3, 4)).sum().backward()
            optimizer.step()
            if os.environ.get("BREAKS") and step == 1:
                raise ValueError("bad batch")
        """,
    )
    done = aorta("diverge", "-q", "--bad-set", "BREAKS=1", "--", *command, cwd=tmp_path)
    assert done.exit_code == 3
    assert "differ as far as both sides were recorded" in done.stdout
    assert "the bad side ended with ValueError: bad batch at" in done.stdout


def test_what_is_lost_before_the_program_fails_its_own_check_is_named(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        """
        import os, torch

        torch.manual_seed(0)
        hidden = torch.nn.Linear(16, 16)(torch.randn(8, 16))
        if not os.environ.get("LOST"):
            hidden = torch.relu(hidden)
        loss = torch.nn.Linear(16, 4)(hidden).square().mean()
        assert not os.environ.get("LOST"), "the loss is too high"
        print(torch.randn(3).sum().item())
        """,
    )
    done = aorta("diverge", "--json", "-q", "--bad-set", "LOST=1", "--", *command, cwd=tmp_path)
    assert done.json()["first"]["op"] == "aten::relu", done.stdout


def test_the_first_value_that_parts_is_named_also_without_torch(
    parted: tuple[Finished, Path],
) -> None:
    report = json.loads((parted[1] / "result.json").read_text())
    assert report["schema"] == "aorta.diverge/1"
    assert report["status"] == "found"
    assert report["first"]["op"] == "record::scaled"
    assert report["first"]["file"].endswith("train.py")
    assert report["first"]["line"] == 11
    assert report["first"]["difference"] > report["first"]["expected_rounding"]
    assert report["compared_ops"] == 3


def test_people_read_where_and_how_far(parted: tuple[Finished, Path]) -> None:
    done, run_dir = parted
    lines = done.stdout.splitlines()
    assert lines[0] == "The numbers part here:"
    assert "record::scaled" in lines[1]
    assert "train.py:11" in lines[1]
    assert "differs by" in lines[2]
    page = aorta("report", run_dir, cwd=run_dir)
    assert page.exit_code == 0, page.stderr


def test_two_sides_that_are_alike_are_said_to_be(tmp_path: Path) -> None:
    command = script(tmp_path, PLAIN)
    done = aorta("diverge", "--json", "--good-set", "SCALE=1", "--", *command, cwd=tmp_path)
    assert done.exit_code == 0
    report = done.json()
    assert report["schema"] == "aorta.diverge/1"
    assert report["status"] == "same"
    assert report["first"] is None
    stored = json.loads((tmp_path / report["run_dir"] / "result.json").read_text())
    assert {**stored, "run_dir": report["run_dir"]} == report


def test_a_program_that_does_not_repeat_itself_is_told_apart_from_a_divergence(
    tmp_path: Path,
) -> None:
    command = script(
        tmp_path,
        """
        import os
        from aorta.diverge import record

        record("pid", [float(os.getpid())] * 3)
        """,
    )
    done = aorta("diverge", "--json", "--good-set", "A=1", "--", *command, cwd=tmp_path)
    report = done.json()
    assert report["status"] == "nondeterministic"
    assert report["first"] is None
    assert report["self_difference"]["op"] == "record::pid"
    assert report["runs"] == 10  # two of each side, then three more of each


def test_a_flaky_side_is_told_apart_where_all_its_runs_differ_from_the_other(
    tmp_path: Path,
) -> None:
    command = script(
        tmp_path,
        """
        import os, time
        from aorta.diverge import record

        record("noise", [time.time_ns() % 10**6 + 1.0] * 3)
        record("level", [100.0 if os.environ.get("SIDE") == "bad" else 1.0] * 3)
        """,
    )
    done = aorta(
        "diverge",
        "--json",
        "--bad-set",
        "SIDE=bad",
        "--good-set",
        "SIDE=good",
        "--",
        *command,
        cwd=tmp_path,
    )
    report = done.json()
    assert report["status"] == "found"
    assert report["first"]["op"] == "record::level"
    assert report["self_difference"]["op"] == "record::noise"


def test_without_a_good_side_the_first_nan_is_found(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        """
        from aorta.diverge import record

        record("fine", [1.0, 2.0])
        record("broken", [1.0, float("nan")])
        """,
    )
    report = aorta("diverge", "--json", "--", *command, cwd=tmp_path).json()
    assert report["status"] == "found"
    assert report["first_nonfinite"]["op"] == "record::broken"


def page_answer(folder: Path) -> str:
    """What the page of the one run below a folder says first."""
    about = min(folder.rglob(".aorta/run.json"), key=lambda file: len(file.parts))
    return str(aorta("report", about.parents[1], "--json").json()["answer"])


def test_a_program_that_records_nothing_has_no_answer(tmp_path: Path) -> None:
    done = aorta("diverge", "--good-set", "A=1", "--", "true", cwd=tmp_path)
    assert done.exit_code == 3
    assert done.stdout.startswith("Nothing was recorded, so there is nothing to compare: ")
    assert page_answer(tmp_path).startswith("Nothing was recorded, so there is nothing to compare")


def test_what_makes_the_bad_side_bad_is_not_set_on_the_good_one(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        """
        import os
        from aorta.diverge import record

        record("value", [3.0 if os.environ.get("BUG") else 2.0])
        """,
    )
    for good in (("--good-set", "OTHER=1"), ("--good-mitigations", "omp_one_thread")):
        words = ("diverge", "--json", "-q", "--bad-set", "BUG=1", *good, "--", *command)
        assert aorta(*words, cwd=tmp_path).json()["first"]["op"] == "record::value"


def test_a_plan_says_both_sides(tmp_path: Path) -> None:
    words = ("diverge", "--dry-run", "--bad-set", "BUG=1", "--", "true")
    said = aorta(*words, cwd=tmp_path)
    assert "bad BUG=1 good without BUG" in " ".join(f"{said.stdout} {said.stderr}".split())


def test_why_a_side_recorded_nothing_is_said(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        """
        import os
        from aorta.diverge import record

        if os.environ.get("BUG"):
            raise ValueError("no such config: large.yaml")
        record("value", [1.0])
        """,
    )
    done = aorta("diverge", "-q", "--bad-set", "BUG=1", "--", *command, cwd=tmp_path)
    assert done.exit_code == 3
    assert done.stdout.startswith("Nothing was recorded of the bad side, so there is nothing to")
    assert "ValueError: no such config: large.yaml" in done.stdout


def test_one_rank_is_not_the_same_as_others(tmp_path: Path) -> None:
    command = script(tmp_path, "from aorta.diverge import record; record('value', [1.0])")
    done = aorta("diverge", "--json", "--between-ranks", "--", *command, cwd=tmp_path)
    assert (done.json()["status"], done.exit_code) == ("not_aligned", 3)


def test_a_good_side_that_records_nothing_is_never_called_the_same(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        """
        import os
        from aorta.diverge import record

        assert os.environ.get("SIDE") != "good"
        record("value", [1.0])
        """,
    )
    done = aorta("diverge", "-q", "--json", "--good-set", "SIDE=good", "--", *command, cwd=tmp_path)
    assert done.exit_code == 3
    assert done.json()["status"] == "not_aligned"


def test_a_program_that_was_killed_is_not_called_the_same_as_far_as_it_came(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        """
        import os, signal
        from aorta.diverge import record

        for number in range(600):
            record("value", [float(number)])
        os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    done = aorta("diverge", "-q", "--json", "--good-set", "A=1", "--", *command, cwd=tmp_path)
    assert done.exit_code == 4
    assert done.json()["status"] == "partial"
    assert any("was killed" in note for note in done.json()["notes"])


GROWS = """
    import os
    from aorta.diverge import record
    import aorta_recorder

    value = 1.0
    for step in range(30):
        record("loss", [value, 1.0])
        aorta_recorder.Recorder.current.next_step()
        value = value * value + 1.0 if step > 20 else value + 1.0
        if step == 27:
            value = float("inf")
"""


def test_how_large_the_numbers_were_before_the_first_infinity_is_a_table(tmp_path: Path) -> None:
    command = script(tmp_path, GROWS)
    done = aorta("diverge", "--", *command, cwd=tmp_path)
    (run_dir,) = (tmp_path / "diverge").glob("2*")
    report = json.loads((run_dir / "result.json").read_text())
    assert report["first_nonfinite"]["step"] == 28
    history = report["history"]
    assert [one["step"] for one in history] == list(range(8, 28))
    assert history[0]["activation"] == {"max": 9.0, "norm": pytest.approx(82**0.5)}
    assert history[0]["gradient"] is None
    table = done.stdout.splitlines()
    (head,) = (n for n, line in enumerate(table) if "step 8" in line)
    assert "step 27" in table[head]
    assert "9 / -" in table[head + 1]
    assert aorta("report", run_dir, cwd=run_dir).exit_code == 0
    page = (run_dir / "report.html").read_text()
    assert "the largest activation and gradient of each module, step by step" in page


def test_progress_speaks_of_sides_that_are_recorded(tmp_path: Path) -> None:
    command = script(tmp_path, PLAIN)
    said = aorta("diverge", "--good-set", "SCALE=1", "--", *command, cwd=tmp_path).stderr
    assert "run 1 of the bad side: recorded" in said
    assert "run 2 of the good side: recorded" in said
    for word in ("reproduce", "clean", "trial", "side="):
        assert word not in said


def test_a_run_directory_may_stand_before_the_options(
    parted: tuple[Finished, Path], tmp_path: Path
) -> None:
    """It is no result that has two sides, so nothing runs; nor is it taken for a command."""
    run_dir = parted[1]
    taken: list[list[str | Path]] = [
        [run_dir, "--steps", "0:3"],
        ["-q", run_dir, "--output", "out", "--json"],
    ]
    for words in taken:
        done = aorta("diverge", *words, cwd=tmp_path)
        assert done.exit_code == 2
        assert "no two sides that can be run" in done.stdout + done.stderr
    done = aorta("diverge", run_dir, "python", "train.py", cwd=tmp_path)
    assert done.exit_code == 2
    assert "is a directory" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_old_names_of_the_variables_are_understood(tmp_path: Path) -> None:
    command = script(tmp_path, PLAIN)
    words = ("--bad-env", "SCALE=1.5", "--good-env", "SCALE=1")
    done = aorta("diverge", "-q", "--json", *words, "--", *command, cwd=tmp_path)
    assert done.json()["first"]["op"] == "record::scaled"


PRECISION = """
    import os, torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(8))

        def forward(self, x):
            for number, layer in enumerate(self.layers):
                if number == 4 and os.environ["SIDE"] == "bad":
                    with torch.autocast("cpu", torch.bfloat16):
                        x = layer(x).float()  # no activation either
                else:
                    x = torch.relu(layer(x))
            return x

    model = Net()
    for _ in range(2):
        model.zero_grad()
        model(torch.randn(16, 32)).square().mean().backward()
"""
SIDES = ("--bad-set", "SIDE=bad", "--good-set", "SIDE=good")


def test_one_layer_in_bfloat16_is_named_with_its_type(tmp_path: Path) -> None:
    command = script(tmp_path, QUICKLY + textwrap.dedent(PRECISION) + AND_OUT)
    done = aorta("diverge", *SIDES, "--", *command, cwd=tmp_path, timeout=170)
    (run_dir,) = (tmp_path / "diverge").glob("2*")
    first = json.loads((run_dir / "result.json").read_text())["first"]
    assert (first["op"], first["module"]) == ("aten::addmm", "layers.4")
    assert "no activation" in Path(first["file"]).read_text().splitlines()[first["line"] - 1]
    assert (first["bad"]["outputs"][0]["dtype"], first["other_dtype"]) == ("bfloat16", True)
    assert "computes in bfloat16 on the bad side and in float32 on the good side" in done.stdout


def test_a_precision_that_was_requested_is_no_difference(tmp_path: Path) -> None:
    command = script(tmp_path, QUICKLY + textwrap.dedent(PRECISION) + AND_OUT)
    requested = ("--bad-set", "SIDE=bad", "--good-set", "SIDE=bad", "--good-dtype", "float32")
    done = aorta("diverge", *requested, "--", *command, cwd=tmp_path, timeout=170)
    assert done.exit_code == 0
    assert (
        "Nothing that the program ends with differs by more than rounding explains" in done.stdout
    )
    assert "what has no partner leads to the same results" in done.stdout


LOSES_DIGITS = """
    import torch

    h = torch.randn(8, 16) + 3000
    mean = h.mean(1, keepdim=True)
    squares = (h * h).mean(1, keepdim=True)
    spread = squares - mean * mean
    (h - mean).div(spread.abs().sqrt() + 1e-3).sum()
"""


def test_where_a_requested_precision_shows_that_rounding_takes_every_digit(tmp_path: Path) -> None:
    command = script(tmp_path, QUICKLY + textwrap.dedent(LOSES_DIGITS) + AND_OUT)
    done = aorta("diverge", "--good-dtype", "float64", "--", *command, cwd=tmp_path, timeout=170)
    assert done.exit_code == 0
    assert (
        "Nothing that the program ends with differs by more than rounding explains" in done.stdout
    )
    assert "rounding alone takes nearly every digit from here on: aten::sub" in done.stdout
    (run_dir,) = (tmp_path / "diverge").glob("2*")
    lost = json.loads((run_dir / "result.json").read_text())["lost"]
    assert "spread = " in Path(lost["file"]).read_text().splitlines()[lost["line"] - 1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--steps", "5", "--", "true"], "expected A:B"),
        (["--steps", "9:3", "--", "true"], "comes before"),
        ([], "give a run directory, or a command"),
        (["--between-ranks", "--good-set", "A=1", "--", "true"], "remove the good side"),
        (["--good", "nowhere", "--", "true"], "--good"),
        (["nosuch_dir"], "nosuch_dir: there is no such directory or program"),
        (["--", "python tarin.py"], "that is a text for a shell"),
        (["--good-set", "A", "--", "true"], "--good-set: expected NAME=VALUE"),
        (["--good-env", "A", "--", "true"], "the = is missing"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(words: list[str], said: str, tmp_path: Path) -> None:
    done = aorta("diverge", *words, cwd=tmp_path)
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_run_that_was_killed_goes_on_and_runs_nothing_twice(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        """
        import os, time
        from aorta.diverge import record

        record("value", [1.0])
        with open("ran", "a") as file:
            file.write("x")
        while os.path.exists("wait") and os.environ.get("SIDE") == "good":
            time.sleep(0.05)
        """,
    )
    (tmp_path / "wait").touch()
    words = ("diverge", "-q", "--bad-set", "SIDE=bad", "--good-set", "SIDE=good", "--", *command)
    first = subprocess.Popen(
        (*COMMAND, *words), cwd=tmp_path, env=environ(), start_new_session=True
    )
    ran = tmp_path / "ran"
    wait_until(lambda: ran.exists() and len(ran.read_text()) == 3, "the first run of the good side")
    first.send_signal(signal.SIGKILL)
    first.wait()
    (tmp_path / "wait").unlink()
    run_dir = str(next((tmp_path / "diverge").glob("2*")))
    done = aorta("diverge", "--json", "--resume", run_dir, cwd=tmp_path)
    assert done.json()["status"] == "same"
    assert done.json()["runs"] == 4
    assert len(ran.read_text()) == 5  # the third was killed in the middle, and ran again


def test_a_side_that_was_edited_since_is_not_gone_on_with(tmp_path: Path) -> None:
    """Runs of two programs are never compared, whichever side is another one now."""
    repository = Repository.create(tmp_path / "repository")
    place, wait, ran = repository.path, tmp_path / "wait", tmp_path / "ran"
    command = script(
        place,
        f"""
        import os, time
        from aorta.diverge import record

        record("value", [1.0])
        with open({str(ran)!r}, "a") as file:
            file.write("x")
        while os.path.exists({str(wait)!r}) and not os.environ.get("BAD"):
            time.sleep(0.05)
        """,
    )
    written = (place / "train.py").read_text()
    edited = {"train.py": written.replace("1.0", "2.0")}
    begun, _ = repository.commit("one", {}), repository.commit("two", edited)
    repository.git("branch", "working", begun)
    (place / "train.py").write_text(written)
    wait.touch()
    words = ("--output", tmp_path, "--bad-set", "BAD=1", "--good", "working", "--", *command)
    first = start_aorta("diverge", "-q", *words, cwd=place)
    wait_until(lambda: ran.exists() and len(ran.read_text()) == 3, "the first run of the good side")
    os.kill(first.pid, signal.SIGINT)
    first.communicate(timeout=patience())
    wait.unlink()
    resume = ("diverge", "-q", "--json", "--output", tmp_path, "--resume")

    (place / "train.py").write_text(edited["train.py"])
    refused = aorta(*resume, cwd=place)
    assert refused.exit_code == 2, refused
    assert "the script train.py changed since this run began" in refused.stderr
    (place / "train.py").write_text(written)
    repository.git("branch", "--force", "working", "HEAD")
    refused = aorta(*resume, cwd=place)
    assert refused.exit_code == 2, refused
    assert "the revision changed since this run began" in refused.stderr
    assert ran.read_text() == "xxx"

    repository.git("branch", "--force", "working", begun)
    assert aorta(*resume, cwd=place).json()["status"] == "same"
    assert ran.read_text() == "xxxxx"  # the third was interrupted, and ran again


def test_interrupted_it_says_how_to_go_on_and_leaves_no_process(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        """
        import time
        from aorta.diverge import record

        record("value", [1.0])
        open("ran", "w").close()
        time.sleep(600)
        """,
    )
    mark = f"AORTA_TEST_MARK={tmp_path}"
    process = start_aorta(
        "diverge", "--good-set", "SIDE=good", "--", *command,
        cwd=tmp_path, env={"AORTA_TEST_MARK": str(tmp_path)},
    )  # fmt: skip
    wait_until((tmp_path / "ran").exists, "the first run")
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=patience())
    wait_until_no_process_has(mark)
    assert process.returncode == 130, err
    [run_dir] = (tmp_path / "diverge").glob("2*")
    assert f"aorta diverge --resume {run_dir.relative_to(tmp_path)}".encode() in err
    assert json.loads((run_dir / "result.json").read_text())["status"] == "partial"


def test_what_differs_between_two_releases_is_named() -> None:
    run_dir = diverge_dir()
    root = run_dir.parents[1]
    report = json.loads((run_dir / "result.json").read_text())
    assert report["status"] == "found"
    first = report["first"]
    assert (first["op"], first["module"], first["step"]) == ("aten::native_layer_norm", "0.norm", 0)
    assert Path(first["file"]) == root / "new" / "fastnorm.py"
    line = Path(first["file"]).read_text().splitlines()[first["line"] - 1]
    assert line.endswith("# parts here")
    assert (root / "work" / "compiler").read_text() == "False", (
        "recording loads what takes as long as torch"
    )


def test_a_bisection_knows_the_two_sides(tmp_path: Path) -> None:
    repository = tmp_path / "repo"
    repository.mkdir()
    git = ("git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run((*git, "init", "--quiet"), check=True)
    for number, scale in enumerate(["1", "1", "1.5", "1.5"]):
        script(repository, PLAIN.replace('os.environ.get("SCALE", "1")', f'"{scale}"'))
        (repository / "number").write_text(str(number))
        subprocess.run((*git, "add", "--all"), check=True)
        subprocess.run((*git, "commit", "--quiet", "-m", f"commit {number}"), check=True)
    found = aorta(
        "bisect", "-q", "--json", "--no-checks", "--good", "HEAD~3", "--bad", "HEAD",
        "--output-prefix", tmp_path / "out", "--", sys.executable, "train.py", cwd=repository,
    )  # fmt: skip
    assert found.json()["culprits"][0]["title"] == "commit 2"
    report = aorta("diverge", "-q", "--json", tmp_path / "out", cwd=tmp_path).json()
    assert report["status"] == "found"
    assert report["first"]["op"] == "record::scaled"
    assert report["sides"] == {"bad": "bisection, bad", "good": "bisection, good"}
    words = ("--good", "HEAD~3", "--output", tmp_path / "by_hand", "--", sys.executable, "train.py")
    by_hand = aorta("diverge", "-q", "--json", *words, cwd=repository).json()
    assert by_hand["first"]["op"] == "record::scaled"
    status = subprocess.run((*git, "status", "--porcelain"), capture_output=True, check=True)
    assert status.stdout == b""  # the user's checkout was neither moved nor written to


def test_a_reduction_is_the_bad_side(tmp_path: Path) -> None:
    command = script(tmp_path, PLAIN.replace('"SCALE", "1"', '"SCALE", "1.5"'))
    spec = {
        "workload": {"command": list(command)},
        "oracle": {"kind": "exit_code"},
        "axes": [{"name": "STEPS", "kind": "env", "type": "int", "initial": 4, "floor": 1}],
    }
    (tmp_path / "aorta.yaml").write_text(json.dumps(spec))
    reduced = aorta(
        "reduce", "-q", "--json", "--spec", "aorta.yaml", "--output", "out", cwd=tmp_path
    )
    run_dir = reduced.json()["run_dir"]
    done = aorta("diverge", "-q", "--json", "--good-set", "SCALE=1", run_dir, cwd=tmp_path)
    assert done.json()["first"]["op"] == "record::scaled", done.stderr


def test_a_triage_knows_the_two_sides(tmp_path: Path) -> None:
    command = script(tmp_path, PLAIN)
    sidecar = {"version": 1, "mitigations": {"exact": {"SCALE": "1"}}}
    (tmp_path / "mine.json").write_text(json.dumps(sidecar))
    triaged = aorta(
        "triage", "run", "--json", "--mitigation-axis", "none,exact", "--environment-axis", "local",
        "--mitigations-file", "mine.json", "--trials", "1", "--", *command,
        cwd=tmp_path, env={"SCALE": "1.5"},
    )  # fmt: skip
    run_dir = triaged.json()["run_dir"]
    done = aorta("diverge", "--json", run_dir, cwd=tmp_path, env={"SCALE": "1.5"})
    assert done.json()["status"] == "found", done.stderr
    assert done.json()["first"]["op"] == "record::scaled"


RANKS = """
    import os, subprocess, sys

    if "RANK" not in os.environ:  # starts its two ranks
        ranks = [
            subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "RANK": str(rank)})
            for rank in range(2)
        ]
        raise SystemExit(max(rank.wait() for rank in ranks))

    import torch
    import torch.distributed as dist

    class Descent(torch.optim.Optimizer):  # one of torch's own makes each rank load the compiler
        def add_param_group(self, group):
            self.param_groups.append(group)

        def step(self):
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.data.sub_(0.1 * parameter.grad)

    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store" + str(os.getppid())), rank=rank, world_size=2)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    optimizer = Descent(model.parameters(), {})
    for step in range(3):
        model.zero_grad()
        model(torch.full((2, 4), 1.0 + rank)).square().sum().backward()
        for name, parameter in model.named_parameters():
            if step == 1 and name == "1.weight":
                continue  # nobody averages this one
            dist.all_reduce(parameter.grad)
        optimizer.step()
    dist.destroy_process_group()
"""


def test_the_first_gradient_that_ranks_do_not_share_is_named(tmp_path: Path) -> None:
    command = script(tmp_path, QUICKLY + textwrap.dedent(RANKS) + AND_OUT)
    done = aorta("diverge", "--json", "--between-ranks", "--", *command, cwd=tmp_path, timeout=170)
    report = done.json()
    assert report["status"] == "found", done.stderr
    assert report["first"]["op"] == "grad::1.weight"
    assert report["first"]["step"] == 1
    assert report["first"]["ranks"] == [0, 1]


def test_a_factor_that_is_a_little_other_is_no_rounding(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        """
        import os
        import torch

        torch.ones(64) * float(os.environ.get("SCALE", "0.125"))
        """,
    )
    words = ("diverge", "--json", "--bad-set", "SCALE=0.125001", "--", *command)
    found = aorta(*words, cwd=tmp_path).json()
    assert (found["status"], found["first"]["op"]) == ("found", "aten::mul")
