"""`aorta bisect --good-env A --bad-env B`, as a user runs it, on a package index with planted
releases.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aorta.runtimes.package_index import PackageIndex, Sources
from support.aorta_cli import Finished, aorta, environ, start_aorta
from support.git_repositories import Repository
from support.planted_index import PlantedIndex, frozen, served
from support.processes import wait_for_file
from support.reproduced import assert_both_sides_show
from support.waiting import patience

TENS = tuple(f"1.{minor}" for minor in range(10))
OTHERS = ("alpha", "beta")


@pytest.fixture
def index(tmp_path: Path) -> PlantedIndex:
    planted = PlantedIndex(tmp_path / "wheels")
    for name in OTHERS:
        planted.releases(name, ("1.0", "1.9"))
    return planted


def words(
    tmp_path: Path, index: PlantedIndex | None, *arguments: str | Path, checks: bool = False
) -> list[str]:
    ends = ["--good-env", "good.txt", "--bad-env", "bad.txt"]
    place = [*from_files(index)] if index else []
    out = ["--output-prefix", str(tmp_path / "out"), "--json"]
    how = [] if checks else ["--no-checks"]
    return ["bisect", *ends, *place, *out, *how, *map(str, arguments)]


def from_files(index: PlantedIndex) -> list[str]:
    return ["--no-index", "--find-links", str(index.directory)]


def bisect(
    tmp_path: Path,
    index: PlantedIndex | None,
    *arguments: str | Path,
    checks: bool = False,
    env: Mapping[str, str] | None = None,
) -> Finished:
    return aorta(*words(tmp_path, index, *arguments, checks=checks), cwd=tmp_path, env=env)


def importing(*names: str, condition: str) -> list[str]:
    code = f"import os, sys, {', '.join(names)}; sys.exit('Error: broken' if {condition} else 0)"
    return ["--", "python", "-c", code]


def sides(tmp_path: Path, *, others: tuple[str, ...] = (), **versions: tuple[str, str]) -> None:
    """Two `pip freeze`s; the others move too."""
    for side, name in enumerate(("good.txt", "bad.txt")):
        moved = dict.fromkeys(others, ("1.0", "1.9")[side])
        frozen(tmp_path / name, {**moved, **{n: v[side] for n, v in versions.items()}})


def culprits(done: Finished) -> list[tuple[str, str, str]]:
    assert done.exit_code == 0, done.stderr
    return sorted((c["package"], c["good"], c["bad"]) for c in done.json()["culprits"])


def test_the_release_of_one_of_several_changed_packages_is_named(
    tmp_path: Path, index: PlantedIndex
) -> None:
    index.releases("plain", ["0.1"])
    index.releases("culprit", TENS[:6], broken_from="1.3")
    sides(tmp_path, others=OTHERS, plain=("0.1", "0.1"), culprit=("1.0", "1.5"))
    test = importing("culprit", condition="culprit.broken")
    done = bisect(tmp_path, index, *test, checks=True)
    assert culprits(done) == [("culprit", "1.2", "1.3")]
    result = done.json()
    assert result["status"] == "found"
    assert result["confidence"] >= 0.95
    assert "culprit 1.2 → 1.3 brings the failure (9" in done.stderr
    assert_both_sides_show(result)
    out = tmp_path / "out"
    kept = (out / "bad.txt").read_text()
    assert {"culprit==1.3", "plain==0.1"} <= set(kept.splitlines())
    assert "culprit==1.2" in (out / "good.txt").read_text()
    assert (out / "report.md").read_text().startswith("# culprit 1.2 → 1.3 brings the failure")
    assert not (out / ".aorta" / "environments").exists()
    again = aorta("bisect", "--resume", out, "--json")
    assert culprits(again) == [("culprit", "1.2", "1.3")]
    assert again.json()["resumed_trials"] == result["tests"] == again.json()["tests"]


def test_two_packages_that_fail_only_together_are_named_with_a_release_each(
    tmp_path: Path, index: PlantedIndex
) -> None:
    index.releases("left", TENS[:3], broken_from="1.1")
    index.releases("right", TENS[:3], broken_from="1.2")
    sides(tmp_path, others=OTHERS[:1], left=("1.0", "1.2"), right=("1.0", "1.2"))
    test = importing("left", "right", condition="left.broken and right.broken")
    done = bisect(tmp_path, index, *test, checks=True)
    assert culprits(done) == [("left", "1.0", "1.1"), ("right", "1.1", "1.2")]
    assert done.json()["status"] == "pair"
    assert done.json()["partner"]["package"] in {"left", "right"}
    assert "bring the failure together" in done.stderr


def test_what_cannot_be_installed_together_is_skipped_and_moves_together(
    tmp_path: Path, index: PlantedIndex
) -> None:
    """The middle is unsolvable: the old app asks for the old library, the new app for the new
    one.
    """
    for version in ("1.0", "1.1", "2.0", "2.1"):
        index.release("library", version, f"broken = {version >= '2'}")
        wanted = "library>=2" if version >= "2" else "library<2"
        index.release("app", version, "from library import broken", needs=[wanted])
    sides(tmp_path, others=OTHERS[:1], library=("1.0", "2.1"), app=("1.0", "2.1"))
    test = importing("app", condition="app.broken")
    done = bisect(tmp_path, index, *test, checks=True)
    assert culprits(done) == [("app", "1.1", "2.0"), ("library", "1.1", "2.0")]
    assert done.json()["status"] == "pair"
    whys = [skipped["why"] for skipped in done.json()["skipped"]]
    assert any("its packages ask for other versions" in why for why in whys)
    assert any("library" in why and "could not be made" in why for why in whys)
    log = (tmp_path / "out" / "debug.log").read_text()
    assert "could not be made" in log


def test_a_dependency_moves_with_the_package_that_asks_for_it(
    tmp_path: Path, index: PlantedIndex
) -> None:
    """The new release needs a package that the old environment does not have."""
    index.release("tool", "1.0", "broken = False")
    for version in ("1.1", "1.2", "1.3"):
        index.release(
            "tool", version, f"import extra\nbroken = {version >= '1.2'}", needs=["extra"]
        )
    index.release("extra", "0.5")
    sides(tmp_path, tool=("1.0", "1.3"))
    with (tmp_path / "bad.txt").open("a") as bad:
        bad.write("extra==0.5\n")
    done = bisect(tmp_path, index, *importing("tool", condition="tool.broken"))
    assert culprits(done) == [("tool", "1.1", "1.2")]
    assert done.json()["culprits"][0]["moves_with"] == ["extra"]


def test_a_package_that_another_pins_exactly_moves_with_it(
    tmp_path: Path, index: PlantedIndex
) -> None:
    """As pydantic and pydantic-core: each release has its own, and no other goes with it."""
    for number, version in enumerate(TENS[:5]):
        index.release("model-core", f"2.{number}", f"broken = {number >= 3}")
        index.release(
            "model", version, "from model_core import broken", needs=[f"model-core==2.{number}"]
        )
    sides(tmp_path, others=OTHERS[:1], model=("1.0", "1.4"), **{"model-core": ("2.0", "2.4")})
    done = bisect(tmp_path, index, *importing("model", condition="model.broken"), checks=True)
    assert culprits(done) == [("model", "1.2", "1.3")]
    assert done.json()["status"] == "found"
    assert done.json()["culprits"][0]["moves_with"] == ["model-core"]
    assert done.json()["bad"]["model-core"] == "2.3"


def test_a_state_is_judged_only_by_what_was_installed(tmp_path: Path, index: PlantedIndex) -> None:
    """The new graft asks for the new stock: alone it cannot be had, so that it passes alone with an
    older graft in its place is no evidence of a pair.
    """
    for version in ("1.0", "1.1", "2.0"):
        needs = ["stock>=1.5"] if version == "2.0" else []
        index.release("graft", version, f"broken = {version == '2.0'}", needs=needs)
    index.releases("stock", ("1.0", "1.2", "1.9"))
    sides(tmp_path, others=OTHERS, graft=("1.0", "2.0"), stock=("1.0", "1.9"))
    done = bisect(tmp_path, index, *importing("graft", condition="graft.broken"), checks=True)
    assert ("graft", "1.1", "2.0") in culprits(done)
    assert done.json()["status"] == "found"
    assert done.json()["bad"]["graft"] == "2.0"


def test_a_release_gets_what_it_needs_of_a_package_that_does_not_matter(
    tmp_path: Path, index: PlantedIndex
) -> None:
    """Releases in the middle ask for a library between its two ends, which neither end has."""
    index.releases("library", ("1.0", "2.0", "3.0"))
    for number, version in enumerate(TENS[:5]):
        needs = ["library==2.0"] if version in {"1.1", "1.2"} else []
        index.release("culprit", version, f"broken = {number >= 2}", needs=needs)
    sides(tmp_path, culprit=("1.0", "1.4"), library=("1.0", "3.0"))
    done = bisect(tmp_path, index, *importing("culprit", condition="culprit.broken"))
    assert culprits(done) == [("culprit", "1.1", "1.2")]
    assert done.json()["skipped"] == []
    assert done.json()["good"]["library"] == "2.0"  # what was there, not what was asked for
    assert_both_sides_show(done.json())
    assert "library==2.0" in (tmp_path / "out" / "good.txt").read_text()


def test_a_combination_that_fails_in_a_way_of_its_own_is_no_evidence(
    tmp_path: Path, index: PlantedIndex
) -> None:
    """The old tool breaks on the new base, which nobody declared; the failure sought came with the
    new tool.
    """
    index.release("base", "1.0", "abi = 1")
    index.release("base", "2.0", "abi = 2")
    for version in ("1.0", "1.1", "1.2", "1.3"):
        broken = version >= "1.2"
        works = "" if broken else "from base import abi\nassert abi == 1, 'built for another'\n"
        index.release("tool", version, f"{works}broken = {broken}")
    frozen(tmp_path / "good.txt", {"base": "1.0", "tool": "1.0"})
    frozen(tmp_path / "bad.txt", {"base": "2.0", "tool": "1.3"})
    test = importing("zlib", condition="__import__('tool').broken")
    assert culprits(bisect(tmp_path, index, *test)) == [("tool", "1.1", "1.2")]
    shutil.rmtree(tmp_path / "out")
    misled = bisect(tmp_path, index, "--any-failure", *test)
    assert misled.exit_code == 0, misled.stderr
    assert "failed differently" in misled.json()["failed_differently"][0]


def test_an_environment_that_contradicts_itself_is_made_as_it_was(
    tmp_path: Path, index: PlantedIndex
) -> None:
    """Both ends were installed against what their packages ask for: no resolver would have it
    so.
    """
    index.release("stubborn", "1.0", needs=["culprit<1", "missing>=2"])
    index.releases("culprit", TENS[:4], broken_from="1.2")
    sides(tmp_path, culprit=("1.0", "1.3"), stubborn=("1.0", "1.0"))
    test = importing("culprit", "stubborn", condition="culprit.broken")
    assert culprits(bisect(tmp_path, index, *test)) == [("culprit", "1.1", "1.2")]


def test_interrupted_it_says_what_it_knows_and_leaves_no_environment(
    tmp_path: Path, index: PlantedIndex
) -> None:
    index.releases("culprit", TENS, broken_from="1.6")
    sides(tmp_path, culprit=("1.0", "1.9"))
    code = """
