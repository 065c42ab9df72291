"""`aorta bundle RUN_DIR` as a user runs it: what comes out, what stays here, what it says."""

import base64
import gzip
import html
import json
import re
import shutil
import signal
import tarfile
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from support import real_runs
from support.aorta_cli import Finished, aorta, start_aorta
from support.processes import wait_for_file
from support.real_runs import HF, HOST, MAKERS, USER, copied, packed_run
from support.reductions import numeric, write_spec
from support.waiting import patience

EACH_VERB = pytest.mark.parametrize("verb", MAKERS)


def contents(bundle: Path) -> dict[str, bytes]:
    with tarfile.open(bundle) as archive:
        return {
            entry.name: read.read() for entry in archive if (read := archive.extractfile(entry))
        }


def reduce_dir(tmp_path: Path) -> Path:
    return copied(real_runs.reduce_dir(), tmp_path)


def packed(run: Path, output: Path, *options: str | Path, stdin: str = "") -> tuple[Finished, Path]:
    ticket = () if "--ticket" in options else ("--ticket", "GPU-7")
    words = ("--output", output, "--json", "--no-check", *ticket, *options)
    done = aorta("bundle", run, *words, stdin=stdin)
    assert done.exit_code == 0, done.stderr
    return done, Path(done.json()["path"])


def manifest_of(bundle: Path) -> Any:
    return json.loads(
        next(data for name, data in contents(bundle).items() if name.endswith("/manifest.json"))
    )


@EACH_VERB
def test_packing_names_the_archive_by_its_ticket_and_never_changes_the_run(verb: str) -> None:
    packed_once = packed_run(verb)
    bundle = packed_once.bundle
    assert re.fullmatch(r"GPU-7-\d{8}T\d{6}Z\.tar\.gz", bundle.name)
    files = contents(bundle)
    assert len({name.split("/")[0] for name in files}) == 1
    document = packed_once.said.json()
    assert document["schema"] == "aorta.bundle/1"
    assert document["files"] == len(files) - 1
    assert document["scrubbed"]["paths"]
    assert document["scrubbed"]["patterns"] == 0
    assert packed_once.run_is_untouched


@EACH_VERB
def test_verify_show_and_unpack_accept_what_pack_writes(verb: str, tmp_path: Path) -> None:
    bundle = packed_run(verb).bundle
    verified = aorta("bundle", "verify", bundle, "--json")
    assert verified.exit_code == 0
    shown = aorta("bundle", "show", bundle)
    assert "SHIP.md" in shown.stdout
    assert "GPU-7" in shown.stdout
    unpacked = aorta("bundle", "unpack", bundle, tmp_path / "there")
    assert unpacked.exit_code == 0, unpacked.stderr
    folder = Path(unpacked.stdout.strip())
    assert folder.parent == tmp_path / "there"
    for entry in manifest_of(bundle)["files"]:
        assert (folder / entry["path"]).stat().st_size == entry["bytes"]
    assert list((tmp_path / "there").iterdir()) == [folder]


@EACH_VERB
def test_the_same_run_gives_the_same_bytes(verb: str, tmp_path: Path) -> None:
    run = copied(MAKERS[verb](), tmp_path)
    _, first = packed(run, tmp_path / "one")
    for path in run.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.touch()
    _, second = packed(run, tmp_path / "two")
    assert first.read_bytes() == second.read_bytes()


def test_a_long_name_and_one_in_another_alphabet_come_out_as_they_were(tmp_path: Path) -> None:
    run = reduce_dir(tmp_path)
    names = [f"{'epoch=3-' * 18}shard.txt", "\u6570\u636e.txt", f"{'d' * 110}/{'e' * 90}.txt"]
    for name in names:
        (run / "shrunken" / name).parent.mkdir(exist_ok=True)
        (run / "shrunken" / name).write_text(name)
    _, bundle = packed(run, tmp_path / "out")
    unpacked = aorta("bundle", "unpack", bundle, tmp_path / "there")
    assert unpacked.exit_code == 0, unpacked.stderr
    folder = Path(unpacked.stdout.strip()) / "shrunken"
    assert [(folder / name).read_text() for name in names] == names


