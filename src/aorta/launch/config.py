"""The fault-tolerance settings: one YAML block, one flag per key of it.

Flags override YAML; a flag that was not given overrides nothing. Old spellings, and those of
NVIDIA's ft_launcher that mean the same, fold into the new ones; its other flags are named in a
warning. Nothing here needs torch.
"""

import logging
import warnings
from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Collection, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, get_args, get_origin
from urllib.parse import urlsplit

import yaml
from pydantic import Field, field_validator
from pydantic.fields import FieldInfo

from aorta.core.documents import StrictModel, validated
from aorta.core.errors import InfrastructureError, SpecError, UsageError
from aorta.runtimes.http_get import without_credentials

log = logging.getLogger(__name__)

OLDEST, NEWEST = (2, 4), (2, 15)  # of torch; `make test-torch` runs both and some between
Aggregation = Literal["any", "all"]
USAGE = "aorta launch [torchrun's options] [--ft-...] script.py [arguments]"
DESCRIPTION = (
    "Runs a training script as torchrun does, and asks attribution whether to restart it when it "
    "fails. Exit codes: 0 done, 1 the job failed, 2 wrong command line, 5 a node or the rendezvous "
    "store was lost, 93 attribution decided STOP, 130/143 interrupted."
)


class AttributionConfig(StrictModel):
    """Whom to ask. With no source given, attribution runs in process on the leader."""

    attrsvc_url: str | None = Field(
        default=None, title="URL", description="Ask this attribution service (aorta attrsvc)."
    )
    enable_mcp: bool = Field(
        default=False, description="Ask what `aorta mcp` would answer, in this process."
    )
    http_urls: list[str] = Field(
        default=[], title="URL", description="Ask this HTTP attribution backend too; repeatable."
    )
    timeout_seconds: float = Field(
        default=60.0, gt=0, title="SECONDS", description="How long any one source may take (60)."
    )
    decision_timeout_seconds: float = Field(
        default=10.0,
        gt=0,
        title="SECONDS",
        description="How long the leader waits for the verdict before it restarts (10).",
    )
    dry_run: bool = Field(default=False, description="Decide and log, but never stop the job.")
    late_stop: bool = Field(
        default=False,
        description="Obey a STOP that comes after the restart, while the next cycle runs.",
    )
    aggregation: Aggregation = Field(
        default="any",
        description="any: one STOP stops the job. all: every source that has an opinion must say "
        "STOP, and at least one must. A source that is unreachable, late or says UNKNOWN has no "
        "opinion.",
    )

    @field_validator("attrsvc_url", "http_urls")
    @classmethod
    def _checked(cls, value: str | list[str] | None) -> str | list[str] | None:
        if isinstance(value, list):
            return list(map(_checked_url, value))
        return None if value is None else _checked_url(value)


class FaultTolerance(StrictModel):
    """The `fault_tolerance:` block. Of each key `title` is what --help calls its value."""

    attribution: AttributionConfig = AttributionConfig()
    hang_timeout_seconds: float | None = Field(
        default=None,
        gt=0,
        title="SECONDS",
        description="No output and no heartbeat for this long is a hang: stacks and Flight "
        "Recorder are collected, then the cycle ends (off).",
    )
    max_no_progress_cycles: int = Field(
        default=3,
        ge=0,
        title="N",
        description="End the job after N cycles in a row without progress (3; 0: never).",
    )


class _Document(StrictModel):
    fault_tolerance: FaultTolerance = FaultTolerance()


