"""Repositories as people have them: read only, of another user, shallow, partial, with strange
names and settings.
"""

import sys
from pathlib import Path

import pytest

from support.aorta_cli import Finished, aorta
from support.git_repositories import Repository, numbered
from support.reproduced import assert_both_sides_show

SEARCH = ("bisect", "--json", "--no-checks")
# A pytest of every state that finds no plugin of this environment, which would be most of its
# start.
PYTEST = ("env", "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1", sys.executable, "-m", "pytest", "-q")


def bisect(where: Path, out: Path, *words: str, env: dict[str, str] | None = None) -> Finished:
    return aorta(*SEARCH, "--output-prefix", out, *words, cwd=where, env=env)


def fails_from(number: int) -> tuple[str, ...]:
    return ("--", "sh", "-c", f"test $(cat number) -lt {number}")


def test_what_people_put_into_titles_and_names_breaks_no_line(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 5)
    title = "a title\r with\f every \u2028 end \x1b[31m of\x85 a \x1f line\r\n\r\nand more\r\n"
    for number in (5, 6):
        (repository.path / "number").write_text(f"{number}\n")
        repository.git("add", "--all")
        name = "user.name=J\x1f\u2028\x85rg"
        repository.git("-c", name, "commit", "--quiet", "--cleanup=verbatim", f"--message={title}")
    repository.commit("x" * 20_000, {"number": "7\n"})
    repository.git("config", "log.showSignature", "true")
    repository.git("config", "i18n.logOutputEncoding", "latin1")
    found = bisect(repository.path, tmp_path / "out", "--good", shas[0], *fails_from(6)).json()
    (culprit,) = found["culprits"]
    assert culprit["bad"] == repository.git("rev-parse", "HEAD~1")
    assert culprit["title"] == "a title with every end [31m of a line"


def test_files_and_authors_that_are_no_utf_8_are_bisected(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 5)
    Path(str(repository.path), "n\udcff\udcfe").write_text("strange")
    who = ("-c", "user.name=J\udcfcrgen", "-c", "i18n.commitEncoding=latin1")
    repository.git("add", "--all")
    repository.git(*who, "commit", "--quiet", "--author=J\udcfcrgen <j@example.com>", "--message=x")
    shas.append(repository.head)
    words = ("--good", shas[0], "--", "sh", "-c", "test $(ls | wc -l) -lt 2")
    (culprit,) = bisect(repository.path, tmp_path / "out", *words).json()["culprits"]
    assert (culprit["bad"], culprit["author"]) == (shas[-1], "Jürgen")


def test_a_repository_that_git_does_not_trust_is_said_to_be_another_users(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 5)
    other = {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}
    words = ("--good", shas[0], *fails_from(3))
    done = bisect(repository.path, tmp_path / "out", *words, env=other)
    assert done.exit_code == 2
    assert f"safe.directory {repository.path}" in done.stderr
    trusted = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }
    found = bisect(repository.path, tmp_path / "out", *words, env={**other, **trusted}).json()
    assert found["culprits"][0]["bad"] == shas[3]


def test_a_shallow_clone_says_how_to_get_the_rest(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 12)
    clone = tmp_path / "clone"
    address = f"file://{repository.path}"
    repository.git("clone", "--quiet", "--depth=6", address, str(clone))
    done = bisect(clone, tmp_path / "out", "--good", shas[2], *fails_from(9))
    assert done.exit_code == 2
    assert "git fetch --unshallow" in done.stderr
    Repository(clone).git("fetch", "--quiet", "--depth=1", "origin", shas[2])
    done = bisect(clone, tmp_path / "out", "--good", shas[2], *fails_from(9))
    assert "no common ancestor" in done.stderr
    assert "git fetch --unshallow" in done.stderr
    found = bisect(clone, tmp_path / "out", "--good", shas[6], *fails_from(9)).json()
    assert found["culprits"][0]["bad"] == shas[9]