import sys, time, culprit
with open("ran", "a") as ran: print(culprit.version, file=ran)
if len(open("ran").readlines()) == 4:
    open("waiting", "w"); time.sleep(300)
sys.exit(culprit.broken)
"""
    arguments = words(tmp_path, index, "--jobs", "1", "--", "python", "-c", code)
    running = start_aorta(*arguments, cwd=tmp_path)
    wait_for_file(tmp_path / "waiting")
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=patience())
    assert running.returncode == 130, err
    assert json.loads(out)["status"] == "partial"
    assert b"--resume" in err
    assert not (tmp_path / "out" / ".aorta" / "environments").exists()


def test_the_active_environment_is_the_bad_one_where_none_is_named(
    tmp_path: Path, index: PlantedIndex
) -> None:
    index.releases("culprit", TENS[:3], broken_from="1.2")
    home = environment(tmp_path / "venv", *index.directory.glob("culprit-1.2-*.whl"))
    frozen(tmp_path / "good.txt", {"culprit": "1.0"})
    done = aorta(
        *("bisect", "--good-env", "good.txt", "--output-prefix", "out", "--dry-run", "--json"),
        *from_files(index),
        *importing("culprit", condition="culprit.broken"),
        cwd=tmp_path,
        env={"VIRTUAL_ENV": str(home)},
    )
    assert done.exit_code == 0, done.stderr
    lines = [given["lines"] for given in done.json()["environments"]]
    assert lines == [["culprit==1.0"], ["culprit==1.2"]]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["html", "json"])
def test_a_yanked_release_is_no_candidate(tmp_path: Path, index: PlantedIndex, kind: str) -> None:
    """Served as pages and as JSON; credentials go with every question and are never shown."""
    for number, version in enumerate(("1.0", "1.1", "1.2", "1.3", "1.4rc1", "1.4")):
        index.release(
            "culprit",
            version,
            f"broken = {number >= 2}",
            yanked=version == "1.2",
            uploaded=f"2026-02-0{number + 1}T00:00:00Z",
        )
    sides(tmp_path, culprit=("1.0", "1.4"))
    test = importing("culprit", condition="culprit.broken")
    with served(index, tmp_path / "served", kind) as server:
        address = server.url.replace("://", "://ann:hidden-word@")
        sources = Sources((address,))
        found = PackageIndex(sources).between("culprit", "1.0", "1.4", "3.11.7")
        assert [release.version for release in found] == ["1.0", "1.1", "1.3", "1.4"]
        pre = PackageIndex(replace(sources, pre=True)).between("culprit", "1.0", "1.4", "3.11.7")
        assert [release.version for release in pre] == ["1.0", "1.1", "1.3", "1.4rc1", "1.4"]
        said = ""
        if kind == "json":
            done = bisect(tmp_path, None, "--index-url", address, *test)
            assert culprits(done) == [("culprit", "1.1", "1.3")]
            assert done.json()["culprits"][0]["date"].startswith("2026-02-04")
            said = done.stdout + done.stderr + (tmp_path / "out" / "debug.log").read_text()
    assert all(word.startswith("Basic ") for word in server.authorizations)
    assert "hidden-word" not in said


def test_a_release_that_fails_every_other_time_is_found(
    tmp_path: Path, index: PlantedIndex
) -> None:
    """Whether a trial fails is decided by its name alone, so that every run of this test is the
    same run.
    """
    index.releases("culprit", TENS[:6], broken_from="1.3")
    sides(tmp_path, culprit=("1.0", "1.5"))
    name = "os.path.relpath(os.environ['AORTA_TRIAL_DIR']).encode()"
    half = f"culprit.broken and hashlib.sha256({name}).digest()[0] % 2"
    test = importing("culprit", "hashlib", condition=half)
    done = bisect(tmp_path, index, "--jobs", "1", *test, checks=True)
    assert culprits(done) == [("culprit", "1.2", "1.3")]
    assert done.json()["rates"]["good"] == 0
    assert 0 < done.json()["rates"]["bad"] < 1


def environment(home: Path, *wheels: Path) -> Path:
    """A virtual environment with these wheels in it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    for wheel in wheels:
        shutil.unpack_archive(wheel, next(home.glob("lib/python*/site-packages")), "zip")
    return home


