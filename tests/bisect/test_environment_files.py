"""What people have of an environment, read as it was written: by pip, or by hand."""

import subprocess
import sys
from pathlib import Path

import pytest

from aorta.bisect.environments.given import read_environment
from aorta.bisect.environments.states import (
    EnvironmentEnd,
    in_order,
    is_installable,
    must_move_with,
)
from aorta.runtimes.package_index import PackageIndex, Sources, sources_of
from support.planted_index import PlantedIndex

REQUIREMENTS = """
# what train.py needs
--index-url https://packages.example.com/simple
-f wheels
-r more.txt
Alpha_One==1.0 \\
    --hash=sha256:aaaa \\
    --hash=sha256:bbbb
beta[fast]>=1,<2 ; python_version > "3"   # loose
gamma @ git+https://code.example.com/gamma@4f1c2a9
-e ./mine
"""


def test_a_requirements_file_is_read_as_pip_reads_it(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(REQUIREMENTS)
    side = read_environment("requirements.txt", tmp_path, "--bad-env")
    assert side.file == tmp_path / "requirements.txt"
    assert side.requirements == (
        "-r more.txt",
        "Alpha_One==1.0",
        'beta[fast]>=1,<2 ; python_version > "3"',
        "gamma @ git+https://code.example.com/gamma@4f1c2a9",
        "-e ./mine",
    )
    assert side.options == (
        ("index_url", "https://packages.example.com/simple"),
        ("find_links", str(tmp_path / "wheels")),
    )
    assert not side.is_pinned


def test_what_pip_freeze_writes_is_pinned(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "freeze"], capture_output=True, text=True, check=True
    )
    lines = [
        line
        for line in done.stdout.splitlines()
        if not line.startswith(("#", "-e")) and "==" in line
    ]
    (tmp_path / "frozen.txt").write_text("\n".join(lines))
    side = read_environment("frozen.txt", tmp_path, "--bad-env")
    assert len(side.requirements) == len(lines)
    assert side.is_pinned


def test_nightly_builds_are_in_the_order_of_their_days_and_keep_to_their_label(
    tmp_path: Path,
) -> None:
    index = PlantedIndex(tmp_path)
    for day in ("01", "02", "03", "04"):
        for label in ("cu130", "rocm7.1"):
            index.release("nightly", f"2.9.0.dev202601{day}+{label}")
    sources = Sources(find_links=(str(tmp_path),))
    ends = "2.9.0.dev20260101+cu130", "2.9.0.dev20260104+cu130"
    found = PackageIndex(sources).between("nightly", *ends, "3.11.7")
    assert [release.version.partition(".dev")[2] for release in found] == [
        f"2026010{day}+cu130" for day in (1, 2, 3, 4)
    ]
    backwards = PackageIndex(sources).between("nightly", *ends[::-1], "3.11.7")
    assert backwards == found[::-1]


def test_an_index_may_be_a_directory_of_this_machine(tmp_path: Path) -> None:
    index = PlantedIndex(tmp_path / "wheels")
    for version in ("1.0", "1.1", "1.2"):
        index.release("culprit", version)
    index.write_simple(tmp_path, "html")
    sources = Sources(((tmp_path / "simple").as_uri(), (tmp_path / "without").as_uri()))
    found = PackageIndex(sources).between("culprit", "1.0", "1.2", "3.11.7")
    assert [release.version for release in found] == ["1.0", "1.1", "1.2"]


def test_releases_for_another_python_or_platform_are_no_candidates(tmp_path: Path) -> None:
    for name in (
        "native-1.0-cp311-cp311-manylinux_2_17_x86_64.whl",
        "native-1.1-cp312-cp312-manylinux_2_17_x86_64.whl",
        "native-1.2-cp311-cp311-win_amd64.whl",
        "native-1.3.tar.gz",
        "native-1.4-py3-none-any.whl",
        "native-1.5rc1-py3-none-any.whl",
        "native-1.6-py3-none-any.whl",
        "other-1.2-py3-none-any.whl",
    ):
        (tmp_path / name).touch()
    sources = Sources(find_links=(str(tmp_path),))
    found = PackageIndex(sources).between("native", "1.0", "1.6", "3.11.7")
    assert [release.version for release in found] == ["1.0", "1.3", "1.4", "1.6"]


def installed(
    versions: dict[str, str],
    asks: dict[str, list[str]],
    requires_python: dict[str, str] | None = None,
    python: str = "3.11.7",
) -> EnvironmentEnd:
    return EnvironmentEnd("end", python, "python", {}, versions, asks, requires_python or {})


def test_an_order_that_can_be_installed_puts_everything_after_what_it_asks_for() -> None:
    good = installed(
        {"app": "1.0", "library": "1.0", "free": "1.0"},
        {"app": ["library<2"]},
        {"app": "<3.12"},
        python="3.11.7",
    )
    bad = installed(
        {"app": "2.0", "library": "2.0", "free": "2.0", "added": "1.0"},
        {"app": ["library>=2", "added"], "free": ["library>=1.5; extra == 'never'"]},
        python="3.12.1",
    )
    changed = ["python", "app", "library", "free", "added"]
    needs = must_move_with(good, bad, changed)
    assert needs["app"] == {"app", "library", "added"}
    assert needs["library"] == needs["app"]
    assert needs["python"] == {"python", "app", "library", "added"}
    order = in_order(needs)
    assert order[-1] == "python"
    assert order.index("added") < min(order.index("app"), order.index("library"))
    prefixes = [order[:length] for length in range(len(order) + 1)]
    assert sum(not is_installable(prefix, needs) for prefix in prefixes) == 1


def test_what_an_end_has_against_its_own_requirements_is_no_rule() -> None:
    good = installed({"app": "1.0", "library": "1.0"}, {"app": ["library<1"]})
    bad = installed({"app": "2.0", "library": "2.0"}, {"app": ["library>=2"]})
    needs = must_move_with(good, bad, ["app", "library"])
    assert all(len(those) == 1 for those in needs.values())


def test_no_index_is_asked_where_pip_is_told_to_ask_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    sources = sources_of(None, (), (), no_index=False, pre=False)
    assert sources.indexes == ()
    assert str(tmp_path) in sources.find_links
