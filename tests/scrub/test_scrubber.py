"""The rules one by one: what a pattern is, what a name announces, what a document is, what
stays.
"""

import base64
import bz2
import gzip
import json
import lzma
import re
import subprocess
import zlib
from typing import Any

import pytest
import yaml

from aorta.core.documents import Loader
from aorta.core.errors import UsageError
from aorta.core.failure import Failure
from aorta.core.templates import said_in
from aorta.scrub.files import Account, FileScrubber, NotTextError, learn_document, scrub_document
from aorta.scrub.findings import Kind
from aorta.scrub.known import split_patterns
from aorta.scrub.scrubber import Identity, Rules, Scrubber
from aorta.scrub.vocabulary import announces_secret, may_announce_secret

TOKEN = "a1B2c3D4e5F6g7H8i9J0"


def scrubbed(text: str, **rules: Any) -> str:
    scrubber = Scrubber(Rules(**rules))
    scrubber.learn(text)
    return scrubber.text(text).text


def document(content: Any, **rules: Any) -> Any:
    scrubber = Scrubber(Rules(**rules))
    learn_document(scrubber, content)
    return scrub_document(scrubber, content)


@pytest.mark.parametrize(
    ("pattern", "text", "after"),
    [
        ("zeus", "on Zeus now", "on <TEXT:1> now"),
        ("zeus-*", "zeus-v3.1, x", "<TEXT:1> x"),
        ("z?us", "zeus zaus", "<TEXT:1> <TEXT:2>"),
        ("re:z[ae]us", "zeus zaus Zeus", "<TEXT:1> <TEXT:2> Zeus"),
        (r"ACME-\d+", "see ACME-17", "see <TEXT:1>"),
        ("a(b", "x a(b y", "x <TEXT:1> y"),
        ("/srv/acme", "at /srv/acme/x", "at <TEXT:1>/x"),
    ],
)
def test_a_pattern_is_text_with_wildcards_or_a_regular_expression(
    pattern: str, text: str, after: str
) -> None:
    assert scrubbed(text, patterns=(pattern,), detect=False) == after


@pytest.mark.parametrize(
    ("pattern", "text", "after"),
    [
        ("repro", "run_repro.sh: repro", "run_repro.sh: <TEXT:1>"),
        ("repro", 'bash "$here"/run_repro.sh', 'bash "$here"/run_repro.sh'),
        ("repro", "my-run_repro.sh repro.pyc", "my-run_<TEXT:1>.sh <TEXT:1>.pyc"),
        ("json", "result.json x.json", "result.json x.<TEXT:1>"),
        ("result.json of*", "result.json of zeus", "<TEXT:1> zeus"),
        ("logs", "logs", "logs"),
        ("logs", "logs of zeus", "<TEXT:1> of zeus"),
    ],
)
def test_a_pattern_leaves_names_that_we_give(pattern: str, text: str, after: str) -> None:
    assert scrubbed(text, patterns=(pattern,), detect=False) == after


@pytest.mark.parametrize("key", ["trials", "reproduced", "message", "oracle", "kind", "words"])
def test_a_pattern_leaves_keys_and_enumerated_words_of_our_documents(key: str) -> None:
    document = {key: {"kind": key, "note": f"the {key} of zeus"}}
    after = scrub_document(Scrubber(Rules(patterns=(key,), detect=False)), document)
    assert after == {key: {"kind": key, "note": "the <TEXT:1> of zeus"}}


