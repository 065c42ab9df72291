"""Long texts in pieces: the same result as in one, in constant memory, whatever the encoding and
wherever a piece ends.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aorta.scrub import signs
from aorta.scrub.encodings import NotTextError
from aorta.scrub.findings import PLACEHOLDER
from aorta.scrub.scrubber import Identity, Rules, Scrubber
from aorta.scrub.signs import HYPERSCAN, PLAIN
from aorta.scrub.stream import Account, TextStream
from support.aorta_cli import environ
from support.planted import CORPUS

LINES = [planted.line for planted in CORPUS]
CLEAN = (
    "step 12 loss 0.125 grad_norm=1e-4 [INFO] rank 3",
    "ProcessGroupNCCL.cpp expandable_segments 81234 tokens/s",
    "-" * 40,
    "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "",
    "  value: 7",
)
PIECES = st.one_of(
    st.sampled_from(LINES),
    st.sampled_from(CLEAN),
    st.text(max_size=30).map(lambda text: text.replace("\0", "")),
    st.text(alphabet="0123456789abcdefF:.-/_=@%\\\"' \nON&;+~<>(),", max_size=40),
    st.sampled_from(["name: DB_PASSWORD\nvalue: hunter-22", "host:\n  gpu-17", "'--token',\n 'abc123x'"]),
)  # fmt: skip
ONE_SIGN = [
    *("10.1.2.3", "driver 535.1.2.3", "fe80::1ff", "aa:bb:cc:dd:ee:ff", "c10::d", "x.10.1.2.3-4", "(10.1.2.3,"),
    *("gpu-7:41:42 [0] NCCL INFO", "deadbeef1:1:2 [0] RCCL", "] NCCL WARN", "node:41:42 [0] NCCL"),
    *("/home/bob/x.py:42", "/data/set/a", "-I/opt/mine/include", "~/run", "/usr/lib/x", "'/data/my set/a b'"),
    *("jdoe77", "hgx-12", "HGX-12.", "xjdoe77", "bob", "step 3", "loss 0.5", ">", "<", "@", "key=abc"),
]  # fmt: skip
TEXT = st.lists(PIECES, max_size=8).map("\n".join)
RULES = st.sampled_from(
    [
        Rules(),
        Rules(patterns=("zebra*", "re:fal[ck]on\nnext")),
        Rules(identity=Identity(users=("jdoe77",), hosts=("hgx-12",), roots=("/work/space dir",))),
        Rules(secret_names=("*_THING",)),
        Rules(patterns=("é/ü",), detect=False),
    ]
)


def whole(rules: Rules, text: str) -> str:
    scrubber = Scrubber(rules)
    scrubber.learn(text)
    return scrubber.text(text).text


def streamed(rules: Rules, text: str, piece: int, engine: str) -> str:
    data = text.encode("utf-8", "surrogatepass")
    scrubber = Scrubber(rules)
    stream = TextStream(scrubber, piece=piece, engine=engine)
    parts = [data[at : at + piece] for at in range(0, len(data), piece)]
    stream.learn(parts)
    after = b"".join(stream.scrub(parts, Account()))
    return after.decode("utf-8", "surrogatepass")


@given(TEXT, RULES, st.sampled_from([64, 300, 1 << 20]), st.sampled_from([HYPERSCAN, PLAIN]))
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_text_in_pieces_is_scrubbed_like_a_text_as_a_whole(
    text: str, rules: Rules, piece: int, engine: str
) -> None:
    assert unnumbered(streamed(rules, text, piece, engine)) == unnumbered(whole(rules, text))


@given(
    st.lists(st.lists(st.sampled_from(ONE_SIGN), min_size=1, max_size=3), max_size=8),
    st.sampled_from([HYPERSCAN, PLAIN]),
)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_line_that_only_some_rules_can_change_is_scrubbed_like_by_all_of_them(
    lines: list[list[str]], engine: str
) -> None:
    text = "\n".join(" ".join(line) for line in lines)
    rules = Rules(identity=Identity(users=("jdoe77",), hosts=("hgx-12",)))
    assert unnumbered(streamed(rules, text, 1 << 20, engine)) == unnumbered(whole(rules, text))


def test_a_number_that_scrubbed_text_holds_already_is_not_given_again() -> None:
    assert streamed(Rules(), "step 1 at <IPV4:1>\nstep 2 at 10.1.2.3\n", 1 << 20, "").endswith(
        "at <IPV4:2>\n"
    )


def test_a_text_that_hyperscan_takes_over_from_python_has_no_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signs, "_PAYS_FROM", 1 << 11)
    signs._compiled.cache_clear()
    text = "".join(f"step {n} on /home/jdoe77/a at 10.1.2.{n}\n" for n in range(250))
    assert len(text) > 2 << 11
    assert streamed(Rules(), text, 1 << 10, "") == streamed(Rules(), text, 1 << 10, PLAIN)


def unnumbered(text: str) -> str:
    """Which of two values is met first depends on where a piece ends."""
    return PLACEHOLDER.sub(r"<\1>", text)


def test_a_sign_leads_to_every_planted_value() -> None:
    for planted in CORPUS:
        text = "\n".join([*CLEAN, planted.line, *CLEAN, ""])
        expected = whole(Rules(), text)
        for engine in (HYPERSCAN, PLAIN):
            assert streamed(Rules(), text, 1 << 20, engine) == expected, planted.name


@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-32", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "utf-8-sig"]
)  # fmt: skip
def test_a_wide_encoding_hides_nothing_and_comes_back_as_it_was(encoding: str) -> None:
    text = "step 1 ok\nexport DB_PASSWORD=hunter-2222\nstep 2 ok\n"
    stream = TextStream(Scrubber())
    stream.learn([text.encode(encoding)])
    after = b"".join(stream.scrub([text.encode(encoding)], Account())).decode(encoding)
    assert after == text.replace("hunter-2222", "<SECRET:1>")
    clean = "step 1 ok\n".encode(encoding)
    assert b"".join(stream.scrub([clean], Account())) == clean


def test_what_is_no_text_is_said() -> None:
    with pytest.raises(NotTextError):
        TextStream(Scrubber()).learn([b"abc\0def\xff"])


def test_spans_say_their_line_and_counts_are_all_there() -> None:
    text = "".join(f"line {n}\n" if n % 3 else f"from 10.1.{n % 200}.7\n" for n in range(1, 4000))
    scrubber, account = Scrubber(), Account()
    stream = TextStream(scrubber, piece=4096)
    stream.learn([text.encode()])
    b"".join(
        stream.scrub([text[at : at + 4096].encode() for at in range(0, len(text), 4096)], account)
    )
    assert account.groups["addresses"] == text.count("10.1.")
    assert [span.where for span in account.spans[:3]] == ["line 3", "line 6", "line 9"]


def test_a_long_log_takes_no_more_memory_than_a_short_one(tmp_path: Path) -> None:
    program = tmp_path / "measure.py"
    program.write_text(
        "import random, resource, sys\n"
        "from aorta.scrub.scrubber import Scrubber\n"
        "from aorta.scrub.stream import Account, TextStream\n"
        "rng = random.Random(7)\n"
        "def pieces():\n"
        "    for n in range(int(sys.argv[1])):\n"
        "        yield b''.join(b'step %d loss %.4f from 10.1.2.%d\\n' % (i, rng.random(), i % "
        "250) for i in range(5000))\n"
        "stream = TextStream(Scrubber())\n"
        "stream.learn(pieces())\n"
        "for _ in stream.scrub(pieces(), Account()):\n    pass\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    sizes = [
        int(
            subprocess.check_output([sys.executable, program, str(count)], text=True, env=environ())
        )
        for count in (10, 20)
    ]
    assert sizes[1] < sizes[0] * 1.1
