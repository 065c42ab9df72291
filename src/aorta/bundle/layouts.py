"""Which files of each verb's run directory ship, and what the site's `--policy FILE` changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import Field

from aorta.core.documents import StrictModel, validated
from aorta.engine.rundir import RunDir
from aorta.executors.evidence import json_object
from aorta.registry.documents import load_document
from aorta.scrub.files import is_program
from aorta.scrub.vocabulary import words


class Policy(StrictModel):
    """In globs, `*` also crosses folders: `logs/*` is everything below `logs`."""

    scrub: list[str] = Field(default_factory=list)  # patterns to take out, besides what is detected
    keep: list[str] = Field(default_factory=list)  # values that look private and may leave
    include: list[str] = Field(default_factory=list)  # files besides the usual ones
    exclude: list[str] = Field(default_factory=list)  # files to leave out


def read_policy(path: Path | None) -> Policy:
    return Policy() if path is None else validated(Policy, load_document(path), file=str(path))


def matches(path: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(path, glob) for glob in globs)


_TEXT_ENDINGS = words(
    ".json .jsonl .yaml .yml .txt .log .md .html .out .err .csv .tsv .sh .py .toml .cfg .ini"
)
_LOG_ENDINGS = words(".log .out .err")
LOGS_ONLY = "logs only: the program that failed is not in it; it can be read, and not run elsewhere"
_EVERYWHERE = ("SHIP.md", "README.md", "report.html", "report.md", "result.json")


@dataclass(frozen=True)
class Layout:
    """`files` ship whatever they hold; below `trees` only files that are text by their name do."""

    verb: str
    documents: Sequence[str] = ("result.json",)  # one gives this verb away by its schema
    schemas: Sequence[str] = ()  # besides the one that is named after the verb
    files: Sequence[str] = ()
    trees: Sequence[str] = ()
    # Documents whose fields we know; everything else is somebody's text.
    ours: Sequence[str] = ("result.json",)

    def wrote(self, document: Mapping[str, Any]) -> bool:
        schema = str(document.get("schema", ""))
        return schema.startswith((f"aorta.{self.verb}/", *self.schemas))

    def ships(self, path: str, policy: Policy, *, allow_binary: bool = False) -> bool:
        if matches(path, policy.exclude):
            return False
        if matches(path, (*policy.include, *_EVERYWHERE, *self.files)):
            return True
        is_text = PurePosixPath(path).suffix.lower() in _TEXT_ENDINGS
        return matches(path, self.trees) and (is_text or (allow_binary and is_program(path)))


def is_log(path: str) -> bool:
    return PurePosixPath(path).suffix.lower() in _LOG_ENDINGS and not is_program(path)


_names = str.split
_CASE_FILES = ("finding.json", "cycle_info.json", "env.json", "aorta.yaml", "elsewhere.yaml")

LAYOUTS: tuple[Layout, ...] = (
    Layout(
        verb="solve",
        documents=_names("solve.json"),
        files=_names("solve.json summary.md aorta.yaml */result.json */shrunken/*"),
        ours=_names("solve.json aorta.yaml */result.json"),
    ),
    Layout(
        verb="reduce",
        files=_names("spec.yaml reduction_trace.jsonl shrunken/*"),
        trees=_names("logs/*"),
        ours=_names(
            "result.json spec.yaml reduction_trace.jsonl shrunken/env.json shrunken/aorta.yaml "
            "shrunken/recipe.resolved.yaml"
        ),
    ),
    Layout(
        verb="triage",
        documents=_names("matrix.json optimize.json"),
        schemas=_names("aorta.matrix/ aorta.optimize/"),
        files=_names(
            "matrix.md matrix.json optimize.md optimize.json recipe.resolved.yaml host_env.json "
            "environments/*/env.json sidecars/*"
        ),
        trees=_names("cells/* points/* trials/*"),
        ours=_names(
            "matrix.json optimize.json recipe.resolved.yaml *env.json cells/*/trial_*.json "
            "points/*/trial_*.json"
        ),
    ),
    Layout(
        verb="bisect",
        files=_names(
            "timeline.json info.log debug.log first-known-bad last-known-good bisect.yaml spec.yaml"
        ),
        trees=_names("probes/* stages/* first-known-bad/* last-known-good/* logs/*"),
        ours=_names("result.json timeline.json bisect.yaml spec.yaml stages/*/result.json"),
    ),
    Layout(verb="diverge"),
    Layout(verb="isolate", trees=_names("trials/*")),
    Layout(
        verb="launch",
        documents=_names("cycle_info.json case/cycle_info.json cycle_*/cycle_info.json"),
        schemas=_names("aorta.cycle/"),
        files=(
            *(f"{folder}{name}" for folder in ("", "case/") for name in _CASE_FILES),
            "cycle_*/cycle_info.json",
        ),
        trees=_names("case/logs/* case/workload/* workload/* cycle_*/* logs/* rank_*"),
        ours=_names("*cycle_info.json *finding.json *env.json *aorta.yaml *elsewhere.yaml"),
    ),
    Layout(
        verb="run",
        files=_names("env.json host_env.json"),
        trees=_names("*"),
        ours=_names("result.json trial_*.json env.json host_env.json"),
    ),
)


def layout_of(root: Path) -> tuple[Layout, dict[str, Any]] | None:
    """Which verb wrote this directory, and the document that gives it away."""
    said = str(RunDir(root).about().get("verb", "")).split()[:1]
    for layout in LAYOUTS:
        for path in (path for name in layout.documents for path in sorted(root.glob(name))):
            document = json_object(path) or {}  # packing says what is wrong with it
            if said == [layout.verb] or layout.wrote(document):
                return layout, document
        if said == [layout.verb]:
            return layout, {}
    return None