@pytest.mark.parametrize(
    ("pattern", "after"),
    [
        (r"lost gpu-a100-017\.acme\.com at", "lost HOST_1 at"),
        (r"lost (gpu\-a100\-017\.acme\.com|none)", "lost (HOST_1|none)"),
        (r"lost gpu-a100-\d+\.acme\.com at", r"lost gpu-a100-\d+\.HOST_2 at"),
        (r"/home/jdoe77/(train|val)\.bin is nan", r"PATH_1(train|val)\.bin is nan"),
        (r"^zeus loss (\d+)$", r"^TEXT_1 loss (\d+)$"),
        (r"^zeus\.loss (\d+)$", r"^TEXT_1\.loss (\d+)$"),
        (r"token=(\w+) rejected", r"token=(\w+) rejected"),
        (r"api_key: \S{20,}", r"api_key: \S{20,}"),
    ],
)
def test_a_pattern_of_an_oracle_loses_names_and_keeps_its_syntax(pattern: str, after: str) -> None:
    scrubber = Scrubber(Rules(patterns=("zeus",)))
    scrubber.learn("node=gpu-a100-017.acme.com")
    document = {"oracle": {"kind": "regex", "pattern": pattern}}
    learn_document(scrubber, document)
    clean = scrub_document(scrubber, document)["oracle"]["pattern"]
    assert re.sub(r"(?<=HOST_)\d", "n", clean) == re.sub(r"(?<=HOST_)\d", "n", after)
    assert re.compile(clean)


def test_a_pattern_is_found_behind_every_encoding() -> None:
    blob = base64.b64encode(b"the zeus model").decode()
    text = f'{{"m": "\\u007aeus"}} %7Aeus {blob} {b"zeus model".hex()} &#122;eus'
    after = scrubbed(text, patterns=("zeus",), detect=False)
    assert "eus" not in after
    assert blob not in after
    assert b"zeus".hex() not in after


@pytest.mark.parametrize("pattern", ["re:(", "re:x*", "*", "??", " "])
def test_a_pattern_that_cannot_be_meant_is_refused_in_one_line(pattern: str) -> None:
    with pytest.raises(UsageError, match="scrub pattern"):
        Scrubber(Rules(patterns=(pattern,)))


def test_patterns_are_split_at_commas_but_a_regular_expression_is_one() -> None:
    assert split_patterns("a, b,,c") == ("a", "b", "c")
    assert split_patterns("re:a{1,2}") == ("re:a{1,2}",)


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "password",
        "dbPassword",
        "DB_PASSWORD_2",
        "api-key",
        "x.apiKey",
        "clientSecret",
        "AWS_SECRET_ACCESS_KEY",
        "Authorization",
        "GITHUB_TOKEN",
        "connection_string",
        "SLACK_WEBHOOK_URL",
        "client-key-data",
        "SENTRY_DSN",
    ],
)
def test_names_that_announce_a_secret(name: str) -> None:
    assert announces_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "pad_token",
        "eos_token",
        "max_tokens",
        "num_key_value_heads",
        "PWD",
        "tokenizer",
        "TOKENIZERS_PARALLELISM",
        "monkey",
        "signature",
        "PRIVATE_KEY_FILE",
        "keyboard",
        "author",
        "compass",
        "secretary",
    ],
)
def test_names_that_do_not(name: str) -> None:
    assert not announces_secret(name)
    assert not may_announce_secret("PRIVATE_KEY_FILE")


def test_an_existing_placeholder_keeps_its_meaning() -> None:
    assert scrubbed("a <PATH:3> and /home/jdoe77/x") == "a <PATH:3> and <PATH:4>"
    assert scrubbed("password=<SECRET:1>") == "password=<SECRET:1>"


def test_identities_of_the_site_go_wherever_they_stand() -> None:
    identity = Identity(
        users=("jdoe",), hosts=("hgx1.acme.example",), roots=("/usr/local/acme data",)
    )
    text = "jdoe ran on HGX1 (hgx1.acme.example) in /usr/local/acme data/x; jdoe_2 kept jdoes"
    after = scrubbed(text, identity=identity)
    assert after == "<USER:1> ran on <HOST:1> (<HOST:2>) in <PATH:1>/x; <USER:1>_2 kept jdoes"


def test_common_words_are_nobodys_name() -> None:
    identity = Identity(users=("root", "ubuntu"), hosts=("localhost", "gpu"))
    assert scrubbed("root on localhost, gpu 0", identity=identity) == "root on localhost, gpu 0"


def test_public_libraries_stay_readable_behind_a_private_prefix() -> None:
    path = "/home/jdoe77/venv/lib/python3.11/site-packages"
    after = scrubbed(
        f'File "{path}/torch/nn/modules/linear.py", line 1\nFile "{path}/acme_secret/x.py"'
    )
    assert "<PATH:1>/torch/nn/modules/linear.py" in after
    assert "acme_secret" not in after


