"""What an installed distribution adds. The distributions are real ones, made on the spot and put on
the path.
"""

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from aorta.core.errors import RegistryError
from aorta.core.trial import RuntimeKind
from aorta.registry.environments import get_environment, load_environments
from aorta.registry.mitigations import get_mitigation, load_mitigations, mitigation_rows
from aorta.registry.workloads import check_workload, get_workload

SECRET = "hunter2-is-my-password"


def install(directory: Path, name: str, code: str, entry_points: str) -> None:
    """A distribution as pip leaves it: a module, and its metadata beside it."""
    module = name.replace("-", "_")
    (directory / f"{module}.py").write_text(textwrap.dedent(code))
    info = directory / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(textwrap.dedent(entry_points))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_distribution_adds_mitigations_environments_and_workloads(site: Path) -> None:
    install(
        site,
        "acme-aorta",
        f"""
        QUIET = {{"ACME_TOKEN": "{SECRET}"}}
        NIGHTLY = {{"docker": "acme/nightly", "env": {{"A": "1"}}}}
        class Burn: ...
        """,
        """
        [aorta.mitigations]
        acme_quiet = acme_aorta:QUIET
        [aorta.environments]
        acme_nightly = acme_aorta:NIGHTLY
        [aorta.workloads]
        acme_burn = acme_aorta:Burn
        """,
    )
    quiet = get_mitigation("acme_quiet")
    assert (quiet.env, quiet.source) == ({"ACME_TOKEN": SECRET}, "acme-aorta")
    nightly = get_environment("acme_nightly")
    assert (nightly.kind, nightly.source) == (RuntimeKind.DOCKER, "acme-aorta")
    assert get_workload("acme_burn").__name__ == "Burn"
    (row,) = (row for row in mitigation_rows() if row["NAME"] == "acme_quiet")
    assert row["ENV"] == "ACME_TOKEN=<redacted>"


def test_a_plugin_that_nobody_names_is_not_even_imported(site: Path) -> None:
    install(
        site,
        "broken-aorta",
        "raise SystemError('the author was tired')",
        """
        [aorta.workloads]
        broken = broken_aorta:Missing
        [aorta.mitigations]
        broken = broken_aorta:MISSING
        """,
    )
    assert get_mitigation("xnack").env == {"HSA_XNACK": "1"}
    check_workload("broken")
    assert "broken_aorta" not in sys.modules
    with pytest.raises(RegistryError) as refused:
        get_workload("broken")
    line = str(refused.value)
    assert line.startswith("broken-aorta: entry point aorta.workloads:broken: ")
    assert "SystemError" in line
    assert "uninstall" in line


def test_a_broken_plugin_is_left_out_with_one_warning_and_refused_by_its_name(
    site: Path, caplog: pytest.LogCaptureFixture
) -> None:
    points = "gone = nowhere_at_all:X\nleaves = stale_aorta:X\nodd name = stale_aorta:X\n"
    install(site, "stale-aorta", "raise SystemExit(3)", f"[aorta.mitigations]\n{points}")
    assert "xnack" in load_mitigations()
    assert not {"gone", "leaves", "odd name"} & load_mitigations().keys()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3
    for line in said:
        assert "stale-aorta: entry point aorta.mitigations:" in line
    assert any("nowhere_at_all:X (ModuleNotFoundError)" in line for line in said)
    with pytest.raises(RegistryError, match=r"stale-aorta: entry point aorta\.mitigations:gone"):
        get_mitigation("gone")


def test_a_named_file_wins_over_a_plugin_and_never_over_what_is_built_in(
    site: Path, tmp_path: Path
) -> None:
    install(site, "acme-two", "X = {'A': '1'}", "[aorta.mitigations]\nquiet = acme_two:X\n")
    mine = tmp_path / "mine.json"
    mine.write_text('{"version": 1, "mitigations": {"quiet": {"A": "2"}}}')
    assert get_mitigation("quiet").env == {"A": "1"}
    assert get_mitigation("quiet", [mine]).env == {"A": "2"}


@pytest.mark.parametrize(
    ("group", "value", "said"),
    [
        ("aorta.mitigations", f"'{SECRET}'", "found a str, expected a mapping"),
        ("aorta.mitigations", "{'X': 1}", "X is a int"),
        ("aorta.mitigations", "{1: 'x'}", "found a int as a key"),
        ("aorta.environments", "{'image': 'x'}", "unknown key 'image'"),
        ("aorta.environments", "['x']", "found a list"),
        ("aorta.workloads", f"'{SECRET}'", "is a str, expected a class"),
    ],
)
def test_a_plugin_of_the_wrong_shape_is_refused_by_name_and_without_its_value(
    site: Path, group: str, value: str, said: str
) -> None:
    install(site, "odd-aorta", f"THING = {value}", f"[{group}]\nodd = odd_aorta:THING\n")
    sys.modules.pop("odd_aorta", None)
    lookups: dict[str, Callable[[str], object]] = {
        "aorta.mitigations": get_mitigation,
        "aorta.environments": get_environment,
        "aorta.workloads": get_workload,
    }
    with pytest.raises(RegistryError) as refused:
        lookups[group]("odd")
    assert str(refused.value).startswith(f"odd-aorta: entry point {group}:odd: ")
    assert said in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_plugin_may_not_take_a_built_in_name(site: Path) -> None:
    install(site, "bold-aorta", "X = {}", "[aorta.mitigations]\nxnack = bold_aorta:X\n")
    with pytest.raises(RegistryError, match="'xnack' is defined twice, by aorta and by bold-aorta"):
        get_mitigation("none")


def test_an_image_can_be_an_environment_without_being_defined() -> None:
    inline = get_environment("image:rocm/pytorch:6.4")
    assert (inline.kind, inline.image) == (RuntimeKind.DOCKER, "rocm/pytorch:6.4")
    for wrong in ("image:", "image:a b"):
        with pytest.raises(RegistryError, match="names no image"):
            get_environment(wrong)


def test_that_form_of_name_is_kept_free(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "shy-aorta", "X = {}", "[aorta.environments]\nimage.x = shy_aorta:X\n")
    assert "image.x" in load_environments()
    (site / "more").mkdir()
    monkeypatch.syspath_prepend(str(site / "more"))
    install(site / "more", "sly-aorta", "X = {}", "[aorta.environments]\nimage:x = sly_aorta:X\n")
    with pytest.raises(RegistryError):
        get_environment("local")


def test_local_and_default_are_the_host_itself() -> None:
    assert get_environment("local").kind is RuntimeKind.HOST
    assert get_environment("default").kind is RuntimeKind.HOST
    with pytest.raises(RegistryError, match="did you mean local"):
        get_environment("locl")


@pytest.mark.parametrize("name", ["command", "half_nan", "fsdp"])
def test_the_shipped_workloads_are_classes_found_by_name(name: str) -> None:
    check_workload(name)
    assert isinstance(get_workload(name), type)


def test_an_unknown_workload_is_answered_with_the_names_there_are() -> None:
    with pytest.raises(RegistryError, match="did you mean half_nan"):
        get_workload("halfnan")