def test_a_partial_clone_that_cannot_fetch_says_what_git_said(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 5)
    repository.git("config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    address = f"file://{repository.path}"
    repository.git("clone", "--quiet", "--filter=blob:none", address, str(clone))
    repository.path.rename(tmp_path / "elsewhere")
    cut = bisect(clone, tmp_path / "out", "--good", shas[0], *fails_from(3))
    assert cut.exit_code == 5
    assert "promisor remote" in cut.stderr
    assert any("promisor remote" in warning for warning in cut.json()["warnings"])
    (tmp_path / "elsewhere").rename(repository.path)
    done = aorta(*SEARCH, "--resume", tmp_path / "out", cwd=clone)
    assert done.json()["culprits"][0]["bad"] == shas[3], done.stderr


@pytest.mark.parametrize("committed_and_renamed", [False, True])
def test_a_new_test_of_the_repository_imports_the_sources_of_each_state(
    tmp_path: Path, committed_and_renamed: bool
) -> None:
    """Beside a package that lies at the top, where a test by its whole path would import the user's
    own checkout.
    """
    repository = Repository.create(tmp_path / "repo")
    for directory in ("package", "tests"):
        (repository.path / directory).mkdir()
        (repository.path / directory / "__init__.py").touch()
    shas = [repository.commit(f"commit {i}", {"package/n.py": f"N = {i}\n"}) for i in range(3)]
    name = "tests/test_n.py"
    (repository.path / name).write_text(
        "from package.n import N\n\ndef test_n():\n    assert N < 1\n"
    )
    if committed_and_renamed:
        repository.commit("add a test", {})
        repository.git("mv", name, "tests/test_m.py")
        name = "tests/test_m.py"
        repository.commit("rename it", {})
    command = (*PYTEST, "-p", "no:cacheprovider", f"{name}::test_n")
    done = bisect(repository.path, tmp_path / "out", "--good", shas[0], "--", *command)
    assert done.json()["culprits"][0]["bad"] == shas[1], done.stderr
    assert f"{name} is not in every commit" in done.stderr
    assert_both_sides_show(done.json())


def test_no_state_finds_the_settings_of_the_users_own_checkout_above_it(tmp_path: Path) -> None:
    """With the run's directory where it is by default, in the repository."""
    repository = Repository.create(tmp_path / "repo")
    for directory in ("src", "tests"):
        (repository.path / directory).mkdir()
    test = {"tests/test_n.py": "from n import N\n\ndef test_n():\n    assert N < 2\n"}
    settings = {"pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["src"]\n'}
    shas = [
        repository.commit(
            f"commit {i}", {"src/n.py": f"N = {i}\n", **test} | (settings if i > 3 else {})
        )
        for i in range(5)
    ]
    command = ("env", "PYTHONPATH=src", *PYTEST, "tests/test_n.py")
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    words = ("--good", shas[0], "--", *command)
    done = aorta(*SEARCH, *words, cwd=repository.path, env=cache)
    assert done.json()["culprits"][0]["bad"] == shas[2], done.stderr
    assert list((tmp_path / "cache" / "aorta" / "trees").iterdir()) == []
    assert repository.git("status", "--porcelain") == ""
    assert repository.worktrees() == [str(repository.path)]


@pytest.mark.parametrize("place", ["sub", "."])
def test_a_script_of_the_repository_is_found_from_a_directory_of_it(
    tmp_path: Path, place: str
) -> None:
    repository = Repository.create(tmp_path / "repo")
    (repository.path / "sub").mkdir()
    scripts = {
        "sub/check.sh": "test $(cat number) -lt 3\n",
        "check.sh": "test $(cat number) -lt 1\n",  # of the same name, at the top
    }
    shas = repository.line([(f"commit {i}", {"number": f"{i}\n", **scripts}) for i in range(5)])
    word = "check.sh" if place == "sub" else "sub/check.sh"
    words = ("--good", shas[0], "--", "sh", word)
    done = bisect(repository.path / place, tmp_path / "out", *words)
    assert done.json()["culprits"][0]["bad"] == shas[3], done.stderr
    assert ("runs at the top of each checkout" in done.stderr) is (place == "sub")
