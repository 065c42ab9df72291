"""The fault-tolerance settings: one YAML block, one flag per key, one list of sources.

Flags override YAML; a flag that was not given overrides nothing. Old spellings, and those of
NVIDIA's ft_launcher, fold into the new ones (`ft_launcher.py`) and are unknown everywhere else.
Nothing here needs torch.
"""

import logging
import warnings
from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import Field, field_validator

from aorta.core.documents import StrictModel, validated
from aorta.core.errors import SpecError, UsageError
from aorta.launch import ft_launcher
from aorta.runtimes.http_get import without_credentials

log = logging.getLogger(__name__)

Aggregation = Literal["any", "all"]
USAGE = "aorta launch [torchrun's options] [--ft-...] script.py [arguments]"
DESCRIPTION = (
    "Runs a training script as torchrun does, and asks attribution whether to restart it when it "
    "fails. Exit codes: 0 done, 1 the job failed, 2 wrong command line, 5 the rendezvous store "
    "was lost, "
    "93 attribution decided STOP, 130/143 interrupted."
)


class AttributionConfig(StrictModel):
    """Whom to ask. With no source given, attribution runs in process on the leader."""

    attrsvc_url: str | None = None
    enable_mcp: bool = False
    mcp_server: str | None = Field(default=None, min_length=1)
    http_urls: tuple[str, ...] = ()
    timeout_seconds: float = Field(default=60.0, gt=0)
    decision_timeout_seconds: float = Field(default=10.0, gt=0)
    dry_run: bool = False
    late_stop: bool = False
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
    attribution: AttributionConfig = AttributionConfig()
    hang_timeout_seconds: float | None = Field(default=None, gt=0)
    max_no_progress_cycles: int = Field(default=3, ge=0)  # 0: no limit
    merged_log: bool = False
    per_cycle_applog_prefix: str | None = Field(default=None, min_length=1)


class _Document(StrictModel):
    fault_tolerance: FaultTolerance = FaultTolerance()


_SECONDS: dict[str, Any] = {"metavar": "SECONDS", "type": float}
_YES_OR_NO: dict[str, Any] = {"action": BooleanOptionalAction}
_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "--ft-config": {
        "metavar": "FILE",
        "help": "YAML file with a fault_tolerance: block.",
    },
    "--ft-attrsvc-url": {
        "metavar": "URL",
        "help": "Ask this attribution service (aorta attrsvc).",
    },
    "--ft-attribution-enable-mcp": {
        **_YES_OR_NO,
        "help": "Ask what `aorta mcp` would answer, in this process.",
    },
    "--ft-attribution-mcp-server": {
        "metavar": "URL|COMMAND",
        "help": "Ask this MCP server: its address, or a command that the leader starts.",
    },
    "--ft-attribution-http-url": {
        "metavar": "URL",
        "action": "append",
        "help": "Ask this HTTP attribution backend too; repeatable.",
    },
    "--ft-attribution-timeout": {
        **_SECONDS,
        "help": "How long any one source may take (60).",
    },
    "--ft-attribution-decision-timeout": {
        **_SECONDS,
        "help": "How long the leader waits for the verdict before it restarts (10).",
    },
    "--ft-attribution-dry-run": {
        **_YES_OR_NO,
        "help": "Decide and log, but never stop the job.",
    },
    "--ft-attribution-late-stop": {
        **_YES_OR_NO,
        "help": "Obey a STOP that comes after the job was restarted, while the next cycle runs.",
    },
    "--ft-attribution-aggregation": {
        "choices": ["any", "all"],
        "help": "any: one STOP stops the job. all: every source that has an opinion must say "
        "STOP, and at "
        "least one must. A source that is unreachable, late or says UNKNOWN has no opinion.",
    },
    "--ft-hang-timeout": {
        **_SECONDS,
        "help": "No output and no heartbeat for this long is a hang: stacks and Flight Recorder "
        "are "
        "collected, then the cycle ends (off).",
    },
    "--ft-max-no-progress-cycles": {
        "metavar": "N",
        "type": int,
        "help": "End the job after N cycles in a row without progress (3; 0: never).",
    },
    "--ft-merged-log": {
        **_YES_OR_NO,
        "help": "Also write one log per node and cycle with every line prefixed by its rank.",
    },
    "--ft-per-cycle-applog-prefix": {
        "metavar": "PATH",
        "help": "Also write <PATH>_cycle<N>.log, with every line prefixed by its rank.",
    },
}
_WITHOUT_OLD = "1.0"  # the release that no longer knows the flags below
_OLD_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "--ft-attribution-endpoint": {
        "metavar": "URL",
        "help": f"Until aorta {_WITHOUT_OLD}: use --ft-attrsvc-url.",
    },
    "--ft-attribution-backend": {
        "metavar": "URL|mcp",
        "action": "append",
        "help": f"Until aorta {_WITHOUT_OLD}: use --ft-attribution-http-url or "
        "--ft-attribution-enable-mcp.",
    },
}


