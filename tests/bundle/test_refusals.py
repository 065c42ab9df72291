"""Whatever is not simply a file of the run directory is refused, with a line that says which and
why.
"""

import base64
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from aorta.bundle.archive import RefusedError
from aorta.bundle.layouts import Policy
from aorta.bundle.pack import BundleRequest, PackedFile, prepared
from aorta.bundle.source import collect, open_source, read_member
from aorta.scrub.files import FileScrubber, ScrubError
from support import real_runs
from support.real_runs import HF, copied


def reduce_dir(tmp_path: Path) -> Path:
    return copied(real_runs.reduce_dir(), tmp_path)


def prepare(run: Path, policy: Path | None = None) -> tuple[PackedFile, ...]:
    with prepared(BundleRequest(run_dir=run, output=run.parent, policy=policy)) as found:
        return found.files


def problems(run: Path, policy: Path | None = None) -> tuple[str, ...]:
    with pytest.raises(RefusedError) as refused:
        prepare(run, policy)
    return refused.value.problems


def _symlink_out(run: Path) -> None:
    (run.parent / "outside.txt").write_text("secret")
    (run / "logs" / "odd").symlink_to(run.parent / "outside.txt")


def _symlinked_folder_out(run: Path) -> None:
    (run / "logs" / "odd").symlink_to("/etc")


def _broken_symlink(run: Path) -> None:
    (run / "logs" / "odd").symlink_to("nowhere")


def _symlink_loop(run: Path) -> None:
    (run / "logs" / "odd").symlink_to("odd")


def _symlink_to_private_state(run: Path) -> None:
    (run / "logs" / "odd").symlink_to("../.aorta/journal.jsonl")


def _pipe(run: Path) -> None:
    os.mkfifo(run / "shrunken" / "odd")


def _device(run: Path) -> None:
    os.mknod(run / "shrunken" / "odd", 0o600 | 0o020000, os.makedev(1, 3))


def _name_with_newline(run: Path) -> None:
    (run / "shrunken" / "odd\nname").write_text("x")


def _name_not_utf8(run: Path) -> None:
    (Path(os.fsdecode(bytes(run / "shrunken") + b"/odd\xff"))).write_text("x")


def _very_long_path(run: Path) -> None:
    folder = run / "shrunken" / "odd" / ("d" * 120) / ("e" * 120)
    folder.mkdir(parents=True)
    (folder / "f.txt").write_text("x")


def _binary(run: Path) -> None:
    (run / "shrunken" / "odd").write_bytes(b"\0\1")


ODD: dict[str, tuple[Callable[[Path], None], str]] = {
    "symlink to a file outside": (_symlink_out, "leaves the directory"),
    "symlink to a folder outside": (_symlinked_folder_out, "leaves the directory"),
    "symlink to nothing": (_broken_symlink, "leads nowhere"),
    "symlink to itself": (_symlink_loop, "leads nowhere"),
    "symlink into the private state": (_symlink_to_private_state, "leaves the directory"),
    "named pipe": (_pipe, "pipe"),
    "device": (_device, "device"),
    "newline in a name": (_name_with_newline, "some systems forbid"),
    "name that is not utf-8": (_name_not_utf8, "not UTF-8"),
    "very long path": (_very_long_path, "bytes"),
    "binary data": (_binary, "is not text"),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_file_is_refused_with_a_line_of_its_own(name: str, tmp_path: Path) -> None:
    run = reduce_dir(tmp_path)
    plant, reason = ODD[name]
    plant(run)
    [problem] = problems(run)
    assert "odd" in problem.lower()
    assert reason in problem


def test_every_odd_file_is_named_at_once(tmp_path: Path) -> None:
    run = reduce_dir(tmp_path)
    _symlink_out(run)
    _pipe(run)
    assert len(problems(run)) == 2


def test_links_that_stay_inside_are_packed_as_the_files_they_lead_to(tmp_path: Path) -> None:
    run = reduce_dir(tmp_path)
    (run / "shrunken" / "also.txt").symlink_to("shards/one.txt")
    (run / "shrunken" / "here").symlink_to(".")
    (run / "shrunken" / "more").symlink_to("shards")
    os.link(run / "shrunken" / "shards" / "one.txt", run / "shrunken" / "twin.txt")
    files = {file.path: file.entry.sha256 for file in prepare(run)}
    one = files["shrunken/shards/one.txt"]
    assert one == files["shrunken/also.txt"] == files["shrunken/twin.txt"]
    assert one == files["shrunken/more/one.txt"]
    assert not [path for path in files if "here" in path]


def test_a_file_that_grows_while_it_is_packed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = reduce_dir(tmp_path)
    trace = run / "reduction_trace.jsonl"

    learn = FileScrubber.learn

    def grow_after_reading(
        self: FileScrubber, name: str, pieces: Iterable[bytes], *, ours: bool
    ) -> None:
        learn(self, name, pieces, ours=ours)
        with trace.open("a") as file:
            file.write("{}\n")

    monkeypatch.setattr(FileScrubber, "learn", grow_after_reading)
    assert "changed while it was being packed" in problems(run)[0]


def test_a_file_swapped_for_a_link_after_it_was_found_is_not_followed(tmp_path: Path) -> None:
    run = reduce_dir(tmp_path)
    source = open_source(run, None)
    found = collect(source, Policy())
    member = next(member for member in found.members if member.path == "spec.yaml")
    (run / "spec.yaml").unlink()
    (run / "spec.yaml").symlink_to("/etc/hostname")
    with pytest.raises(RefusedError):
        list(read_member(member))


def test_two_keys_that_become_one_fail_closed(tmp_path: Path) -> None:
    run = reduce_dir(tmp_path)
    twice = {HF: 1, base64.b64encode(HF.encode()).decode(): 2}
    (run / "shrunken" / "env.json").write_text(json.dumps(twice))
    with pytest.raises(ScrubError, match="two keys become"):
        prepare(run)


def test_a_directory_with_nothing_to_ship_is_refused(tmp_path: Path) -> None:
    run = reduce_dir(tmp_path)
    (tmp_path / "policy.yaml").write_text("exclude: ['*']\n")
    assert problems(run, tmp_path / "policy.yaml") == ("the directory holds no file that ships",)
