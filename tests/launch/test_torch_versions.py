"""A torch that the launcher was never run with is refused in one line, before anything of it is
imported.
"""

import tomllib
from pathlib import Path

import pytest

from aorta.launch.versions import NEWEST, OLDEST
from support import fork_server
from support.aorta_cli import ROOT, aorta


@pytest.mark.parametrize("version", ["2.12.1", "2.99.1+rocm7", "3.0.0a0+git1234"])
def test_an_unknown_torch_is_one_line(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = tmp_path / f"torch-{version}.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    path = f"{tmp_path}:{ROOT / 'src'}"
    monkeypatch.setenv(
        fork_server.COLD, "1"
    )  # or torch is imported for a command line that does not
    done = aorta("launch", "job.py", cwd=tmp_path, env={"PYTHONPATH": path})
    assert done.exit_code == 5
    assert done.stderr.count("\n") == 1
    assert f"knows torch 2.13 to 2.15, and torch {version} is installed" in done.stderr


def test_what_the_launcher_knows_is_what_the_package_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bound = f"torch>={OLDEST[0]}.{OLDEST[1]},<{NEWEST[0]}.{NEWEST[1] + 1}"
    assert project["optional-dependencies"]["launch"] == [bound]
    tested = next(
        line for line in (ROOT / "Makefile").read_text().splitlines() if "TORCHES =" in line
    )
    releases = [word.rsplit(".", 1)[0] for word in tested.split("#")[0].split()[2:]]
    assert releases == [f"{major}.{minor}" for major, minor in sorted({OLDEST, NEWEST})]