def test_what_a_policy_keeps_is_kept() -> None:
    text = "10.0.0.9 and 10.0.0.8 under /data/public/set"
    assert (
        scrubbed(text, keep=("10.0.0.9", "/data/public/set"))
        == "10.0.0.9 and <IPV4:1> under /data/public/set"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"password": "hunter2!"}, {"password": "<SECRET:1>"}),
        ({"password": 12345678}, {"password": "<SECRET:1>"}),
        ({"max_tokens": 4096, "token": None}, {"max_tokens": 4096, "token": None}),
        (
            {"env": [{"name": "API_KEY", "value": "xyzzy-1"}]},
            {"env": [{"name": "API_KEY", "value": "<SECRET:1>"}]},
        ),
        (
            {"argv": ["run", "--token", "xyzzy-1", "--steps", "5"]},
            {"argv": ["run", "--token", "<SECRET:1>", "--steps", "5"]},
        ),
        ({"secrets": ["one-a", "two-b"]}, {"secrets": ["<SECRET:1>", "<SECRET:2>"]}),
        ({"nodes": ["hgx1", "hgx2"]}, {"nodes": ["<HOST:1>", "<HOST:2>"]}),
        (
            {"node": 3, "host": "localhost", "user": "root"},
            {"node": 3, "host": "localhost", "user": "root"},
        ),
        ({"10.1.2.3": {"up": True}}, {"<IPV4:1>": {"up": True}}),
        (
            {"signature": "exit 1 | train.py:main > ValueError"},
            {"signature": "exit 1 | train.py:main > ValueError"},
        ),
        ({"command": "HF_TOKEN=xyzzy-1 sh x.sh"}, {"command": "HF_TOKEN=SECRET_1 sh x.sh"}),
        ({"command": ["sh", "HF_TOKEN=xyzzy-1"]}, {"command": ["sh", "HF_TOKEN=<SECRET:1>"]}),
        ({"x": '{"password": "hunter2!"}'}, {"x": '{"password": "<SECRET:1>"}'}),
    ],
)
def test_documents_are_scrubbed_as_documents(before: Any, after: Any) -> None:
    assert document(before) == after


def scrubbed_file(name: str, data: bytes, *, ours: bool) -> bytes:
    files = FileScrubber(Scrubber())
    files.learn(name, [data], ours=ours)
    return b"".join(files.scrub(name, [data], Account(), ours=ours))


@pytest.mark.parametrize("ours", [True, False])
def test_a_clean_file_comes_back_byte_for_byte(ours: bool) -> None:
    for name, data in {
        "a.json": b'{"a":1 ,\n "b": 1.0e3}',
        "a.jsonl": b'{"a":1}\n\n{"b":2}',
        "a.log": b"\xff\xfe is no text but \xe9 too"[2:],
    }.items():
        assert scrubbed_file(name, data, ours=ours) == data


def test_nothing_of_our_own_yaml_ships_that_was_not_parsed() -> None:
    data = (
        b"# by jdoe77@acme-labs.com\nname: x # password: hunter2Secret99\n#\nsteps: 10\n"
        b"text: '# no comment'\n# the last: export LDAP_PWD=hunter2x\n"
    )
    after = scrubbed_file("aorta.yaml", data, ours=True).decode()
    assert after == (
        "# by <EMAIL:1>\n# password: <SECRET:1>\n#\n# the last: export LDAP_PWD=<SECRET:2>\n"
        "name: x\nsteps: 10\ntext: '# no comment'\n"
    )


def test_a_value_that_goes_on_in_the_next_comment_is_gone_as_well() -> None:
    data = b"# db:\n#   password: >-\n#     d1uiT9kAtO7o\n# gpu-h100-0417: ok\nsteps: 10\n"
    after = scrubbed_file("aorta.yaml", data, ours=True).decode()
    assert after == ("# db:\n#   password: >-\n#     <SECRET:1>\n# <HOST:1>: ok\nsteps: 10\n")


