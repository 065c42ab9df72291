"""`aorta bundle RUN_DIR` as a user runs it: what comes out, what stays here, what it says."""

import gzip
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.aorta_cli import Finished, aorta
from support.run_dirs import HF, HOST, MAKERS, PRIVATE_VALUES, USER, reduce_dir, triage_dir

EACH_VERB = pytest.mark.parametrize("verb", MAKERS)


def contents(bundle: Path) -> dict[str, bytes]:
    with tarfile.open(bundle) as archive:
        return {
            entry.name: read.read() for entry in archive if (read := archive.extractfile(entry))
        }


def packed(run: Path, output: Path, *options: str | Path, stdin: str = "") -> tuple[Finished, Path]:
    done = aorta("bundle", run, "--output", output, "--json", *options, stdin=stdin)
    assert done.exit_code == 0, done.stderr
    return done, Path(done.json()["path"])


def manifest_of(bundle: Path) -> Any:
    return json.loads(
        next(data for name, data in contents(bundle).items() if name.endswith("/manifest.json"))
    )


def state_of(run: Path) -> dict[str, tuple[int, bytes | None]]:
    return {
        str(path): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path in sorted(run.rglob("*"))
    }


@EACH_VERB
def test_a_run_directory_of_each_verb_is_packed_without_a_private_value(
    verb: str, tmp_path: Path
) -> None:
    run = MAKERS[verb](tmp_path)
    before = state_of(run)
    done, bundle = packed(run, tmp_path / "out")
    assert re.fullmatch(r"GPU-7-\d{8}T\d{6}Z\.tar\.gz", bundle.name)
    files = contents(bundle)
    tops = {name.split("/")[0] for name in files}
    assert len(tops) == 1
    everything = "\n".join([*files, *(data.decode() for data in files.values())])
    assert [value for value in PRIVATE_VALUES if value in everything] == []
    assert str(tmp_path) not in everything
    assert not [name for name in files if ".aorta" in name]
    document = done.json()
    assert document["schema"] == "aorta.bundle/1"
    assert document["files"] == len(files) - 1
    assert all(document["scrubbed"][group] for group in ("paths", "addresses", "secrets"))
    assert document["scrubbed"]["patterns"] == 0
    assert state_of(run) == before


@EACH_VERB
def test_verify_show_and_unpack_accept_what_pack_writes(verb: str, tmp_path: Path) -> None:
    _, bundle = packed(MAKERS[verb](tmp_path), tmp_path / "out")
    verified = aorta("bundle", "verify", bundle, "--json")
    assert verified.exit_code == 0
    assert verified.json()["signature"] == "none"
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
    run = MAKERS[verb](tmp_path)
    _, first = packed(run, tmp_path / "one")
    for path in run.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.touch()
    _, second = packed(run, tmp_path / "two")
    assert first.read_bytes() == second.read_bytes()


def test_two_bundles_of_one_second_do_not_overwrite_each_other(tmp_path: Path) -> None:
    run = reduce_dir(tmp_path)
    made = {packed(run, tmp_path / "out")[1] for _ in range(3)}
    assert len(made) == 3


def test_the_manifest_says_what_is_inside_and_what_was_taken_out_of_each_file(
    tmp_path: Path,
) -> None:
    done, bundle = packed(reduce_dir(tmp_path), tmp_path / "out")
    manifest = manifest_of(bundle)
    assert manifest["schema"] == "aorta.bundle_manifest/1"
    assert manifest["ticket"] == "GPU-7"
    assert manifest["verb"] == "reduce"
    entries = {entry["path"]: entry for entry in manifest["files"]}
    assert entries["shrunken/env.json"]["scrubbed"]["secrets"] == 2
    assert entries["shrunken/shapes.txt"]["scrubbed"] == {}
    totals = {
        group: sum(e["scrubbed"].get(group, 0) for e in entries.values())
        for group in manifest["scrubbed"]
    }
    assert totals == manifest["scrubbed"] == done.json()["scrubbed"]


def test_a_recipe_that_points_into_the_run_directory_still_does_after_unpacking_elsewhere(
    tmp_path: Path,
) -> None:
    _, bundle = packed(reduce_dir(tmp_path), tmp_path / "out")
    unpacked = aorta("bundle", "unpack", bundle, tmp_path / "there", "--json").json()
    recipe = Path(unpacked["directory"]) / "shrunken" / "recipe.resolved.yaml"
    assert unpacked["next"] == [f"aorta triage run --recipe {recipe}"]
    config = yaml.safe_load(recipe.read_text("utf-8"))["workload_config"]
    assert (recipe.parent / config["cwd"]).resolve() == recipe.parent.resolve()
    assert config["command"] == "sh repro.sh"
    assert (recipe.parent / "run_repro.sh").stat().st_mode & 0o111
    assert not (recipe.parent / "shapes.txt").stat().st_mode & 0o111


def test_ship_md_keeps_the_runs_own_words_and_says_what_was_removed(tmp_path: Path) -> None:
    _, bundle = packed(reduce_dir(tmp_path), tmp_path / "out")
    ship = next(
        data.decode() for name, data in contents(bundle).items() if name.endswith("SHIP.md")
    )
    assert ship.startswith("# What is shared\n\nmade on <HOST:")
    assert "- `shrunken/run_repro.sh`" in ship
    assert re.search(r"- \d+ secrets, as `<SECRET:n>`", ship)


