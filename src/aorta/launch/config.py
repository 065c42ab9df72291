"""The fault-tolerance settings: one YAML block, one flag per key, one list of sources.

Flags override YAML; a flag that was not given overrides nothing. Old spellings fold into the new ones here and are
unknown everywhere else.
"""

import warnings
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import Field, field_validator

from aorta.core.errors import SpecError, UsageError
from aorta.core.strict import StrictModel, validated

Aggregation = Literal["any", "all"]


class Attribution(StrictModel):
    """Whom to ask. With no source given, attribution runs in process on the leader."""

    attrsvc_url: str | None = None
    enable_mcp: bool = False
    http_urls: tuple[str, ...] = ()
    timeout_seconds: float = Field(default=60.0, gt=0)
    decision_timeout_seconds: float = Field(default=10.0, gt=0)
    dry_run: bool = False
    aggregation: Aggregation = "any"

    @field_validator("http_urls", mode="before")
    @classmethod
    def _as_tuple(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("attrsvc_url")
    @classmethod
    def _one_url(cls, url: str | None) -> str | None:
        return None if url is None else _checked_url(url)

    @field_validator("http_urls")
    @classmethod
    def _urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_checked_url(url) for url in urls)


class FaultTolerance(StrictModel):
    attribution: Attribution = Attribution()
    hang_timeout_seconds: float | None = Field(default=None, gt=0)
    max_no_progress_cycles: int = Field(default=3, ge=0)  # 0: no limit
    merged_log: bool = False


class _Document(StrictModel):
    fault_tolerance: FaultTolerance = FaultTolerance()


def add_flags(parser: ArgumentParser) -> None:
    """Every flag of ours. All default to None: only what was given may override the file."""
    flag = _Flags(parser, "fault tolerance")
    flag("--ft-config", metavar="FILE", help="YAML file with a fault_tolerance: block.")
    flag("--ft-attrsvc-url", metavar="URL", help="Ask this attribution service (aorta attrsvc).")
    flag(
        "--ft-attribution-enable-mcp",
        action=BooleanOptionalAction,
        help="Ask an MCP server (aorta mcp) started on the leader.",
    )
    flag(
        "--ft-attribution-http-url",
        metavar="URL",
        action="append",
        help="Ask this HTTP attribution backend too; repeatable.",
    )
    flag(
        "--ft-attribution-timeout",
        metavar="SECONDS",
        type=float,
        help="How long any one source may take (60).",
    )
    flag(
        "--ft-attribution-decision-timeout",
        metavar="SECONDS",
        type=float,
        help="How long the leader waits for the verdict before it restarts (10).",
    )
    flag(
        "--ft-attribution-dry-run",
        action=BooleanOptionalAction,
        help="Decide and log, but never stop the job.",
    )
    flag(
        "--ft-attribution-aggregation",
        choices=["any", "all"],
        help="any: one STOP stops the job. all: every source that has an opinion must say STOP, and at "
        "least one must. A source that is unreachable, late or says UNKNOWN has no opinion.",
    )
    flag(
        "--ft-hang-timeout",
        metavar="SECONDS",
        type=float,
        help="No output and no heartbeat for this long is a hang: stacks and Flight Recorder are "
        "collected, then the cycle ends (off).",
    )
    flag(
        "--ft-max-no-progress-cycles",
        metavar="N",
        type=int,
        help="End the job after N cycles in a row without progress (3; 0: never).",
    )
    flag(
        "--ft-merged-log",
        action=BooleanOptionalAction,
        help="Also write one log per node and cycle with every line prefixed by its rank.",
    )
    old = _Flags(parser, "deprecated")
    old("--ft-attribution-endpoint", metavar="URL", help="Use --ft-attrsvc-url.")
    old(
        "--ft-attribution-backend",
        metavar="URL|mcp",
        action="append",
        help="Use --ft-attribution-http-url or --ft-attribution-enable-mcp.",
    )


class _Flags:
    """Adds each option in both spellings, `--ft-x-y` and `--ft_x_y`, as torchrun does for its own."""

    def __init__(self, parser: ArgumentParser, title: str) -> None:
        self._group = parser.add_argument_group(title)

    def __call__(self, name: str, **how: Any) -> None:
        spellings = dict.fromkeys([name, "--" + name[2:].replace("-", "_")])
        self._group.add_argument(*spellings, default=None, **how)


def fault_tolerance(flags: Namespace) -> FaultTolerance:
    """The settings of one run, from the file and the flags."""
    flags = _without_old_spellings(flags)
    file = flags.ft_config
    content = _read(Path(file)) if file else {}
    written = validated(_Document, content, file=file or "--ft-config").fault_tolerance
    given = {
        "attribution": {
            "attrsvc_url": flags.ft_attrsvc_url,
            "enable_mcp": flags.ft_attribution_enable_mcp,
            "http_urls": flags.ft_attribution_http_url,
            "timeout_seconds": flags.ft_attribution_timeout,
            "decision_timeout_seconds": flags.ft_attribution_decision_timeout,
            "dry_run": flags.ft_attribution_dry_run,
            "aggregation": flags.ft_attribution_aggregation,
        },
        "hang_timeout_seconds": flags.ft_hang_timeout,
        "max_no_progress_cycles": flags.ft_max_no_progress_cycles,
        "merged_log": flags.ft_merged_log,
    }
    merged = _overridden(written.model_dump(), given)
    return validated(FaultTolerance, merged, file="command line", at="fault_tolerance")


def _overridden(weak: Mapping[str, Any], strong: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(weak)
    for key, value in strong.items():
        if isinstance(value, Mapping):
            result[key] = _overridden(weak[key], value)
        elif value is not None:
            result[key] = value
    return result


def _read(file: Path) -> object:
    try:
        content = yaml.safe_load(file.read_text())
    except OSError as wrong:
        raise SpecError(f"cannot be read: {wrong.strerror}", where=str(file)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as wrong:
        raise SpecError(f"is not YAML: {wrong}", where=str(file)) from None
    return {} if content is None else content


def _without_old_spellings(flags: Namespace) -> Namespace:
    backends = flags.ft_attribution_backend or []
    old_to_new = (
        ("--ft-attribution-endpoint", "ft_attrsvc_url", flags.ft_attribution_endpoint),
        (
            "--ft-attribution-backend mcp",
            "ft_attribution_enable_mcp",
            True if "mcp" in backends else None,
        ),
        (
            "--ft-attribution-backend URL",
            "ft_attribution_http_url",
            [backend for backend in backends if backend != "mcp"] or None,
        ),
    )
    folded = dict(vars(flags))
    for old, key, value in old_to_new:
        if value is None:
            continue
        new = "--" + key.replace("_", "-")
        warnings.warn(f"{old} is deprecated; use {new}", DeprecationWarning, stacklevel=3)
        if folded[key] is not None:
            raise UsageError(f"{old} is the old spelling of {new}; give only {new}")
        folded[key] = value
    return Namespace(**folded)


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UsageError(f"{url!r} is not an HTTP address; expected http://HOST:PORT")
    return url.rstrip("/")