@pytest.mark.parametrize(
    ("name", "data", "after"),
    [
        ("a.log", b"password=hunter2\xffSecret\n", b"password=<SECRET:1>\n"),
        ("a.json", b'{"password": "hunter2\\ud800x"}\n', b'{"password": "<SECRET:1>"}\n'),
        (
            "a.json",
            b'{"a": "\\ud800 \xc3\xa9", "token": "hunter2Secret99"}',
            b'{"a": "\\ud800 \\u00e9", "token": "<SECRET:1>"}',
        ),
        ("a.yaml", b'password: "hunter2\\ud800x"\n', b"password: <SECRET:1>\n"),
    ],
)
def test_a_secret_that_is_no_unicode_goes_as_well(name: str, data: bytes, after: bytes) -> None:
    assert scrubbed_file(name, data, ours=True) == after


def test_a_yaml_file_of_somebody_keeps_its_bytes() -> None:
    data = b"# a comment\na:   1\non: [yes, 1.0]\n"
    assert scrubbed_file("a.yaml", data, ours=False) == data


def test_yaml_keeps_its_values_when_it_is_written_anew() -> None:
    data = b"# by jdoe77@acme-labs.com\non: yes\nwhen: 2026-01-01\nn: 010\nhome: /home/jdoe77\n"
    after = scrubbed_file("a.yaml", data, ours=True).decode()
    assert "acme" not in after
    assert yaml.load(after, Loader=Loader) == {
        "on": "yes",
        "when": "2026-01-01",
        "n": 10,
        "home": "<PATH:1>",
    }


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.json", b'{"a": 1'),
        ("a.json", b'{"a": 1, "a": 2}'),
        ("a.json", b"[" * 100_000),
        ("a.jsonl", b'{"a": 1}\n{"b": '),
        ("a.yaml", b"a: [1"),
        ("a.yaml", b"a: !!python/object:os.system 1"),
    ],
)
@pytest.mark.parametrize("ours", [True, False])
def test_what_does_not_parse_is_text(name: str, data: bytes, ours: bool) -> None:
    given = data + b"\npassword=hunter-22 end\n"
    assert scrubbed_file(name, given, ours=ours) == data + b"\npassword=<SECRET:1> end\n"


@pytest.mark.parametrize(
    "data",
    [
        b"binary \0 data",
        "half a character".encode("utf-16")[:-1],
        bz2.compress(b"password=hunter-22"),
        lzma.compress(b"password=hunter-22"),
        gzip.compress(b"password=hunter-22"),
        zlib.compress(b"password=hunter-22" * 9),
    ],
    ids=[
        "binary",
        "half",
        "bz2",
        "xz",
        "gzip",
        "zlib",
    ],  # gzip holds the time
)
def test_what_is_no_text_fails_closed(data: bytes) -> None:
    with pytest.raises(NotTextError):
        scrubbed_file("a.log", data, ours=False)


def test_a_scrubbed_shell_script_still_runs() -> None:
    script = (
        "#!/bin/sh\n# don't touch /home/jdoe77/a\nexport HF_TOKEN=" + TOKEN + "\n"
        'X="/home/jdoe77/b" Y=/home/jdoe77/c\necho "$HF_TOKEN $X $Y"\n'
    )
    after = scrubbed_file("run.sh", script.encode(), ours=False).decode()
    done = subprocess.run(["sh", "-c", after], capture_output=True, text=True, check=True)
    assert done.stdout == "SECRET_1 PATH_2 PATH_3\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('rm -f "$place"/conf/a.yaml', None),
        ('[ -L "$place"/a/b ] && rm "$place"/a/b', None),
        ("cat ${HERE}/data/x.yaml", None),
        ('cat "/proj/data/x.yaml"', 'cat "<PATH:1>"'),
        ('"$X"/home/alice/x.py here', '"$X"<PATH:1> here'),
        ('rm "$place"/a/b /mnt/team/x', 'rm "$place"/a/b <PATH:1>'),
        ("a}/srv/team/x", "a}<PATH:1>"),
    ],
)
def test_a_path_below_a_variable_of_a_shell_is_a_relative_name(
    before: str, after: str | None
) -> None:
    assert Scrubber(Rules()).text(before).text == (before if after is None else after)


