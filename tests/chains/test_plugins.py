"""What plugins bring stays usable where they are missing, and what they break stays their own."""

import os
from pathlib import Path
from typing import Any

import pytest

from aorta.core.documents import parse_document
from support.aorta_cli import Finished, aorta, environ
from support.reductions import numeric, run_dir_of, with_trials, write_spec

FAILS = {"kind": "exit_code"}
SCRIPT = '[ "$SITE$QUIET" = here1 ] || exit 0\n[ "$N" -lt 5 ] || { echo torn >&2; exit 1; }\n'


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A distribution as pip leaves it: two good entry points, and two that are broken."""
    place = tmp_path / "site"
    info = place / "acme_plugin-1.0.dist-info"
    info.mkdir(parents=True)
    (place / "acme_plugin.py").write_text(
        'QUIET = {"QUIET": "1"}\nLOUD = {"LOUD": "1"}\nRACK = {"env": {"SITE": "here"}}\n'
    )
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[aorta.mitigations]\nacme_quiet = acme_plugin:QUIET\nacme_loud = acme_plugin:LOUD\n"
        "acme_stale = acme_gone:X\n"
        "[aorta.environments]\nacme_rack = acme_plugin:RACK\nacme_moved = acme_gone:X\n"
    )
    return place


def with_plugin(site: Path) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([environ()["PYTHONPATH"], str(site)])}


def spec(place: Path, **keys: Any) -> Path:
    return write_spec(place, SCRIPT, [numeric("N", 9, 1)], oracle=FAILS, budget={}, **keys)


def reduced(place: Path, env: dict[str, str], *words: str | Path) -> Finished:
    return aorta("reduce", *words, "--output", place / "o", "--json", "-q", cwd=place, env=env)


def test_a_recipe_of_a_machine_with_plugins_runs_where_they_are_missing(
    site: Path, tmp_path: Path
) -> None:
    env = with_plugin(site)
    work = tmp_path / "work"
    around = {"environment": "acme_rack", "mitigations": ["acme_quiet"]}
    done = reduced(work, env, "--spec", spec(work, **around))
    assert done.json()["status"] == "reduced", done
    run_dir = run_dir_of(done.json(), work)
    packed = aorta("bundle", run_dir, "--output", tmp_path / "sent", "--json", cwd=work, env=env)
    assert packed.exit_code == 0, packed
    unpacked = tmp_path / "there"
    assert aorta("bundle", "unpack", packed.json()["path"], unpacked).exit_code == 0
    shrunken = next(unpacked.rglob("shrunken"))
    recipe = shrunken / "recipe.resolved.yaml"
    assert "acme-plugin" not in "".join(p.read_text() for p in shrunken.rglob("*.yaml"))
    assert "acme_loud" not in recipe.read_text()
    with_trials(recipe, 2)
    for number, here in enumerate(({}, env)):  # also where the plugin defines the same names
        out = tmp_path / f"t{number}"
        ran = aorta("triage", "run", "--recipe", recipe, "--output-dir", out, "--json", env=here)
        assert ran.exit_code == 0, ran
        baseline = ran.json()["cells"][0]
        assert baseline["mitigations"] == ["acme_quiet"]
        assert (baseline["environment"], baseline["failed_count"]) == ("acme_rack", 2)
    again = reduced(tmp_path, {}, "--spec", shrunken / "aorta.yaml")
    assert again.json()["original"]["reproduced"] > 0, again


def test_a_broken_plugin_that_nobody_names_stops_no_verb(site: Path, tmp_path: Path) -> None:
    env = with_plugin(site)
    plain = SCRIPT.splitlines(keepends=True)[1]
    path = write_spec(tmp_path, plain, [numeric("N", 9, 1)], oracle=FAILS, budget={})
    done = reduced(tmp_path, env, "--spec", path)
    assert (done.exit_code, done.json()["axes"][0]["final"]) == (0, 5), done
    named = parse_document(
        (run_dir_of(done.json(), tmp_path) / "shrunken" / "recipe.resolved.yaml").read_text(),
        "yaml", where="recipe",
    )  # fmt: skip
    assert isinstance(named, dict)
    assert not any("acme" in str(cell) for cell in named["cells"])
    listed = aorta("triage", "list-mitigations", env=env)
    assert listed.exit_code == 0
    assert "acme_quiet" in listed.stdout
    assert "acme_stale" not in listed.stdout
    assert listed.stderr.count("\n") == 1
    assert "acme-plugin: entry point aorta.mitigations:acme_stale: could not be" in listed.stderr
    assert aorta("triage", "list-environments", env=env).exit_code == 0
    mode = ("triage", "run", "--mode", "optimize", "--trials", "2", "-q")
    found = aorta(*mode, "--", "bash", "-c", "echo torn >&2; exit 1", cwd=tmp_path, env=env)
    assert found.exit_code == 3, found
    refused = aorta("run", "--mitigations", "acme_stale", "--", "true", cwd=tmp_path, env=env)
    assert refused.exit_code == 2
    assert "entry point aorta.mitigations:acme_stale: could not be" in refused.stderr
    assert "ModuleNotFoundError" in refused.stderr
