"""Every planted value, in every kind of file and behind every encoding, is gone."""

import base64
import html
import json
import re
from collections.abc import Callable
from urllib.parse import quote

import pytest
import yaml

from aorta.scrub.files import Account, FileScrubber
from aorta.scrub.findings import PLACEHOLDER, Kind
from aorta.scrub.scrubber import Scrubber
from support.planted import CORPUS

CARRIERS: dict[str, Callable[[str], str]] = {
    "train.log": lambda line: f"step 1 ok\n{line}\nstep 2 ok\n",
    "colour.log": lambda line: f"\x1b[31m{line}\x1b[0m\n",
    "SHIP.md": lambda line: f"# Ship\n\n- `{line}`\n",
    "run_repro.sh": lambda line: f"#!/bin/sh\n# {line}\n{line}\n",
    "report.html": lambda line: f"<pre>{html.escape(line)}</pre>\n",
    "result.json": lambda line: json.dumps({"tail": [{"text": line}]}, indent=2),
    "keys.json": lambda line: json.dumps({f"said {line}": 1}),
    "nested.json": lambda line: json.dumps(
        {"event": json.dumps({"inner": json.dumps({"m": line})})}
    ),
    "reduction_trace.jsonl": lambda line: f"{json.dumps({'i': 1})}\n{json.dumps({'log': line})}\n",
    "recipe.resolved.yaml": lambda line: yaml.safe_dump({"workload_config": {"command": line}}),
    "comment.yaml": lambda line: "".join(f"# {part}\n" for part in line.splitlines()) + "a: 1\n",
    "escaped.log": lambda line: f"body {json.dumps(line)} end\n",
    "url.log": lambda line: f"GET /x?line={quote(line, safe='')} 200\n",
    "base64.log": lambda line: f"blob {base64.b64encode(line.encode()).decode()} end\n",
    "hex.log": lambda line: f"blob {line.encode().hex()} end\n",
    "theirs.json": lambda line: json.dumps({"tail": [{"text": line}]}, indent=2),
}
STANDS_IN = re.compile(rf"{PLACEHOLDER.pattern}|(?:{'|'.join(Kind)})_[1-9]")
OURS = ("result.json", "keys.json", "reduction_trace.jsonl", "recipe.resolved.yaml")


def scrubbed(name: str, text: str) -> bytes:
    data = text.encode()
    files = FileScrubber(Scrubber())
    ours = name in OURS
    files.learn(name, [data], ours=ours)
    return b"".join(files.scrub(name, [data], Account(), ours=ours))


def traces(value: str) -> list[str]:
    """The value as it is, and as each encoding would leave it readable."""
    encoded = value.encode()
    return [
        value,
        json.dumps(value)[1:-1],
        quote(value, safe=""),
        html.escape(value),
        encoded.hex(),
        base64.b64encode(encoded).decode().rstrip("=")[:-1],
    ]


def test_the_corpus_is_large_and_every_name_is_its_own() -> None:
    assert len(CORPUS) >= 90
    assert len({planted.name for planted in CORPUS}) == len(CORPUS)


@pytest.mark.parametrize("carrier", CARRIERS)
def test_no_planted_value_survives_in_any_kind_of_file(carrier: str) -> None:
    for planted in CORPUS:
        after = scrubbed(carrier, CARRIERS[carrier](planted.line))
        text = after.decode()
        left = [trace for trace in traces(planted.value) if trace in text]
        assert not left, (planted.name, text)
        assert STANDS_IN.search(text), (
            f"{planted.name} was planted, so something must stand in for it"
        )


def test_a_value_announced_in_one_file_is_gone_from_another_where_it_stands_alone() -> None:
    relative = {"path with a space", "intranet page", "clone address", "bucket", "unc path"}
    for planted in CORPUS:
        files = FileScrubber(Scrubber())
        files.learn("a.log", [planted.line.encode()], ours=False)
        alone = f"and then ({planted.value}) again\n"
        after = b"".join(files.scrub("b.log", [alone.encode()], Account(), ours=False)).decode()
        assert planted.name in relative or planted.value not in after, planted.name


def test_the_placeholder_says_what_kind_of_thing_was_there() -> None:
    for planted in CORPUS:
        scrubber = Scrubber()
        scrubber.learn(planted.line)
        after = scrubber.text(planted.line)
        assert planted.kind in {span.kind for span in after.taken}, planted.name


def test_the_words_around_a_planted_value_stay() -> None:
    for planted in CORPUS:
        scrubber = Scrubber()
        text = f"first line stays\n{planted.line}\nlast line stays\n"
        scrubber.learn(text)
        after = scrubber.text(text).text
        assert after.startswith("first line stays\n"), planted.name
        assert after.endswith("\nlast line stays\n"), planted.name