def test_file_names_lose_what_text_loses_and_stay_portable() -> None:
    scrubber = Scrubber(Rules(patterns=("zeus",)))
    scrubber.learn("MASTER_ADDR=hgx-head-1")
    assert (
        scrubber.file_name("logs/zeus/hgx-head-1_10.1.2.3.log") == "logs/TEXT_1/HOST_1_IPV4_1.log"
    )


def test_a_module_of_a_program_that_ships_is_still_found_by_its_name() -> None:
    files = FileScrubber(Scrubber(Rules(patterns=("zeus",), detect=False)))
    program = b"from zeus_loss import zeus\nzeus('in zeus')\n"
    after = files.whole("shrunken/workload/train.py", program, Account(), ours=False)
    assert after == b"from TEXT_1_loss import TEXT_1\nTEXT_1('in TEXT_1')\n"
    assert files.scrubber.file_name("workload/zeus_loss.py") == "workload/TEXT_1_loss.py"


@pytest.mark.parametrize("start", ["\\n", "\\t", "a ", ""])
def test_a_name_at_the_begin_of_a_line_of_a_string_leaves_a_program(start: str) -> None:
    files = FileScrubber(Scrubber())
    program = f'print("{start}jdoe77@gpu-017 left")\n'.encode()
    after = files.whole("shrunken/workload/train.py", program, Account(), ours=False)
    assert after is not None
    assert re.fullmatch(rf'print\("{re.escape(start)}USER_1@HOST_1 left"\)\n', after.decode())
    compile(after, "train.py", "exec")


def test_a_failure_says_what_is_left_of_the_program_that_ships() -> None:
    """A template has lost the folders of a path, and the digits of a host."""
    said = "Error: no shard in /home/jdoe77/corpus/train.bin on gpu-017"
    words = said_in([said])
    assert words == ("Error: no shard in train.bin on <*>",)
    files, program = FileScrubber(Scrubber(), [said]), f'host=gpu-017\necho "{said}"\n'.encode()
    files.learn("shrunken/run.sh", [program], ours=False)
    assert b"no shard in PATH_1 on HOST_1" in b"".join(
        files.scrub("shrunken/run.sh", [program], Account(), ours=False)
    )
    after = files.document({"failure": Failure(words=words).to_json()}, Account())["failure"]
    assert after["words"] == list(said_in(["Error: no shard in PATH_1 on HOST_1"]))


def test_counts_are_by_group_and_spans_say_where() -> None:
    scrubber = Scrubber()
    text = f"one\ntoken={TOKEN} at 10.1.2.3\n"
    scrubber.learn(text)
    result = scrubber.text(text)
    account = Account()
    account.add(result)
    assert account.groups == {"secrets": 1, "addresses": 1}
    assert [(span.where, span.value, span.kind) for span in result.taken] == [
        ("line 2", TOKEN, Kind.CREDENTIAL),
        ("line 2", "10.1.2.3", Kind.IPV4),
    ]


def test_a_megabyte_without_spaces_is_no_trap() -> None:
    blob = json.dumps({"x": "A" * 2**19, "y": "/a" * 2**18, "z": "a." * 2**17})
    assert len(scrubbed(blob)) < len(blob)


def test_names_in_a_python_program_are_no_hosts_and_its_strings_and_comments_are_searched() -> None:
    program = (
        "import logging, socket\n"
        "logging.basicConfig(level=logging.INFO)\n"
        "host = socket.gethostname()\n"
        "step(node=tok.eos_token_id)  # ran on host=gpu17\n"
        "ADDRESS = 'db01.corp.internal'\n"
    )
    scrubber = Scrubber()
    scrubber.learn(program, code=True)
    after = scrubber.text(program, code=True).text
    compile(after, "train.py", "exec")
    assert after.splitlines()[:3] == program.splitlines()[:3]
    assert "step(node=tok.eos_token_id)" in after
    assert "gpu17" not in after
    assert "db01" not in after
    said = scrubber.text("    logging.basicConfig(level=logging.INFO)\nhost=gpu17\n").text
    assert said.startswith("    logging.basicConfig(level=logging.INFO)\n")
    assert "gpu17" not in said
