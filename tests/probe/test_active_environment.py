"""`aorta env probe` describes the environment that people are in."""

import os
import subprocess
import sys
from pathlib import Path

from support.aorta_cli import aorta


def test_the_environment_that_comes_first_on_the_path_is_described(tmp_path: Path) -> None:
    home = tmp_path / "their env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    [site] = home.glob("lib/python*/site-packages")
    info = site / "planted-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.2\n")
    there = {"PATH": f"{home / 'bin'}:{os.environ['PATH']}"}
    seen = aorta("env", "probe", "--json", cwd=tmp_path, env=there).json()
    assert seen["other_packages"] == {"planted": "1.2"}
    assert seen["runtime_context"]["venv_path"] == str(home)
