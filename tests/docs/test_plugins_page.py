"""docs/plugins.md does what it says: its files are written, its package installed, its commands run."""

import os
import re
import shlex
import tomllib
from pathlib import Path

from aorta.core.documents import parse_document
from support.aorta_cli import ROOT, Finished, aorta, environ
from support.reductions import run_dir_of

PAGE = (ROOT / "docs" / "plugins.md").read_text("utf-8")
_FILE = re.compile(r"^`([\w.]+)`:\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def written(place: Path) -> Path:
    """The files of the page in a directory, the package as pip leaves it."""
    for name, content in _FILE.findall(PAGE):
        (place / name).write_text(content)
    package = tomllib.loads((place / "pyproject.toml").read_text())["project"]
    info = place / "site" / f"{package['name'].replace('-', '_')}-{package['version']}.dist-info"
    info.mkdir(parents=True)
    about = f"Metadata-Version: 2.1\nName: {package['name']}\nVersion: {package['version']}\n"
    (info / "METADATA").write_text(about)
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in package["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("".join(lines))
    return place


def test_every_command_of_the_page_does_what_the_page_says(tmp_path: Path) -> None:
    place = written(tmp_path)
    *alone, installed = (block.splitlines() for block in _COMMANDS.findall(PAGE))
    paths = [environ()["PYTHONPATH"], str(place), str(place / "site")]
    env = {"PYTHONPATH": os.pathsep.join(paths)}

    def ran(line: str, *more: str, plugin: bool) -> Finished:
        words = shlex.split(line)
        assert words[0] == "aorta"
        at = words.index("--") if "--" in words else len(words)
        return aorta(
            *words[1:at], *more, *words[at:], cwd=place, env=env if plugin else None
        )  # fmt: skip

    environments, command, run, shrunk, matrix, queried = (
        line for block in alone for line in block
    )
    listed = ran(environments, plugin=False)
    assert re.search(r"nightly +sidecar:site.yaml +registry.example/train:nightly", listed.stdout)
    assert ran(command, plugin=False).exit_code == 0
    report = ran(run, "--json", plugin=False)
    assert (report.exit_code, report.json()["rate"]["reproduced"]) == (1, 2), report
    for line in (shrunk, queried):
        done = ran(line, "--json", "-q", plugin=True).json()  # what ships finds the class as well
        assert done["status"] == "reduced", done
        assert {axis["name"]: axis["final"] for axis in done["axes"]} == {"ROWS": 7, "STEPS": 1}
        recipe = run_dir_of(done, place) / "shrunken" / "recipe.resolved.yaml"
        assert parse_document(recipe.read_text(), "yaml", where="recipe")
    cells = ran(matrix, "--json", "-q", plugin=False).json()["cells"]
    assert [cell["name"] for cell in cells] == ["none-staging", "one_queue-staging"]
    assert all(cell["failed_count"] == cell["trials"] > 0 for cell in cells)
    with_it, names = installed
    assert ran(with_it, plugin=True).exit_code == 1
    assert "two_queues" in ran(names, plugin=True).stdout
