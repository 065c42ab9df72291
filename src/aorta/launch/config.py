"""The fault-tolerance settings: one YAML block, one flag per key of it.

Flags override YAML; a flag that was not given overrides nothing. Old spellings, and those of
NVIDIA's ft_launcher, fold into the new ones (`ft_launcher.py`) and are unknown everywhere else.
Nothing here needs torch.
"""

import logging
import warnings
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
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
from aorta.launch import ft_launcher
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
        description="Obey a STOP that comes after the job was restarted, while the next cycle "
        "runs.",
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
    per_cycle_applog_prefix: str | None = Field(
        default=None,
        min_length=1,
        title="PATH",
        description="Also write <PATH>_cycle<N>.log, with every line prefixed by its rank.",
    )


class _Document(StrictModel):
    fault_tolerance: FaultTolerance = FaultTolerance()


_WITHOUT_OLD = "1.0"  # the release that no longer knows the flags below
_OLD_FLAGS: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "--ft-attribution-endpoint": ({"metavar": "URL"}, "--ft-attrsvc-url"),
    "--ft-attribution-backend": (
        {"metavar": "URL|mcp", "action": "append"},
        "--ft-attribution-http-url or --ft-attribution-enable-mcp",
    ),
}


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
    """Every flag of ours and of ft_launcher's, in all their spellings.

    All default to None: only what was given may override the file.
    """
    group = parser.add_argument_group("fault tolerance")
    ft_launcher.add_flag(
        group, "--ft-config", {"metavar": "FILE"}, "YAML file with a fault_tolerance: block."
    )
    for flag, _, field in _flags():
        ft_launcher.add_flag(group, flag, _how(field), field.description)
    ft_launcher.add_flags(parser)
    deprecated = parser.add_argument_group("deprecated")
    for flag, (how, instead) in _OLD_FLAGS.items():
        ft_launcher.add_flag(deprecated, flag, how, f"Until aorta {_WITHOUT_OLD}: use {instead}.")


def fault_tolerance(flags: Namespace) -> FaultTolerance:
    """The settings of one run, from the file and the flags."""
    if flags.ft_cfg_path is not None and flags.ft_config is not None:
        raise UsageError("--ft-cfg-path is another name for --ft-config; give only one")
    file = flags.ft_config or flags.ft_cfg_path
    written = FaultTolerance()
    if file:
        known = FaultTolerance.model_fields if flags.ft_cfg_path else None
        content = ft_launcher.file_in_our_words(_read(Path(file)), file, known)
        written = validated(_Document, content, file=file).fault_tolerance
    merged = written.model_dump()
    if flags.ft_launcher_defaults and "dry_run" not in written.attribution.model_fields_set:
        merged["attribution"]["dry_run"] = True  # it logs a STOP unless it is set to act
    given = {key: getattr(flags, flag[2:].replace("-", "_")) for flag, key, _ in _flags()}
    ours = {key: value for key, value in given.items() if value is not None}
    theirs = ft_launcher.flags_in_our_words(flags)
    for key, value in {**theirs, **_from_old_flags(flags, ours), **ours}.items():
        block, _, name = key.rpartition(".")
        (merged[block] if block else merged)[name] = value
    return validated(FaultTolerance, merged, file="command line", at="fault_tolerance")


def _from_old_flags(flags: Namespace, ours: Collection[str]) -> dict[str, Any]:
    """What our deprecated flags set, by key; each is named in a warning."""
    endpoint, backends = flags.ft_attribution_endpoint, flags.ft_attribution_backend or []
    url = None if endpoint is None else ft_launcher.endpoint(endpoint)
    urls = [backend for backend in backends if backend != "mcp"]
    found: dict[str, Any] = {}
    mcp = "mcp" in backends
    for old, new, key, value in (
        ("--ft-attribution-endpoint", "--ft-attrsvc-url", "attrsvc_url", url),
        ("--ft-attribution-backend URL", "--ft-attribution-http-url", "http_urls", urls),
        ("--ft-attribution-backend mcp", "--ft-attribution-enable-mcp", "enable_mcp", mcp),
    ):
        if value:
            what = f"{old} is deprecated and goes with aorta {_WITHOUT_OLD}; use {new}"
            warnings.warn(what, DeprecationWarning, stacklevel=3)
            if f"attribution.{key}" in ours:
                raise UsageError(f"{old} is the old spelling of {new}; give only {new}")
            found[f"attribution.{key}"] = value
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
