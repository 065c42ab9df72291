"""Which files of each verb's run directory ship, and what the site's `--policy FILE` changes."""

import tomllib
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


_TABLES = tomllib.loads(Path(__file__).with_name("layouts.toml").read_text("utf-8"))["layout"]
LAYOUTS = [
    Layout(table.pop("verb"), **{key: names.split() for key, names in table.items()})
    for table in _TABLES
]


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
