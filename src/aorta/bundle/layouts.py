"""What each verb leaves in its run directory, and which part of it ships."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from aorta.bundle.policy import Policy, matches

_TEXT_ENDINGS = frozenset(
    {
        ".json",
        ".jsonl",
        ".yaml",
        ".yml",
        ".txt",
        ".log",
        ".md",
        ".html",
        ".out",
        ".err",
        ".csv",
        ".tsv",
        ".sh",
        ".py",
    }
)
_EVERYWHERE = ("SHIP.md", "README.md", "report.html", "report.md", "result.json")


@dataclass(frozen=True)
class Layout:
    """`files` ship whatever they hold; below `trees` only files that are text by their name do."""

    verb: str
    schema: str  # of the document that tells this verb's directories, when nothing else does
    documents: tuple[str, ...]  # where that document is
    files: tuple[str, ...]
    trees: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()  # what the other side should read first, in this order

    def ships(self, path: str, policy: Policy) -> bool:
        if matches(path, policy.exclude):
            return False
        if matches(path, policy.include) or matches(path, policy.binary):
            return True
        if matches(path, (*_EVERYWHERE, *self.files)):
            return True
        return matches(path, self.trees) and PurePosixPath(path).suffix.lower() in _TEXT_ENDINGS


_CASE_FILES = ("aorta.yaml", "spec.yaml", "case.json", "cycle_info.json", "env.json", "*.sh")

LAYOUTS: tuple[Layout, ...] = (
    Layout(
        "reduce",
        "aorta.reduce/",
        ("result.json",),
        ("spec.yaml", "reduction_trace.jsonl", "shrunken/*"),
        ("logs/*",),
        (
            "SHIP.md",
            "shrunken/run_repro.sh",
            "shrunken/recipe.resolved.yaml",
            "reduction_trace.jsonl",
        ),
    ),
    Layout(
        "triage",
        "aorta.triage/",
        ("matrix.json", "optimize.json"),
        (
            "matrix.md",
            "matrix.json",
            "optimize.md",
            "optimize.json",
            "recipe.resolved.yaml",
            "host_env.json",
            "inline_environments.sidecar.json",
            "environments/*/env.json",
            "sidecars/*",
        ),
        ("cells/*", "points/*"),
        ("matrix.md", "optimize.md", "recipe.resolved.yaml"),
    ),
    Layout(
        "bisect",
        "aorta.bisect/",
        ("result.json",),
        ("info.log", "debug.log", "first-known-bad", "last-known-good", "bisect.yaml", "spec.yaml"),
        ("probes/*", "first-known-bad/*", "last-known-good/*", "logs/*"),
        ("report.md", "result.json"),
    ),
    Layout(
        "launch",
        "aorta.cycle/",
        ("cycle_info.json", "case/cycle_info.json", "cycle_*/cycle_info.json"),
        ("case/*", *_CASE_FILES, "cycle_*/cycle_info.json"),
        ("cycle_*/*", "logs/*", "rank_*"),
        ("SHIP.md", "aorta.yaml", "case/aorta.yaml"),
    ),
    Layout(
        "run",
        "aorta.run/",
        ("result.json",),
        ("env.json", "host_env.json"),
        ("*",),
        ("result.json",),
    ),
)
