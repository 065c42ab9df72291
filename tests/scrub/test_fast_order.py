"""Rules that look only where they can match find exactly what they would find by looking
everywhere.
"""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.scrub import addresses, encodings, known, paths, secrets
from aorta.scrub.findings import Hinted, Kind
from aorta.scrub.known import KnownValues
from support.planted import CORPUS

LINES = [line for planted in CORPUS for line in planted.line.splitlines()]
PIECES = [
    *("10.1.2.3", "1.2.3.4.5", "v10.1.2.3", "aa:bb:cc:dd:ee:ff", "aa-bb-cc-dd-ee-ff", "aabb.ccdd.eeff"),
    *("fe80::1", "::", "1:2:3:4:5:6:7:8", "05:35:08", "%2Fhome%2Fbob", "&quot;", "deadbeef" * 4, "A" * 70),
    *("STEP 1.0 ON node7", "bob@gpu-node7", "/home/bob/x", "C:\\Users\\bob", "s3://b/k", "@", "://"),
]  # fmt: skip
TEXT = st.lists(
    st.one_of(
        st.text(alphabet="0123456789abcdefF:.-/_=@%\\\"' \ngON&;+", max_size=30),
        st.sampled_from(PIECES),
        st.sampled_from(LINES),
        st.text(max_size=10),
    ),
    max_size=8,
).map("".join)
IN_LINE = [
    rule
    for module in (secrets, addresses, paths)
    for value in vars(module).values()
    for rule in (value if isinstance(value, tuple) else (value,))
    if isinstance(rule, Hinted) and rule.stays_in_line
]
PLAIN_MAC = re.compile(
    r"(?<![\w:\-])(?:[0-9A-Fa-f]{2}([:\-]))(?:[0-9A-Fa-f]{2}\1){4,18}[0-9A-Fa-f]{2}(?![\w:\-])"
    r"|(?<![\w.])[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}(?![\w.])"
)
PLAIN_IPV4 = re.compile(r"(?<![A-Za-z0-9.])(?:\d{1,3}\.){3}\d{1,3}(?![A-Za-z0-9]|\.\d)")


@given(TEXT)
@settings(max_examples=300, deadline=None)
def test_a_rule_of_one_line_misses_nothing_in_the_lines_it_passes_over(text: str) -> None:
    assert len(IN_LINE) >= 12
    for rule in IN_LINE:
        everywhere = [match.span() for match in rule.pattern.finditer(text)]
        assert [match.span() for match in rule.finditer(text)] == everywhere, rule


@given(TEXT)
@settings(max_examples=500, deadline=None)
def test_addresses_are_those_that_their_plain_patterns_find(text: str) -> None:
    found = list(addresses.addresses_in(text))
    macs = sorted((f.start, f.end) for f in found if f.kind is Kind.MAC)
    assert macs == [match.span() for match in PLAIN_MAC.finditer(text)]
    possible = {match.span() for match in PLAIN_IPV4.finditer(text)}
    assert {(f.start, f.end) for f in found if f.kind is Kind.IPV4} <= possible
    valid = {match.span() for match in addresses._IPV6.finditer(text)}
    assert {(f.start, f.end) for f in found if f.kind is Kind.IPV6} <= valid


@given(TEXT)
@settings(max_examples=300, deadline=None)
def test_everything_that_can_be_decoded_is_decoded(text: str) -> None:
    tokens = [
        token
        for token in encodings._TOKEN.finditer(text)
        if encodings._ESCAPE.search(token.group())
    ]
    plain = [(token.span(), encodings._unescaped(token.group())) for token in tokens]
    for pattern, decode in (
        (encodings._BASE64, encodings._from_base64),
        (encodings._WRAPPED, encodings._from_base64),
        (encodings._HEX, encodings._from_hex),
    ):
        plain += [
            (match.span(), said)
            for match in pattern.finditer(text)
            if (said := decode(match.group())) is not None
        ]
    assert sorted(((a, b), said) for a, b, said in encodings.unveiled(text)) == sorted(plain)


@given(
    st.lists(st.sampled_from([*LINES, *PIECES, "node-7", "Node-7.corp", "bob"]), max_size=6), TEXT
)
@settings(max_examples=300, deadline=None)
def test_the_index_of_known_values_finds_what_looking_for_each_finds(
    values: list[str], text: str
) -> None:
    remembered = KnownValues()
    for number, value in enumerate(values):
        remembered.add(list(Kind)[number % len(Kind)], value)
    one_by_one = set(remembered._searched_one_by_one(text))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known, "_WORTH_AN_INDEX", 0)
        assert set(remembered.found_in(text)) == one_by_one
