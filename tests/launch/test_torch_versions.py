"""Torch 2.4 and newer: an older one is refused in one line before anything of it is imported, a
newer one than any that was tried is named and used.
"""

import re
import tomllib
from pathlib import Path

import pytest

from aorta.launch.config import NEWEST, OLDEST, demand_known_torch
from support import fork_server
from support.aorta_cli import ROOT, aorta

SOURCES = ROOT / "src" / "aorta"


def test_a_torch_that_is_too_old_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = tmp_path / "torch-2.3.1.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.3.1\n")
    path = f"{tmp_path}:{ROOT / 'src'}"
    # Or torch is imported for a command line that does not.
    monkeypatch.setenv(fork_server.COLD, "1")
    done = aorta("launch", "job.py", cwd=tmp_path, env={"PYTHONPATH": path})
    assert done.exit_code == 5
    assert done.stderr.count("\n") == 1
    assert "works with torch 2.4 and newer, and torch 2.3.1 is installed" in done.stderr
    assert "pip" not in done.stderr


@pytest.mark.parametrize("version", ["2.99.1+rocm7", "3.0.0a0+git1234"])
def test_a_torch_that_is_newer_than_any_is_named_and_used(
    version: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("aorta.launch.config.version", lambda _: version)
    demand_known_torch()
    assert f"torch {version} is newer than 2.15" in caplog.text


@pytest.mark.parametrize("version", ["2.4.0", "2.11.0a0+nv26", "2.13.0+cpu", "2.15.1"])
def test_others_are_not_spoken_of(
    version: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("aorta.launch.config.version", lambda _: version)
    demand_known_torch()
    assert not caplog.text


def test_the_package_replaces_no_build_of_torch_and_the_makefile_tries_both_ends() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["launch"] == [f"torch>={OLDEST[0]}.{OLDEST[1]}"]
    tested = next(
        line for line in (ROOT / "Makefile").read_text().splitlines() if "TORCHES =" in line
    )
    releases = [tuple(map(int, word.split(".")[:2])) for word in tested.split("#")[0].split()[2:]]
    assert (releases[0], releases[-1]) == (OLDEST, NEWEST)


def test_private_names_of_torch_stand_in_one_file() -> None:
    """Those that are imported; what is inherited is under other names there as well."""
    private = re.compile(r"^\s*from torch\S* import .*\b_[a-z]|^    _[a-z]\w+,$", re.MULTILINE)
    found = [
        path for path in (SOURCES / "launch").rglob("*.py") if private.search(path.read_text())
    ]
    assert [path.name for path in found] == ["agent.py"]
