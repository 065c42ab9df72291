"""The live view as a browser reads it: server-sent events, one picture of the page after
another.
"""

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

from support.waiting import patience


@dataclass(frozen=True)
class Picture:
    """The page at one moment."""

    state: str
    html: str


def pictures(address: str) -> Iterator[Picture]:
    """Every picture from now on, until the server says that it was the last."""
    page, _, token = address.partition("?")
    with urllib.request.urlopen(f"{page}events?{token}", timeout=patience()) as stream:
        kind = ""
        for line in stream:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                kind = value
            elif name == "data" and kind == "page":
                told = json.loads(value)
                yield Picture(told["state"], told["fragment"])
            elif name == "data" and kind == "bye":
                return
