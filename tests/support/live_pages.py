"""The live view as a browser reads it: one picture of the page after another."""

import json
import time
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
    told = {"number": 0, "ended": False}
    while not told["ended"]:
        place = f"{page}news?{token}&seen={told['number']}"
        with urllib.request.urlopen(place, timeout=patience()) as answer:
            told = json.load(answer)
        if "fragment" in told:
            yield Picture(str(told["state"]), str(told["fragment"]))
        time.sleep(0.1)
