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
_URL: dict[str, Any] = {"metavar": "URL"}
# Flag -> the key of the fault_tolerance block, how it is parsed, and what --help says.
_FLAGS: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "--ft-config": ("", {"metavar": "FILE"}, "YAML file with a fault_tolerance: block."),
    "--ft-attrsvc-url": (
        *("attribution.attrsvc_url", _URL),
        "Ask this attribution service (aorta attrsvc).",
    ),
    "--ft-attribution-enable-mcp": (
        *("attribution.enable_mcp", _YES_OR_NO),
        "Ask what `aorta mcp` would answer, in this process.",
    ),
    "--ft-attribution-mcp-server": (
        *("attribution.mcp_server", {"metavar": "URL|COMMAND"}),
        "Ask this MCP server: its address, or a command that the leader starts.",
    ),
    "--ft-attribution-http-url": (
        *("attribution.http_urls", {**_URL, "action": "append"}),
        "Ask this HTTP attribution backend too; repeatable.",
    ),
    "--ft-attribution-timeout": (
        *("attribution.timeout_seconds", _SECONDS),
        "How long any one source may take (60).",
    ),
    "--ft-attribution-decision-timeout": (
        *("attribution.decision_timeout_seconds", _SECONDS),
        "How long the leader waits for the verdict before it restarts (10).",
    ),
    "--ft-attribution-dry-run": (
        *("attribution.dry_run", _YES_OR_NO),
        "Decide and log, but never stop the job.",
    ),
    "--ft-attribution-late-stop": (
        *("attribution.late_stop", _YES_OR_NO),
        "Obey a STOP that comes after the job was restarted, while the next cycle runs.",
    ),
    "--ft-attribution-aggregation": (
        *("attribution.aggregation", {"choices": ["any", "all"]}),
        (
            "any: one STOP stops the job. all: every source that has an opinion must say STOP, "
            "and at "
            "least one must. A source that is unreachable, late or says UNKNOWN has no opinion."
        ),
    ),
    "--ft-hang-timeout": (
        *("hang_timeout_seconds", _SECONDS),
        (
            "No output and no heartbeat for this long is a hang: stacks and Flight Recorder are "
            "collected, then the cycle ends (off)."
        ),
    ),
    "--ft-max-no-progress-cycles": (
        *("max_no_progress_cycles", {"metavar": "N", "type": int}),
        "End the job after N cycles in a row without progress (3; 0: never).",
    ),
    "--ft-merged-log": (
        *("merged_log", _YES_OR_NO),
        "Also write one log per node and cycle with every line prefixed by its rank.",
    ),
    "--ft-per-cycle-applog-prefix": (
        *("per_cycle_applog_prefix", {"metavar": "PATH"}),
        "Also write <PATH>_cycle<N>.log, with every line prefixed by its rank.",
    ),
}
_WITHOUT_OLD = "1.0"  # the release that no longer knows the flags below
_OLD_FLAGS: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "--ft-attribution-endpoint": (
        *("", _URL),
        f"Until aorta {_WITHOUT_OLD}: use --ft-attrsvc-url.",
    ),
    "--ft-attribution-backend": (
        *("", {"metavar": "URL|mcp", "action": "append"}),
        f"Until aorta {_WITHOUT_OLD}: --ft-attribution-http-url or --ft-attribution-enable-mcp.",
    ),
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
        for name, (_, how, told) in flags.items():
            *shown, mixed = ft_launcher.spellings(name)
            group.add_argument(*shown, default=None, help=told, **how)
            if mixed not in shown:  # not said in --help
                parser.add_argument(mixed, default=None, help=SUPPRESS, **how)
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
    merged = written.model_dump()
    for flag, (key, _, _) in _FLAGS.items():
        value = getattr(flags, flag.removeprefix("--").replace("-", "_"))
        if key and value is not None:
            block, _, name = key.rpartition(".")
            (merged[block] if block else merged)[name] = value
    return validated(FaultTolerance, merged, file="command line", at="fault_tolerance")


def _never_stopping(settings: FaultTolerance) -> FaultTolerance:
    """ft_launcher logs a STOP unless its stop action is `no-restart`."""
    logs_only = settings.attribution.model_copy(update={"dry_run": True})
    return settings.model_copy(update={"attribution": logs_only})


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