def test_a_variable_that_the_probe_saw_is_a_candidate_like_a_package(
    tmp_path: Path, index: PlantedIndex
) -> None:
    """Both sides are what the probe wrote, in two environments with a package each."""
    for name, value, version in (("good.txt", "Ring", "1.0"), ("bad.txt", "Tree", "1.9")):
        wheel = index.release("alpha", version)
        home = environment(tmp_path / f"venv-{value}", wheel)
        probe = subprocess.run(
            [home / "bin" / "python", "-m", "aorta.probe"],
            env={**environ(), "NCCL_ALGO": value},
            capture_output=True,
            check=True,
        )
        (tmp_path / name).write_bytes(probe.stdout)
    condition = "os.environ['NCCL_ALGO'] == 'Tree' and alpha.version"
    test = importing("alpha", condition=condition)
    done = bisect(tmp_path, index, *test, env={"NCCL_ALGO": "Other"})
    assert culprits(done) == [("NCCL_ALGO", "Ring", "Tree")]
    assert done.json()["culprits"][0]["kind"] == "variable"
    assert done.json()["good"]["alpha"] == "1.0"
    assert "NCCL_ALGO Ring → Tree brings the failure" in done.stderr


def test_killed_with_an_environment_in_the_making_it_goes_on_and_runs_no_trial_twice(
    tmp_path: Path, index: PlantedIndex
) -> None:
    index.releases("culprit", TENS, broken_from="1.6")
    sides(tmp_path, culprit=("1.0", "1.9"))
    code = """
import os, sys, time, culprit
with open("ran", "a") as ran: print(culprit.version, file=ran)
if len(open("ran").readlines()) == 4 and not os.path.exists("go"):
    open("waiting", "w"); time.sleep(300)
sys.exit(culprit.broken)
"""
    arguments = words(tmp_path, index, "--jobs", "1", "--", "python", "-c", code)
    running = start_aorta(*arguments, cwd=tmp_path)
    wait_for_file(tmp_path / "waiting")
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    (tmp_path / "go").touch()
    index.release("culprit", "1.55", "broken = True")  # the index moves on: this run does not
    done = aorta("bisect", "--resume", tmp_path / "out", "--json", cwd=tmp_path)
    assert culprits(done) == [("culprit", "1.5", "1.6")]
    result: dict[str, Any] = done.json()
    assert result["resumed_trials"] == 3
    assert len((tmp_path / "ran").read_text().split()) == result["tests"] + 1