_WITHOUT_OLD = "1.0"  # the release that no longer knows the flags below
_OLD_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "--ft-attribution-endpoint": {"metavar": "URL"},
    "--ft-attribution-backend": {"metavar": "URL|mcp", "action": "append"},
    "--ft-rank-heartbeat-timeout": {"metavar": "SECONDS", "type": float},
    "--ft-attribution-stop-action": {"choices": ["log", "no-restart"]},
}
# Flags of ft_launcher; each takes a value, and nothing stands for it here.
_NOT_HERE = Path(__file__).with_name("ft_launcher.txt").read_text("utf-8").split()
_READ_AS: Mapping[str, str] = {  # keys of ft_launcher's file
    "rank_heartbeat_timeout": "hang_timeout_seconds",
    "attribution_endpoint": "attribution.attrsvc_url",
    "attribution_stop_action": "attribution.dry_run",
    "attribution_dry_run": "attribution.dry_run",
    "attribution_timeout_seconds": "attribution.timeout_seconds",
}
# The first word of a command line that began with `ft_launcher`, and what differs from torchrun.
NAMED_FT_LAUNCHER = "--ft-launcher-defaults"
FT_LAUNCHER_DEFAULTS: Mapping[str, Any] = {"rdzv_backend": "c10d", "monitor_interval": 0.3}


def _flags() -> Iterator[tuple[str, str, FieldInfo]]:
    """Each flag of ours, the key of the block that it sets, and what that key takes."""
    for prefix, model in (("", FaultTolerance), ("attribution.", AttributionConfig)):
        for name, field in model.model_fields.items():
            key = f"{prefix}{name}"
            words = "attrsvc_url" if name == "attrsvc_url" else key.replace(".", "_")
            words = words.removesuffix("_seconds").replace("urls", "url").replace("_", "-")
            if name != "attribution":
                yield f"--ft-{words}", key, field


def _how(field: FieldInfo) -> dict[str, Any]:
    """How argparse reads a value of this field."""
    if field.annotation is bool:
        return {"action": BooleanOptionalAction}
    if get_origin(field.annotation) is Literal:
        return {"choices": get_args(field.annotation)}
    if isinstance(field.default, list):
        return {"metavar": field.title, "action": "append"}
    kinds: dict[str | None, type] = {"SECONDS": float, "N": int}
    return {"metavar": field.title, "type": kinds.get(field.title, str)}


def add_flags(parser: ArgumentParser) -> None:
    """Every flag, as `--ft-x-y` and `--ft_x_y`. None overrides nothing of the file."""
    ours, old = map(parser.add_argument_group, ("fault tolerance", "deprecated"))
    file = "YAML file with a fault_tolerance: block."
    ours.add_argument("--ft-config", "--ft_config", "--ft-cfg-path", metavar="FILE", help=file)
    for flag, _, field in _flags():
        ours.add_argument(*_spellings(flag), default=None, help=field.description, **_how(field))
    for flag, how in _OLD_FLAGS.items():
        text = f"Until aorta {_WITHOUT_OLD}; a warning names the new one."
        old.add_argument(*_spellings(flag), default=None, help=text, **how)
    for name in _NOT_HERE:
        parser.add_argument(*_spellings(f"--ft-{name}"), help=SUPPRESS)
    for flag in ("--ft-ignore-missing-cfg", NAMED_FT_LAUNCHER):
        parser.add_argument(flag, action="store_true", help=SUPPRESS)


def _spellings(flag: str) -> tuple[str, str]:
    return flag, f"--{flag[2:].replace('-', '_')}"


def fault_tolerance(flags: Namespace) -> FaultTolerance:
    """The settings of one run, from the file and the flags."""
    written = FaultTolerance()
    if file := flags.ft_config:
        content = _in_our_words(_read(Path(file)), file)
        written = validated(_Document, content, file=file).fault_tolerance
    merged = written.model_dump()
    if flags.ft_launcher_defaults and "dry_run" not in written.attribution.model_fields_set:
        merged["attribution"]["dry_run"] = True  # it logs a STOP unless it is set to act
    given = {key: getattr(flags, flag[2:].replace("-", "_")) for flag, key, _ in _flags()}
    ours = {key: value for key, value in given.items() if value is not None}
    for name in _NOT_HERE:
        if getattr(flags, f"ft_{name.replace('-', '_')}") is not None:
            log.warning("--ft-%s is ft_launcher's; it has no counterpart here", name)
    for key, value in {**_from_old_flags(flags, ours), **ours}.items():
        block, _, name = key.rpartition(".")
        (merged[block] if block else merged)[name] = value
    return validated(FaultTolerance, merged, file="command line", at="fault_tolerance")


