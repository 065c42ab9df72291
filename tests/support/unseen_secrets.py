"""A third to a seventh corpus: whole pieces of files and logs as people write them, each
with its own secret.

Each was written down before who wrote it had read a detector. The fourth is in the files
`further_*`; the fifth, which a program printed into its log, in `printed_*`; the sixth, of the
kinds of keys and places that gitleaks, trufflehog and detect-secrets test, in `sixth_*`; the
seventh, whose values are written out, in `seventh.yaml`. In the other files of tests/scrub/unseen a
piece begins with `## name file`; what stands between « and » must not ship. Drawn parts are those
of `strange_secrets`; `{basic}` is the login of HTTP basic authentication and `␛` the escape
character. The first look is kept in benchmarks/results/blind_secrets.txt.
"""

import base64
import random
import re
from pathlib import Path
from typing import Any

import yaml

from support.strange_secrets import Strange, drawn

CORPUS = Path(__file__).parents[1] / "scrub" / "unseen"
_PIECE = re.compile(r"^## (\S+) (\S+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_MARKED = re.compile("«(.*?)»", re.DOTALL)


def unseen_secrets() -> list[Strange]:
    return _secrets(("keys_by_shape.txt", True), ("secrets_by_name.txt", False))


def further_secrets() -> list[Strange]:
    return _secrets(("further_secrets_by_name.txt", False))


def printed_secrets() -> list[Strange]:
    return _secrets(("printed_keys_by_shape.txt", True), ("printed_secrets_by_name.txt", False))


def sixth_secrets() -> list[Strange]:
    return _secrets(("sixth_keys_by_shape.txt", True), ("sixth_secrets_by_name.txt", False))


def seventh_secrets() -> list[Strange]:
    return [
        Strange(
            f"{number} {piece['surroundings']}",
            f"{piece['surroundings'].replace(' ', '_')}.log",
            piece["text"],
            value,
            piece["kind"] == "known",
        )
        for number, piece in enumerate(_seventh()["pieces"])
        for value in piece["secrets"]
    ]


def seventh_ordinary_lines() -> list[str]:
    """Output of training and serving frameworks, schedulers, containers and package managers."""
    lines: list[str] = _seventh()["ordinary"]
    return lines


def _seventh() -> Any:
    return yaml.load((CORPUS / "seventh.yaml").read_text("utf-8"), yaml.CSafeLoader)


def _secrets(*files: tuple[str, bool]) -> list[Strange]:
    """One entry for each marked secret, with the whole piece as its text."""
    rng = random.Random(20241117)
    found: list[Strange] = []
    for file, by_shape in files:
        for name, where, body in _PIECE.findall((CORPUS / file).read_text()):
            login = base64.b64encode(drawn("deploy:{A14}", rng).encode()).decode()
            marked = drawn(body.replace("{basic}", login).replace("␛", "\x1b"), rng)
            text = _MARKED.sub(r"\1", marked)
            values = _MARKED.findall(marked)
            found += [Strange(name, where, text, value, by_shape) for value in values]
    return found


def ordinary_lines() -> list[str]:
    """Lines that name tokens, keys and hashes, and hold nothing that is private."""
    return (CORPUS / "ordinary_lines.txt").read_text().splitlines()


def further_ordinary_lines() -> list[str]:
    """Output of training frameworks, schedulers, builds and tests, with nothing private in it."""
    return (CORPUS / "further_ordinary_lines.txt").read_text().splitlines()


def printed_ordinary_lines() -> list[str]:
    """Output of torch, transformers, lightning, deepspeed, nccl, xla, ray and slurm."""
    return (CORPUS / "printed_ordinary_lines.txt").read_text().splitlines()


def sixth_ordinary_lines() -> list[str]:
    """Output of frameworks, schedulers, builds, package managers and tests."""
    return (CORPUS / "sixth_ordinary_lines.txt").read_text().splitlines()