def add_flags(parser: ArgumentParser) -> None:
    """Every flag of ours and of ft_launcher's, in all their spellings.

    All default to None: only what was given may override the file.
    """
    for title, flags in (
        ("fault tolerance", _FLAGS),
        ("ft_launcher's own", ft_launcher.FLAGS),
        ("deprecated", _OLD_FLAGS),
    ):
        group = parser.add_argument_group(title)
        for name, how in flags.items():
            *shown, mixed = ft_launcher.spellings(name)
            group.add_argument(*shown, default=None, **how)
            if mixed not in shown:  # not said in --help
                parser.add_argument(mixed, default=None, **{**how, "help": SUPPRESS})
    ft_launcher.add_what_is_not_here(parser)


def fault_tolerance(flags: Namespace) -> FaultTolerance:
    """The settings of one run, from the file and the flags."""
    flags = _without_old_spellings(ft_launcher.without_its_spellings(flags))
    file = flags.ft_config
    content = _read(Path(file)) if file else {}
    if file and flags.ft_cfg_path:
        content = ft_launcher.meant_block(content, FaultTolerance.model_fields, file)
    content = ft_launcher.in_our_words(content, file)
    written = validated(_Document, content, file=file or "--ft-config").fault_tolerance
    if flags.ft_launcher_defaults and "dry_run" not in written.attribution.model_fields_set:
        written = _never_stopping(written)
    given = {
        "attribution": {
            "attrsvc_url": flags.ft_attrsvc_url,
            "enable_mcp": flags.ft_attribution_enable_mcp,
            "mcp_server": flags.ft_attribution_mcp_server,
            "http_urls": flags.ft_attribution_http_url,
            "timeout_seconds": flags.ft_attribution_timeout,
            "decision_timeout_seconds": flags.ft_attribution_decision_timeout,
            "dry_run": flags.ft_attribution_dry_run,
            "late_stop": flags.ft_attribution_late_stop,
            "aggregation": flags.ft_attribution_aggregation,
        },
        "hang_timeout_seconds": flags.ft_hang_timeout,
        "max_no_progress_cycles": flags.ft_max_no_progress_cycles,
        "merged_log": flags.ft_merged_log,
        "per_cycle_applog_prefix": flags.ft_per_cycle_applog_prefix,
    }
    merged = _overridden(written.model_dump(), given)
    return validated(FaultTolerance, merged, file="command line", at="fault_tolerance")


def _never_stopping(settings: FaultTolerance) -> FaultTolerance:
    """ft_launcher logs a STOP unless its stop action is `no-restart`."""
    logs_only = settings.attribution.model_copy(update={"dry_run": True})
    return settings.model_copy(update={"attribution": logs_only})


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
    endpoint = flags.ft_attribution_endpoint
    old_to_new = (
        (
            "--ft-attribution-endpoint",
            "ft_attrsvc_url",
            None if endpoint is None else ft_launcher.endpoint(endpoint),
        ),
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
        what = f"{old} is deprecated and goes with aorta {_WITHOUT_OLD}; use {new}"
        warnings.warn(what, DeprecationWarning, stacklevel=3)
        if folded[key] is not None:
            raise UsageError(f"{old} is the old spelling of {new}; give only {new}")
        folded[key] = value
    return Namespace(**folded)


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        shown = without_credentials(url)
        raise UsageError(f"{shown!r} is not an HTTP address; expected http://HOST:PORT")
    return url.rstrip("/")