def test_two_bundles_of_one_second_do_not_overwrite_each_other(tmp_path: Path) -> None:
    run = reduce_dir(tmp_path)
    made = {packed(run, tmp_path / "out")[1] for _ in range(2)}
    assert len(made) == 2


def test_the_manifest_says_what_is_inside_and_what_was_taken_out_of_each_file() -> None:
    packed_once = packed_run("reduce")
    manifest = manifest_of(packed_once.bundle)
    assert manifest["schema"] == "aorta.bundle_manifest/1"
    assert manifest["ticket"] == "GPU-7"
    assert manifest["verb"] == "reduce"
    entries = {entry["path"]: entry for entry in manifest["files"]}
    assert entries["logs/stdout.log"]["scrubbed"]["secrets"] == 2
    assert entries["shrunken/shards/one.txt"]["scrubbed"] == {}
    totals = {
        group: sum(e["scrubbed"].get(group, 0) for e in entries.values())
        for group in manifest["scrubbed"]
    }
    assert totals == manifest["scrubbed"] == packed_once.said.json()["scrubbed"]


def test_ship_md_keeps_the_runs_own_words_and_says_what_was_removed_and_what_is_not_known() -> None:
    bundle = packed_run("reduce").bundle
    files = {name.split("/", 1)[1]: data.decode() for name, data in contents(bundle).items()}
    ship = files["SHIP.md"]
    _, runs = ship.split("What the run says of itself, before anything was replaced:")
    assert "# What is shared\n\n```\nreduced (1 of 1 reproduced)\n" in runs
    assert "was run from another directory" not in ship
    assert re.search(r"- \d+ secrets, as `<SECRET:n>`", ship)
    assert "nothing was taken out" not in ship
    assert "names of people in free text" in ship
    assert "was not run from this bundle" in ship


def test_a_log_stays_readable_and_one_value_has_one_placeholder_across_files() -> None:
    bundle = packed_run("reduce").bundle
    files = {name.split("/", 1)[1]: data.decode() for name, data in contents(bundle).items()}
    host = re.search(r"starting on <(HOST):(\d+)>, user <USER:\d+>", files["logs/stdout.log"])
    assert host is not None
    assert f"starting on {host[1]}_{host[2]}, user" in files["shrunken/workload/train.py"]
    assert 'RuntimeError("loss is nan at step 137")' in files["shrunken/workload/train.py"]


def test_the_ticket_given_goes_before_the_runs_own_and_none_at_all_is_one_clear_line(
    tmp_path: Path,
) -> None:
    refused = aorta("bundle", real_runs.run_dir(), "--output", tmp_path / "out")
    assert refused.exit_code == 2
    assert refused.stderr.count("\n") == 1
    assert "--ticket" in refused.stderr
    assert not (tmp_path / "out").exists()
    _, bundle = packed(real_runs.reduce_dir(), tmp_path / "out", "--ticket", "ACME/9")
    assert bundle.name.startswith("ACME_9-2")


@pytest.mark.parametrize("ticket", ["x" * 300, "two\nlines", "tab\there"])
def test_a_ticket_that_is_no_name_is_one_line(ticket: str, tmp_path: Path) -> None:
    done = aorta("bundle", real_runs.run_dir(), "--output", tmp_path / "out", "--ticket", ticket)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert "the ticket is" in done.stderr


def test_a_private_name_in_the_ticket_is_taken_out_of_archive_manifest_and_ship_md(
    tmp_path: Path,
) -> None:
    _, bundle = packed(real_runs.reduce_dir(), tmp_path / "out", "--ticket", f"{USER} GPU-7")
    everything = [bundle.name, *contents(bundle), *map(str, contents(bundle).values())]
    assert not [text for text in everything if USER in text]
    assert "USER_" in bundle.name


def test_a_run_that_is_not_over_is_refused(tmp_path: Path) -> None:
    script = f"touch {tmp_path}/begun; sleep 600"
    spec = write_spec(tmp_path / "work", script, [numeric("N", 40, 1)])
    process = start_aorta("reduce", "--spec", spec, "--output", tmp_path / "out")
    try:
        wait_for_file(tmp_path / "begun")
        (run,) = (tmp_path / "out").glob("2*")
        done = aorta("bundle", run, "--output", tmp_path / "b", "--ticket", "T")
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=patience())
    assert done.exit_code == 1
    assert "the run is not over" in done.stderr