def test_a_log_stays_readable_and_one_value_has_one_placeholder_across_files(
    tmp_path: Path,
) -> None:
    _, bundle = packed(reduce_dir(tmp_path), tmp_path / "out")
    files = {name.split("/", 1)[1]: data.decode() for name, data in contents(bundle).items()}
    log = next(text for name, text in files.items() if name.startswith("logs/trial_0_HOST-"))
    assert log.endswith("loss=nan at step 137\n")
    host = re.search(r"starting on (<HOST:\d+>), user <USER:\d+>", log)
    assert host is not None
    assert json.loads(files["shrunken/env.json"])["hostname"] == host[1]
    assert json.loads(files["shrunken/env.json"])["env_vars"]["NCCL_DEBUG"] == "INFO"


def test_the_ticket_given_goes_before_the_runs_own_and_none_at_all_is_one_clear_line(
    tmp_path: Path,
) -> None:
    run = triage_dir(tmp_path, ticket=None)
    refused = aorta("bundle", run, "--output", tmp_path / "out")
    assert refused.exit_code == 2
    assert refused.stderr.count("\n") == 1
    assert "--ticket" in refused.stderr
    assert not (tmp_path / "out").exists()
    _, bundle = packed(run, tmp_path / "out", "--ticket", "ACME/9")
    assert bundle.name.startswith("ACME_9-2")


def test_a_reduce_directory_without_metadata_takes_the_ticket_its_output_was_named_by(
    tmp_path: Path,
) -> None:
    run = reduce_dir(tmp_path, ticket="MY-TICKET")
    (run / ".aorta" / "run.json").unlink()
    _, bundle = packed(run, tmp_path / "out")
    assert bundle.name.startswith("MY-TICKET-2")


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
    (tmp_path / "patterns").write_text("# ours\nhera-*\n")
    (tmp_path / "policy.yaml").write_text("scrub: [apollo-v5]\n")
    options = (
        "--scrub",
        r"zeus*,re:ares\.v\d",
        "--redaction-from",
        tmp_path / "patterns",
        "--policy",
        tmp_path / "policy.yaml",
    )
    done, bundle = packed(run, tmp_path / "out", *options)
    everything = "\n".join(
        [*contents(bundle), *(data.decode() for data in contents(bundle).values())]
    )
    assert [word for word in ("zeus", "hera", "apollo", "ares") if word in everything] == []
    assert done.json()["scrubbed"]["patterns"] == 4


def test_a_policy_includes_excludes_keeps_and_lets_binary_pass(tmp_path: Path) -> None:
    run = reduce_dir(tmp_path)
    (run / "shrunken" / "shard.npy").write_bytes(b"\x93NUMPY\0data")
    (run / "notes.txt").write_text("ACME_SEED=77 at 10.11.12.13\n")
    refused = aorta("bundle", run, "--output", tmp_path / "out")
    assert refused.exit_code == 1
    assert "refused: shrunken/shard.npy: is not text" in refused.stderr
    (tmp_path / "policy.yaml").write_text(
        "binary: ['shrunken/*.npy']\ninclude: [notes.txt]\nexclude: ['logs/*']\n"
        "keep: [10.11.12.13]\nsecret_names: ['ACME_*']\n"
    )
    _, bundle = packed(run, tmp_path / "out", "--policy", tmp_path / "policy.yaml")
    files = {name.split("/", 1)[1]: data for name, data in contents(bundle).items()}
    assert files["shrunken/shard.npy"] == b"\x93NUMPY\0data"
    assert files["notes.txt"] == b"ACME_SEED=77 at 10.11.12.13\n"
    assert not [name for name in files if name.startswith("logs/")]
    assert b"shrunken/shard.npy" in files["SHIP.md"].split(b"Not scrubbed")[1]


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
    done = aorta("bundle", run, "--output", tmp_path / "out", "--review", stdin=answer)
    assert done.exit_code == (0 if written else 1)
    assert (
        bool(list((tmp_path / "out").glob("*.tar.gz")) if (tmp_path / "out").exists() else [])
        == written
    )
    assert "shrunken/run_repro.sh" in done.stderr
    assert f"/home/{USER}/proj/train.py -> <PATH:" in done.stderr
    assert f"{HOST} -> <HOST:" in done.stderr
    assert HF not in done.stderr


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("result.json", '{"schema": "aorta.reduce/1", "x": '),
        ("reduction_trace.jsonl", '{"a": 1}\n{"half'),
        ("spec.yaml", "command: [unclosed"),
        ("shrunken/env.json", "not json hf_secret"),
    ],
)
def test_a_file_that_should_parse_and_does_not_fails_closed(
    name: str, content: str, tmp_path: Path
) -> None:
    run = reduce_dir(tmp_path)
    (run / name).write_text(content)
    done = aorta("bundle", run, "--output", tmp_path / "out")
    assert done.exit_code == 1
    assert f"refused: {name}: " in done.stderr
    assert "hf_secret" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_case_of_a_stopped_launch_is_packed_by_itself_too(tmp_path: Path) -> None:
    case = MAKERS["launch"](tmp_path) / "case"
    (case / "logs" / "trace_3").write_bytes(b"\x80\0pickle")
    done, bundle = packed(case, tmp_path / "out", "--ticket", "GPU-8")
    assert done.json()["left_out"] == 1
    names = {entry["path"] for entry in manifest_of(bundle)["files"]}
    assert names == {
        "SHIP.md",
        "aorta.yaml",
        "cycle_info.json",
        "env.json",
        "finding.json",
        "logs/rank_0.err",
    }


def test_the_archive_carries_no_user_no_host_and_no_time_but_the_runs(tmp_path: Path) -> None:
    _, bundle = packed(reduce_dir(tmp_path), tmp_path / "out")
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
