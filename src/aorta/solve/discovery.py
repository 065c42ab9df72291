"""What may shrink, found without being told: what the command line, its scripts and one run of it give away."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aorta.core.documents import dump_yaml
from aorta.core.trial import LOCAL
from aorta.engine.rundir import write_atomically
from aorta.reduce.proposals import proposal_for
from aorta.solve.state import State
from aorta.solve.subject import Command, Subject

SPEC, PLAIN_SPEC = "aorta.yaml", "aorta.plain.yaml"


def draft(
    state: State, subject: Subject, oracle: Mapping[str, Any], *, plain: bool = False
) -> Path:
    """The reduction spec of this failure: the one that was given, or one with every axis that could be found.

    `plain`: only with what the command line itself says, for a command that is another one with anything else.
    """
    if subject.spec is not None:
        return subject.spec
    place = state.path / (PLAIN_SPEC if plain else SPEC)
    if place.is_file():
        return place
    words = _words(subject.command)
    document: dict[str, Any]
    if words is None:
        document = {"workload": {"command": subject.command}, "axes": []}
    else:
        opened = [] if plain else state.known("reproduce").get("opened", [])
        proposal = proposal_for(words, subject.cwd, opened, defaults=not plain)
        axes = [dict(axis) for axis in proposal.axes]
        document = {"workload": {"command": proposal.command}, "axes": axes}
    if subject.environment != LOCAL.name:
        document["environment"] = subject.environment
    document["workload"]["cwd"] = os.path.relpath(subject.cwd, state.path)
    if state.request.timeout is not None:
        document["workload"]["timeout"] = state.request.timeout
    document["oracle"] = dict(oracle)
    if state.request.ticket:
        document["ticket"] = state.request.ticket
    write_atomically(place, _HEADER + dump_yaml(document))
    return place


def _words(command: Command) -> list[str] | None:
    """The words of a command; None of a text that only a shell understands."""
    if not isinstance(command, str):
        return command
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    return None if set(command) & set("$`;|&<>()*?~\n") else words


_HEADER = """\
# What aorta solve found that may shrink, and what counts as the failure. By hand:
#   aorta reduce --spec THIS_FILE --output reduce/MY-TICKET
"""