def test_a_directory_that_no_verb_wrote_is_refused(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "model.py").write_text("secret source")
    done = aorta(
        "bundle", tmp_path / "src", "--ticket", "T", "--output", tmp_path / "out", "--json"
    )
    assert done.exit_code == 2
    assert done.json()["error"]["kind"] == "usage"
    assert not (tmp_path / "out").exists()


def test_files_that_no_verb_writes_stay_here_and_are_named(tmp_path: Path) -> None:
    run = reduce_dir(tmp_path)
    (run / "source_of_the_model.py").write_text("private")
    (run / "logs" / "core.1234").write_bytes(b"\0\1\2")
    done, bundle = packed(run, tmp_path / "out")
    assert done.json()["left_out"] == 2
    assert manifest_of(bundle)["left_out"] == ["source_of_the_model.py", "logs/core.1234"]
    assert not [name for name in contents(bundle) if "source_of" in name or "core" in name]


def test_user_patterns_are_taken_out_wherever_they_are_given(tmp_path: Path) -> None:
    run = reduce_dir(tmp_path)
    (run / "logs" / "zeus.log").write_text("zeus-v3 hera-v4 apollo-v5 ares.v6\n")
    (tmp_path / "policy.yaml").write_text("scrub: [apollo-v5, hera-*]\n")
    options = (
        "--scrub",
        r"zeus*",
        "--scrub",
        r"re:ares\.v\d",
        "--policy",
        tmp_path / "policy.yaml",
    )
    done, bundle = packed(run, tmp_path / "out", *options)
    everything = "\n".join(
        [*contents(bundle), *(data.decode() for data in contents(bundle).values())]
    )
    assert [word for word in ("zeus", "hera", "apollo", "ares") if word in everything] == []
    assert done.json()["scrubbed"]["patterns"] == 4


def test_a_pattern_is_found_in_every_spelling(tmp_path: Path) -> None:
    run = reduce_dir(tmp_path)
    text = 'zeus "v3"/é x'
    spelt = [
        json.dumps(text)[1:-1], json.dumps(json.dumps(text)), quote(text, safe=""), quote_plus(text), html.escape(text),
    ]  # fmt: skip
    (run / "logs" / "spelt.log").write_text("\n".join(spelt))
    _, bundle = packed(run, tmp_path / "out", "--scrub", text)
    after = next(data for name, data in contents(bundle).items() if name.endswith("spelt.log"))
    assert re.fullmatch(r'"?<TEXT:\d+>"?', after.decode().split("\n")[0])
    assert b"zeus" not in after


def test_a_policy_includes_excludes_and_keeps(tmp_path: Path) -> None:
    run = reduce_dir(tmp_path)
    (run / "shrunken" / "shard.npy").write_bytes(b"\x93NUMPY\0data")
    (run / "notes.txt").write_text("ACME_SEED=77 at 10.11.12.13\n")
    refused = aorta("bundle", run, "--output", tmp_path / "out", "--no-check")
    assert refused.exit_code == 1
    assert "refused: shrunken/shard.npy: is not text" in refused.stderr
    (tmp_path / "policy.yaml").write_text(
        "include: [notes.txt, raw.bin]\nexclude: ['logs/*']\nkeep: [10.11.12.13]\n"
    )
    (run / "raw.bin").write_bytes(b"\0\1")
    options = ("--policy", tmp_path / "policy.yaml", "--allow-binary")
    _, bundle = packed(run, tmp_path / "out", *options)
    files = {name.split("/", 1)[1]: data for name, data in contents(bundle).items()}
    assert files["shrunken/shard.npy"] == b"\x93NUMPY\0data"
    assert files["raw.bin"] == b"\0\1"
    assert files["notes.txt"] == b"ACME_SEED=77 at 10.11.12.13\n"
    assert not [name for name in files if name.startswith("logs/")]
    assert b"shrunken/shard.npy" in files["SHIP.md"].split(b"Not scrubbed")[1]