def test_without_uv_nothing_is_begun(tmp_path: Path, index: PlantedIndex) -> None:
    sides(tmp_path, others=OTHERS)
    alone = tmp_path / "bin"
    alone.mkdir()
    (alone / "python").symlink_to(sys.executable)
    code = "import sys; sys.executable = 'nowhere/python'; from aorta.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *words(tmp_path, index, "--", "true")],
        cwd=tmp_path,
        env={**environ(), "PATH": str(alone)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5
    assert "pip install 'aorta-triage[environments]'" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_program_of_no_environment_is_refused(tmp_path: Path, index: PlantedIndex) -> None:
    sides(tmp_path, others=OTHERS)
    done = bisect(tmp_path, index, "--", "no-such-program")
    assert done.exit_code == 2
    assert "'no-such-program' cannot be started" in done.stderr.splitlines()[-1]


def test_a_package_installed_from_git_is_named_by_its_commits(
    tmp_path: Path, index: PlantedIndex
) -> None:
    """No release differs: the two commits are what `aorta bisect` in the repository is given."""
    repository = Repository.create(tmp_path / "repository")
    files = {"backend.py": BACKEND, "pyproject.toml": PROJECT}
    shas = []
    for number in range(4):
        files["culprit.py"] = f"number = {number}\nbroken = {number >= 2}\n"
        shas.append(repository.commit(f"commit {number}", files))
    for name, sha, other in (("good.txt", shas[0], "1.0"), ("bad.txt", shas[3], "1.9")):
        line = f"culprit @ git+file://localhost{repository.path}@{sha}\nalpha=={other}\n"
        (tmp_path / name).write_text(line)
    test = importing("culprit", condition="culprit.broken")
    assert culprits(bisect(tmp_path, index, *test)) == [("culprit", shas[0], shas[3])]


# A build backend that needs nothing but Python: the wheel is the module as it is.
BACKEND = """
import zipfile
def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = "culprit-2.0-py3-none-any.whl"
    info = "culprit-2.0.dist-info"
    with zipfile.ZipFile(f"{directory}/{name}", "w") as wheel:
        wheel.write("culprit.py")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: culprit\\nVersion: 2.0\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "Culprit"
version = "2.0"
"""


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("bad.txt", "alpha==1.0\nbeta=2\n", 'no such comparison operator "="'),
        ("bad.txt", "alpha==1.0\nalpha==1.9\n", "you require alpha==1.0 and alpha==1.9"),
        ("bad.txt", "-r gone.txt\n", "No such file or directory (os error 2)"),
        ("bad.txt", "", "it names no package"),
        ("bad.txt", "alpha==7.7\n", "the environment cannot be installed"),
        ("bad.json", "{}", "it is no env.json"),
        ("none.txt", None, "No such file"),
        ("bad.txt", "alpha==1.0\n", "nothing differs between the two environments"),
    ],
)
def test_a_side_that_cannot_be_used_is_one_clear_line(
    tmp_path: Path, index: PlantedIndex, name: str, text: str | None, says: str
) -> None:
    frozen(tmp_path / "good.txt", {"alpha": "1.0"})
    if text is not None:
        (tmp_path / name).write_text(text)
    ends = ["--good-env", "good.txt", "--bad-env", name, "--output-prefix", "out"]
    done = aorta("bisect", *ends, *from_files(index), "--", "true", cwd=tmp_path)
    assert done.exit_code == 2, done.stderr
    assert says in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("aorta:")]) == 1
    assert "Traceback" not in done.stderr


def test_the_command_is_run_by_the_environments_own_python(
    tmp_path: Path, index: PlantedIndex
) -> None:
    """Also where it names the program of a virtual environment that is one of the sides."""
    index.releases("culprit", TENS[:3], broken_from="1.2")
    environment(tmp_path / "venv", *index.directory.glob("culprit-1.2-*.whl"))
    frozen(tmp_path / "good.txt", {"culprit": "1.0"})
    ends = ["--good-env", "good.txt", "--bad-env", "venv", "--output-prefix", "out", "--json"]
    test = ["venv/bin/python", *importing("culprit", condition="culprit.broken")[2:]]
    done = aorta("bisect", "--no-checks", *ends, *from_files(index), "--", *test, cwd=tmp_path)
    assert culprits(done) == [("culprit", "1.1", "1.2")]


def test_two_sides_that_say_the_same_install_nothing(tmp_path: Path) -> None:
    for name in ("good.txt", "bad.txt"):
        frozen(tmp_path / name, {"no-such-package-anywhere": "1.0"})
    done = bisect(tmp_path, None, "--", "true")
    assert done.exit_code == 2
    assert "nothing differs between the two environments" in done.stderr
    assert "making both" not in done.stderr