def _in_our_words(content: object, file: str) -> object:
    """The content of a file with ft_launcher's keys read as ours, or left out with a warning."""
    block = content.get("fault_tolerance") if isinstance(content, dict) else None
    if not isinstance(block, dict):
        return content
    for name in [*block]:
        ours = _READ_AS.get(name)
        if ours is None and name.replace("_", "-") not in _NOT_HERE:
            continue
        said = f"it is read as {ours}" if ours else "it has no counterpart here"
        log.warning("%s: %s is ft_launcher's; %s", file, name, said)
        value = block.pop(name)
        if name == "attribution_stop_action":
            value = value == "log"
        if name == "attribution_endpoint":
            value = _endpoint(value)
        if ours and value is not None:
            outer, _, key = ours.rpartition(".")
            (block.setdefault(outer, {}) if outer else block).setdefault(key, value)
    return content


def _endpoint(given: str | None) -> str | None:
    """None, with a warning, for what only ft_launcher reaches."""
    if given != "localhost" and not str(given).startswith(("unix://", "grpc://")):
        return given
    said = "the attribution endpoint %s is ft_launcher's: here attribution runs in this process"
    log.warning(said, given)
    return None


def _from_old_flags(flags: Namespace, ours: Collection[str]) -> dict[str, Any]:
    """What deprecated flags set, by key; each is named in a warning."""
    url, backends = _endpoint(flags.ft_attribution_endpoint), flags.ft_attribution_backend or []
    urls = [backend for backend in backends if backend != "mcp"] or None
    mcp = True if "mcp" in backends else None
    action, hang = flags.ft_attribution_stop_action, flags.ft_rank_heartbeat_timeout
    logs_alone = action and action == "log"
    found: dict[str, Any] = {}
    for old, new, key, value in (
        ("endpoint", "--ft-attrsvc-url", "attribution.attrsvc_url", url),
        ("backend URL", "--ft-attribution-http-url", "attribution.http_urls", urls),
        ("backend mcp", "--ft-attribution-enable-mcp", "attribution.enable_mcp", mcp),
        ("stop-action", "--ft-attribution-dry-run", "attribution.dry_run", logs_alone),
        ("rank-heartbeat-timeout", "--ft-hang-timeout", "hang_timeout_seconds", hang),
    ):
        flag = f"--ft-{'attribution-' if key.startswith('attribution') else ''}{old}"
        if value is not None:
            what = f"{flag} is deprecated and goes with aorta {_WITHOUT_OLD}; use {new}"
            warnings.warn(what, DeprecationWarning, stacklevel=3)
            if key in ours:
                raise UsageError(f"{flag} is the old spelling of {new}; give only {new}")
            found[key] = value
    return found


def _read(file: Path) -> object:
    try:
        return yaml.safe_load(file.read_text()) or {}
    except OSError as wrong:
        raise SpecError(f"cannot be read: {wrong.strerror}", where=str(file)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as wrong:
        raise SpecError(f"is not YAML: {wrong}", where=str(file)) from None


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        shown = without_credentials(url)
        raise UsageError(f"{shown!r} is not an HTTP address; expected http://HOST:PORT")
    return url.rstrip("/")


def demand_known_torch() -> None:
    """Before torch is imported: too old is refused in a sentence, too new is only named."""
    try:
        installed = version("torch")
    except PackageNotFoundError:
        return  # its import says what is missing
    major, minor, *_ = installed.split("+", maxsplit=1)[0].split(".")
    release = int(major), int(minor)
    if release < OLDEST:
        raise InfrastructureError(
            f"aorta launch works with torch {OLDEST[0]}.{OLDEST[1]} and newer, and torch "
            f"{installed} is installed"
        )
    if release > NEWEST:
        newest = "torch %s is newer than %d.%d, the newest that was tried with it; going on"
        log.warning(newest, installed, *NEWEST)