def test_binary_data_of_the_program_leave_when_asked_and_are_counted(tmp_path: Path) -> None:
    run = reduce_dir(tmp_path)
    for number in range(15):
        (run / "shrunken" / f"shard{number}.npy").write_bytes(b"\x93NUMPY\0data")
    refused = aorta("bundle", run, "--output", tmp_path / "out", "--no-check")
    assert refused.exit_code == 1
    assert refused.stderr.count("is not text") <= 2  # one line, and the error that repeats it
    assert "(1 of 15 files)" in refused.stderr
    assert "--allow-binary" in refused.stderr
    done = aorta(
        "bundle", run, "--output", tmp_path / "out", "--no-check", "--allow-binary", "--ticket", "T"
    )
    assert done.exit_code == 0
    assert "15 binary files (0.0 MB) leave as they are" in done.stderr
    [bundle] = (tmp_path / "out").glob("*.tar.gz")
    assert sum(name.endswith(".npy") for name in contents(bundle)) == 15
    assert sum(file["unscrubbed"] for file in manifest_of(bundle)["files"]) == 15


def test_of_a_long_log_both_ends_ship_and_ship_md_says_so(tmp_path: Path) -> None:
    run = reduce_dir(tmp_path)
    lines = [f"step {number:09} ok\n" for number in range(480_000)]
    (run / "logs" / "long.log").write_text("".join(lines))
    _, bundle = packed(run, tmp_path / "out")
    files = {name.split("/", 1)[1]: data for name, data in contents(bundle).items()}
    log = files["logs/long.log"].decode()
    assert log.startswith(lines[0])
    assert log.endswith(lines[-1])
    assert len(log) < 8.1 * 2**20
    [middle] = [line for line in log.splitlines() if not line.startswith("step ")]
    assert "stay at its site" in middle
    left = int(re.findall(r"\d+", middle)[0])
    assert len("".join(lines)) == len(log) - len(middle) - 1 + left
    assert re.search(rb"bytes from the middle of `logs/long.log`", files["SHIP.md"])
    _, bundle = packed(run, tmp_path / "all", "--whole-logs")
    whole = next(data for name, data in contents(bundle).items() if name.endswith("long.log"))
    assert whole.decode() == "".join(lines)


@pytest.mark.parametrize(
    "printed",
    ["{}", "using {!r}", "x={}&y=1", "{b64}", "{hex}", "{capitals}", "{url}", "{pickled}"],
)
def test_values_of_secret_variables_are_gone_however_the_program_printed_them(
    printed: str, tmp_path: Path
) -> None:
    run, value = reduce_dir(tmp_path), "zeus/thunder+7 9"
    text = printed.format(
        value,
        b64=base64.b64encode(value.encode()).decode(),
        hex=value.encode().hex(),
        url=quote(value, safe=""),
        capitals=value.upper(),
        pickled=base64.b64encode(b"\x80\x04\x95\xff" + value.encode() + b"\xfe\x94.").decode(),
    )
    (run / "logs" / "said.log").write_text(f"connected: {text}\n")
    environment = {"MY_SECRET": value, "DB_PASSWORD": "other-1", "WANDB_API_KEY": "a" * 40}
    done = aorta("bundle", run, "--output", tmp_path / "out", "--no-check", env=environment)
    assert done.exit_code == 0, done.stderr
    [bundle] = (tmp_path / "out").glob("*.tar.gz")
    log = next(data for name, data in contents(bundle).items() if name.endswith("said.log"))
    assert b"<SECRET:" in log
    assert text.encode() not in log


def test_a_bundle_without_the_program_says_logs_only(tmp_path: Path) -> None:
    run = reduce_dir(tmp_path)
    said = "logs only: the program that failed is not in it"
    for expected in (False, True):
        done = aorta("bundle", run, "--output", tmp_path / f"out-{expected}", "--no-check")
        assert (said in done.stderr) is expected
        packed_files = contents(Path(done.stdout.strip()))
        ship = next(data for name, data in packed_files.items() if name.endswith("SHIP.md"))
        assert (said in ship.decode()) is expected
        shutil.rmtree(run / "shrunken", ignore_errors=True)


def test_a_wrong_policy_is_refused_where_it_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("scrubb: [x]\n")
    done = aorta(
        "bundle",
        reduce_dir(tmp_path),
        "--policy",
        tmp_path / "policy.yaml",
        "--output",
        tmp_path / "out",
    )
    assert done.exit_code == 2
    assert "policy.yaml: scrubb" in done.stderr


