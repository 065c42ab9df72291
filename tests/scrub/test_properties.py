"""What holds for any text: scrubbing is final, exact, consistent, and never lets go of a planted
value.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.scrub import addresses, logins, paths
from aorta.scrub.addresses import machines_in
from aorta.scrub.files import Account, FileScrubber, learn_document, scrub_document
from aorta.scrub.findings import PLACEHOLDER, Rule, Text, without_overlap
from aorta.scrub.known import decoded
from aorta.scrub.paths import paths_in, users_in
from aorta.scrub.scrubber import Rules, Scrubber
from aorta.scrub.secrets import secrets_in
from support.planted import CORPUS
from support.strange_secrets import blind_secrets, strange_secrets

LINES_OF_DETECTORS = Path(__file__).parent / "lines"
PLANTED = st.sampled_from([planted for planted in CORPUS if "\n" not in planted.line])
LINES = st.sampled_from([line for planted in CORPUS for line in planted.line.splitlines()])
ANY_TEXT = st.lists(
    st.one_of(
        st.text(max_size=40),
        LINES,
        st.sampled_from(["<PATH:1>", "<SECRET:3>", "=", "/", ":", '"', "\n"]),
    ),
    max_size=8,
).map("".join)
CLEAN_PHRASES = (
    "step 12 loss 0.125 grad_norm=1e-4 [INFO] rank 3",
    "2026-11-15T05:35:08 tokens/s: 812 max_tokens=4096 num_key_value_heads=8",
    "pad_token: <pad>, keys: 8, eos_token=2, TOKENIZERS_PARALLELISM=false",
    "torch.nn.functional.linear(x) self.net(y) threading.local() and/or",
    "c10::Error std::vector<int> at::native 0x7f3a2c00 a::b cuda:0",
    "src/model/layers.py:42 in forward, version 9.1.0.70, nccl==2.21.5.1",
    "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    (
        "/usr/lib/x86_64-linux-gnu/libc.so.6 /opt/rocm-6.2.0/lib/librccl.so /dev/kfd "
        "/dev/shm/nccl-iUKkNv /proc/self"
    ),
    "127.0.0.1 0.0.0.0 ::1 localhost https://pytorch.org/docs/stable/nn.html",
    "SyntaxError: unexpected token: foo; the password is wrong; KeyError: 'secret'",
    "NCCL_DEBUG=INFO HSA_XNACK=1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True 100% 3/4",
    "GPU 0000:3b:00.0 temperature 65C, 12:34:56 elapsed, rocm/pytorch:nightly",
)
CLEAN_TEXT = st.lists(st.sampled_from(CLEAN_PHRASES), max_size=5).map(" | ".join)
DOCUMENTS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), ANY_TEXT),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["a", "HF_TOKEN", "password", "node", "env", "key", "user"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


def scrub_all(texts: list[str]) -> list[str]:
    scrubber = Scrubber()
    for text in texts:
        scrubber.learn(text)
    return [scrubber.text(text).text for text in texts]


@given(st.lists(st.one_of(LINES, st.sampled_from(CLEAN_PHRASES)), max_size=8))
@settings(max_examples=300, deadline=None)
def test_scrubbing_twice_changes_nothing(lines: list[str]) -> None:
    once = scrub_all(["\n".join(lines)])
    assert scrub_all(once) == once


@given(ANY_TEXT)
@settings(max_examples=150, deadline=None)
def test_only_the_reported_spans_differ_from_the_original(text: str) -> None:
    scrubber = Scrubber()
    scrubber.learn(text)
    result = scrubber.text(text)
    rebuilt, rest = "", result.text
    for span in result.taken:
        before, _, rest = rest.partition(span.placeholder)
        rebuilt += before + span.value
    already_there = {match.group() for match in PLACEHOLDER.finditer(text)}
    fresh = all(span.placeholder not in already_there for span in result.taken)
    assert fresh
    assert rebuilt + rest == text


FOUND_IN = [
    *(planted.line for planted in CORPUS),
    *(one.text for one in (*strange_secrets(1), *blind_secrets(1))),
    *(
        re.sub(r"(?m)[⟦⟧]|^ {4}", "", file.read_text())
        for file in sorted(LINES_OF_DETECTORS.iterdir())
    ),
]
BEFORE = (" ", "\t", "=", ":", '"', "'", "s", "i", "k", "0", "1", "7", "\n", ",")
AFTER = [
    *("\u00a0", "\u2003", "\u017f", "\u0130", "\u0131", "\u212a", "\u0663", "\n", "\r\n"),
    *("", " ", "S", "0", "12345", "&#39;", "&#x27;", ",", "="),
]
CHANGES = st.lists(st.tuples(st.sampled_from(BEFORE), st.sampled_from(AFTER)), max_size=3)


@given(st.sampled_from(FOUND_IN), CHANGES)
@settings(max_examples=300, deadline=None)
def test_no_line_is_left_out_in_which_a_detector_would_find_something(
    text: str, changes: list[tuple[str, str]]
) -> None:
    for before, after in changes:
        text = text.replace(before, after)
    assert _detected(Text(text)) == _detected(_EveryLine(text))


def test_hints_are_written_as_a_line_is_when_they_are_looked_for() -> None:
    rules = [one for one in vars(addresses).values() if isinstance(one, Rule)]
    rules += [one for one in vars(paths).values() if isinstance(one, Rule)]
    rules += [*logins._RULES, *addresses._RULES]
    hints = [hint for one in rules for hint in one.hints]
    assert len(hints) > 60
    for hint in hints:
        assert hint == re.sub("[0-9]+", "0", hint).casefold()
        assert hint.strip()


class _EveryLine(Text):
    """Every detector tries every line of it."""

    def lines_like(self, may_match: Callable[[str], object]) -> Iterator[tuple[int, int]]:
        ends = [match.start() for match in re.finditer("\n|\\Z", self)]
        yield from zip([0, *(end + 1 for end in ends)], ends, strict=False)


def _detected(text: Text) -> list[Any]:
    found = [*secrets_in(text), *paths_in(text), *machines_in(text)]
    return [without_overlap(found, text), sorted(decoded(text)), sorted(users_in(text))]


@given(CLEAN_TEXT)
@settings(max_examples=300, deadline=None)
def test_clean_text_comes_back_as_it_was(text: str) -> None:
    assert scrub_all([text]) == [text]


@given(CLEAN_TEXT, PLANTED, CLEAN_TEXT)
@settings(max_examples=400, deadline=None)
def test_clean_text_around_a_secret_is_not_damaged(before: str, planted: Any, after: str) -> None:
    [result] = scrub_all([f"{before}\n{planted.line}\n{after}"])
    assert planted.value not in result
    assert result.startswith(f"{before}\n")
    assert result.endswith(f"\n{after}")


@given(DOCUMENTS)
@settings(max_examples=200, deadline=None)
def test_documents_keep_their_shape(document: Any) -> None:
    assert _shape(_scrubbed_document(document)) == _shape(document)


@given(st.lists(PLANTED, min_size=2, max_size=5))
@settings(max_examples=150, deadline=None)
def test_one_value_has_one_placeholder_in_every_file_and_two_values_have_two(
    found: list[Any],
) -> None:
    scrubber = Scrubber()
    for planted in found:
        scrubber.learn(planted.line)
    seen: dict[str, str] = {}
    for planted in [*found, *found]:
        for span in scrubber.text(planted.line).taken:
            assert seen.setdefault(span.value, span.placeholder) == span.placeholder
    assert len(set(seen.values())) == len(seen)


@given(st.text(min_size=1, max_size=12), ANY_TEXT)
@settings(max_examples=200, deadline=None)
def test_no_bytes_make_the_file_scrubber_fail_on_text(name: str, text: str) -> None:
    data = text.replace("\0", "").encode("utf-8", "surrogatepass") + b"\n\xff\xfa tail\n"
    plain = re.sub(r"[^a-z]", "", name) + ".log"
    after = FileScrubber(Scrubber()).whole(plain, data, Account(), ours=False)
    assert after is not None
    assert after.endswith(b"\xff\xfa tail\n")


@given(ANY_TEXT)
@settings(max_examples=150, deadline=None)
def test_patterns_alone_leave_everything_else(text: str) -> None:
    scrubber = Scrubber(Rules(patterns=("zeus-77*",), detect=False))
    assert scrubber.text(text).text == text
    assert "zeus-77" not in scrubber.text(f"{text} zeus-778 {text}").text


def _scrubbed_document(document: Any) -> Any:
    scrubber = Scrubber()
    learn_document(scrubber, document)
    return scrub_document(scrubber, document)


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted(json.dumps([key, _shape(inner)]) for key, inner in value.items())
    if isinstance(value, list):
        return [_shape(inner) for inner in value]
    return "leaf"
