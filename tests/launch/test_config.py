"""The settings: YAML, flags over YAML, old spellings."""

import warnings
from argparse import ArgumentParser
from pathlib import Path

import pytest

from aorta.core.errors import AortaError
from aorta.launch.config import FaultTolerance, add_flags, fault_tolerance
from aorta.launch.decision import build_sources

EVERYTHING = """
fault_tolerance:
  attribution:
    attrsvc_url: http://svc:50050
    enable_mcp: true
    http_urls: [http://one:1, "http://two:2/"]
    timeout_seconds: 30
    decision_timeout_seconds: 5
    dry_run: true
    aggregation: all
  hang_timeout_seconds: 600
  max_no_progress_cycles: 7
"""


def settings(*arguments: str) -> FaultTolerance:
    parser = ArgumentParser()
    add_flags(parser)
    return fault_tolerance(parser.parse_args(arguments))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ft.yaml"
    path.write_text(EVERYTHING)
    return path


def test_the_file_alone_sets_every_key(file: Path) -> None:
    read = settings("--ft-config", str(file))
    assert read.attribution.attrsvc_url == "http://svc:50050"
    assert read.attribution.http_urls == ["http://one:1", "http://two:2"]
    assert (read.attribution.enable_mcp, read.attribution.dry_run) == (True, True)
    assert (read.attribution.timeout_seconds, read.attribution.decision_timeout_seconds) == (30, 5)
    assert (read.hang_timeout_seconds, read.max_no_progress_cycles) == (600, 7)


def test_flags_override_the_file_and_unset_flags_never_do(file: Path) -> None:
    read = settings(
        *("--ft-config", str(file), "--ft-attribution-timeout", "60"),
        *("--no-ft-attribution-dry-run", "--ft-attribution-http-url", "http://three:3"),
    )
    assert read.attribution.timeout_seconds == 60
    assert read.attribution.dry_run is False
    assert read.attribution.http_urls == ["http://three:3"]
    assert read.attribution.decision_timeout_seconds == 5
    assert read.attribution.aggregation == "all"


def test_without_anything_the_defaults_are_the_documented_ones() -> None:
    read = settings()
    assert read.attribution.decision_timeout_seconds == 10
    assert read.attribution.timeout_seconds == 60
    assert read.attribution.aggregation == "any"
    assert read.hang_timeout_seconds is None
    assert [source.name for source in build_sources(read)] == ["in-process"]


def test_every_kind_of_source_is_in_the_one_list(file: Path) -> None:
    sources = build_sources(settings("--ft-config", str(file)))
    names = [source.name for source in sources]
    assert names == ["attrsvc http://svc:50050", "mcp", "http http://one:1", "http http://two:2"]


@pytest.mark.parametrize(
    ("old", "same_as", "named"),
    [
        (
            ["--ft-attribution-endpoint", "http://x:1"],
            ["--ft-attrsvc-url", "http://x:1"],
            "--ft-attrsvc-url",
        ),
        (
            ["--ft-attribution-backend", "http://x:1"],
            ["--ft-attribution-http-url", "http://x:1"],
            "--ft-attribution-http-url",
        ),
        (
            ["--ft-attribution-backend", "mcp"],
            ["--ft-attribution-enable-mcp"],
            "--ft-attribution-enable-mcp",
        ),
        (
            ["--ft-attribution-stop-action", "log"],
            ["--ft-attribution-dry-run"],
            "--ft-attribution-dry-run",
        ),
        (["--ft-rank-heartbeat-timeout", "9"], ["--ft-hang-timeout", "9"], "--ft-hang-timeout"),
    ],
)
def test_old_spellings_work_with_a_warning_and_not_beside_the_new(
    old: list[str], same_as: list[str], named: str
) -> None:
    with pytest.warns(DeprecationWarning, match=rf"goes with aorta \d.*{named}"):
        assert settings(*old) == settings(*same_as)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(AortaError, match="old spelling"):
            settings(*old, *same_as)


@pytest.mark.parametrize("endpoint", ["localhost", "unix:///run/attrsvc", "grpc://x:1"])
def test_an_endpoint_that_only_ft_launcher_can_reach_is_named_and_left_out(
    endpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert settings("--ft-attribution-endpoint", endpoint) == settings()
    assert endpoint in caplog.text


def test_both_spellings_of_dashes_are_taken() -> None:
    assert settings("--ft_hang_timeout", "5") == settings("--ft-hang-timeout", "5")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("fault_tolerance: {attribution: {attrsvc_urls: x}}", "attribution.attrsvc_urls"),
        ("fault_tolerance: {attribution: {http_urls: http://x}}", "attribution.http_urls"),
        ("fault_tolerance: {attribution: {aggregation: most}}", "attribution.aggregation"),
        ("fault_tolerance: {attribution: {timeout_seconds: '60'}}", "attribution.timeout_seconds"),
        ("fault_tolerance: {attribution: {attrsvc_url: grpc://x:1}}", "attribution.attrsvc_url"),
        ("fault_tolerance: {attribution: {timeout_seconds: 0}}", "attribution.timeout_seconds"),
        ("fault_tolerance: {hang_timeout_seconds: -1}", "hang_timeout_seconds"),
        ("attribution: {}", "attribution"),
        ("[1, 2]", "ft.yaml"),
        ("fault_tolerance: {unclosed", "ft.yaml"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_the_place(
    tmp_path: Path, text: str, place: str
) -> None:
    path = tmp_path / "ft.yaml"
    path.write_text(text)
    with pytest.raises(AortaError) as wrong:
        settings("--ft-config", str(path))
    assert place in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_a_file_that_is_not_there_is_said_so() -> None:
    with pytest.raises(AortaError, match="cannot be read"):
        settings("--ft-config", "/no/such/file.yaml")