@pytest.mark.parametrize(
    ("answer", "written"), [("y\n", True), ("n\n", False), ("\n", False), ("", False)]
)
def test_review_shows_everything_and_writes_only_after_a_yes(
    answer: str, written: bool, tmp_path: Path
) -> None:
    run = reduce_dir(tmp_path)
    words = ("--output", tmp_path / "out", "--review", "--no-check", "--json")
    done = aorta("bundle", run, *words, stdin=answer)
    assert done.exit_code == (0 if written else 1)
    assert ("path" in done.json()) == written
    assert (done.json().get("error", {}).get("kind") == "refused") != written
    assert (
        bool(list((tmp_path / "out").glob("*.tar.gz")) if (tmp_path / "out").exists() else [])
        == written
    )
    assert "shrunken/run_repro.sh" in done.stderr
    assert f"/home/{USER}/proj/train.py -> <PATH:" in done.stderr
    assert f"{HOST} -> <HOST:" in done.stderr
    assert HF not in done.stderr
    page = re.search(r"file://(\S+)", done.stderr)
    assert page is not None
    assert not Path(page[1]).exists()


@pytest.mark.parametrize(
    ("name", "content", "hidden"),
    [
        ("reduction_trace.jsonl", '{"a": 1}\n{"half', r"<SECRET:\d+>"),
        ("spec.yaml", "command: [unclosed", r"<SECRET:\d+>"),
        ("shrunken/env.json", "not json", r"SECRET_\d+"),
        ("shrunken/shards/one.json", '{"a": 1, "a": 2}', r"SECRET_\d+"),
        ("shrunken/shards/one.yaml", "a: !!python/object:os.system 1", r"SECRET_\d+"),
    ],
)
def test_a_file_that_does_not_parse_is_text(
    name: str, content: str, hidden: str, tmp_path: Path
) -> None:
    run = reduce_dir(tmp_path)
    (run / name).write_text(f"{content} password=hunter-22")
    _, bundle = packed(run, tmp_path / "out")
    after = next(data for path, data in contents(bundle).items() if path.endswith(f"/{name}"))
    assert re.fullmatch(f"{re.escape(content)} password={hidden}", after.decode())


def test_one_cycle_of_a_launch_is_packed_with_the_logs_of_its_ranks(tmp_path: Path) -> None:
    cycle = next(copied(MAKERS["launch"](), tmp_path).glob("cycle_*"))
    _, bundle = packed(cycle, tmp_path / "out", "--ticket", "GPU-8")
    names = {entry["path"] for entry in manifest_of(bundle)["files"]}
    assert {file.name for file in cycle.glob("rank_*")} <= names


def test_the_case_of_a_stopped_launch_is_packed_by_itself_too(tmp_path: Path) -> None:
    case = copied(MAKERS["launch"](), tmp_path) / "case"
    (case / "logs" / "trace_3").write_bytes(b"\x80\0pickle")
    done, bundle = packed(case, tmp_path / "out", "--ticket", "GPU-8")
    assert done.json()["left_out"] == 1
    names = {entry["path"] for entry in manifest_of(bundle)["files"]}
    assert names == {
        "SHIP.md",
        "aorta.yaml",
        "cycle_info.json",
        "elsewhere.yaml",
        "env.json",
        "finding.json",
        "logs/rank_0.err",
        "logs/rank_0.out",
        "workload/train.py",
    }


def test_the_archive_carries_no_user_no_host_and_no_time_but_the_runs() -> None:
    bundle = packed_run("reduce").bundle
    with tarfile.open(bundle) as archive:
        entries = archive.getmembers()
    assert {(entry.uid, entry.gid, entry.uname, entry.gname) for entry in entries} == {
        (0, 0, "", "")
    }
    assert len({entry.mtime for entry in entries}) == 1
    assert bundle.read_bytes()[4:8] == b"\0\0\0\0"
    assert gzip.decompress(bundle.read_bytes())


def test_a_full_or_closed_output_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    run = reduce_dir(tmp_path)
    (tmp_path / "file").write_text("")
    done = aorta("bundle", run, "--output", tmp_path / "file" / "out", "--json")
    assert done.exit_code == 5
    assert done.json()["error"]["kind"] == "infrastructure"
