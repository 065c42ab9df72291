"""Archives nobody vouches for: each one is refused in one line, and nothing of it reaches the
disk.
"""

import gzip
import random
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.bundle.archive import BundleError, unpack, verify
from support.aorta_cli import aorta
from support.hostile import TOP, Forged, manifest_for, ordinary_tarball

GOOD = f"{TOP}/a.txt"


def forged(*names: str) -> Forged:
    archive = Forged()
    for name in names:
        archive.file(name)
    return archive


def linked(kind: bytes, target: str) -> Forged:
    return Forged().file(GOOD, b"", type=kind, linkname=target)


def with_manifest(**changes: object) -> Forged:
    return Forged(manifest={**manifest_for([("a.txt", b"x\n")]), **changes}).file(GOOD)


def entry_of(**changes: object) -> dict[str, object]:
    return {**manifest_for([("a.txt", b"x\n")])["files"][0], **changes}


HOSTILE: dict[str, Callable[[], Forged]] = {
    "traversal up": lambda: forged(f"{TOP}/../../etc/cron.d/x"),
    "traversal first": lambda: forged("../x"),
    "absolute": lambda: forged("/etc/passwd"),
    "dot part": lambda: forged(f"{TOP}/./a.txt"),
    "empty part": lambda: forged(f"{TOP}//a.txt"),
    "backslash traversal": lambda: forged(f"{TOP}/..\\..\\x"),
    "second top folder": lambda: forged(GOOD, "other/a.txt"),
    "no folder": lambda: forged("a.txt"),
    "symbolic link": lambda: linked(tarfile.SYMTYPE, "/etc/passwd"),
    "hard link": lambda: linked(tarfile.LNKTYPE, "../../x"),
    "link and file through it": lambda: linked(tarfile.SYMTYPE, "/tmp").file(f"{GOOD}/x"),
    "character device": lambda: linked(tarfile.CHRTYPE, ""),
    "block device": lambda: linked(tarfile.BLKTYPE, ""),
    "named pipe": lambda: linked(tarfile.FIFOTYPE, ""),
    "folder entry": lambda: linked(tarfile.DIRTYPE, ""),
    "sparse file": lambda: Forged().file(GOOD, b"x", type=tarfile.GNUTYPE_SPARSE),
    "contiguous file": lambda: Forged().file(GOOD, b"x", type=tarfile.CONTTYPE),
    "long name extension": lambda: linked(tarfile.GNUTYPE_LONGNAME, ""),
    "extended header": lambda: linked(tarfile.XHDTYPE, ""),
    "global header": lambda: linked(tarfile.XGLTYPE, ""),
    "same name twice": lambda: forged(GOOD, GOOD),
    "right-to-left override": lambda: forged(f"{TOP}/log\u202etxt.exe"),
    "zero-width space": lambda: forged(f"{TOP}/a\u200b.txt"),
    "control character": lambda: forged(f"{TOP}/a\x1b[2J.txt"),
    "newline": lambda: forged(f"{TOP}/a\nb.txt"),
    "repository": lambda: forged(f"{TOP}/.git/config"),
    "repository by another case": lambda: forged(f"{TOP}/.GIT/hooks/post-checkout"),
    "home of root": lambda: forged(f"{TOP}/~root"),
    "option": lambda: forged(f"{TOP}/-rf"),
    "ticket of two lines": lambda: with_manifest(ticket="a\nb"),
    "ticket without end": lambda: with_manifest(ticket="a" * 300),
    "second manifest": lambda: forged(f"{TOP}/manifest.json"),
    "not in the manifest": lambda: Forged(manifest=manifest_for([])).file(GOOD),
    "missing from the archive": lambda: with_manifest(files=[entry_of(), entry_of(path="b.txt")]),
    "another hash": lambda: with_manifest(files=[entry_of(sha256="0" * 64)]),
    "another size": lambda: with_manifest(files=[entry_of(bytes=3)]),
    "negative size": lambda: with_manifest(files=[entry_of(bytes=-1)]),
    "odd hash": lambda: with_manifest(files=[entry_of(sha256="zz")]),
    "unknown key": lambda: with_manifest(run_me="rm -rf /"),
    "newer schema": lambda: with_manifest(schema="aorta.bundle_manifest/9"),
    "data after the end": lambda: Forged(tail=b"\0" * 1024 + b"hidden" * 100).file(GOOD),
    "declared bomb": lambda: with_manifest(files=[entry_of(bytes=2**50)]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_and_nothing_of_it_reaches_the_disk(
    name: str, tmp_path: Path
) -> None:
    bundle = HOSTILE[name]().write(tmp_path / "b.tar.gz")
    target = tmp_path / "deep" / "target"
    with pytest.raises(BundleError) as refused:
        verify(bundle)
    with pytest.raises(BundleError):
        unpack(bundle, target)
    assert "\n" not in str(refused.value)
    assert "\x1b" not in str(refused.value)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["b.tar.gz"]


def test_the_forger_makes_good_bundles_too(tmp_path: Path) -> None:
    bundle = forged(GOOD, f"{TOP}/sub/b.txt").write(tmp_path / "b.tar.gz")
    assert [file.path for file in verify(bundle).manifest.files] == ["a.txt", "sub/b.txt"]
    _, folder = unpack(bundle, tmp_path / "t")
    assert (folder / "sub" / "b.txt").read_bytes() == b"x\n"


def test_modes_and_owners_that_an_archive_claims_are_not_taken_over(tmp_path: Path) -> None:
    bundle = Forged().file(GOOD, mode=0o4777, uid=0, uname="root").write(tmp_path / "b.tar.gz")
    _, folder = unpack(bundle, tmp_path / "t")
    assert (folder / "a.txt").stat().st_mode & 0o7777 == 0o755
    assert (folder / "a.txt").stat().st_uid == tmp_path.stat().st_uid


def test_a_decompression_bomb_is_stopped_at_the_limit(tmp_path: Path) -> None:
    size = 64 * 2**20
    bundle = Forged().file(GOOD, b"\0" * size).write(tmp_path / "bomb.tar.gz")
    assert bundle.stat().st_size < 2**20
    with pytest.raises(BundleError, match="more than the limit"):
        unpack(bundle, tmp_path / "t", max_bytes=2**20)
    assert not (tmp_path / "t").exists()
    assert verify(bundle, max_bytes=2 * size).top == TOP


def test_a_bomb_inside_the_manifest_is_not_read(tmp_path: Path) -> None:
    entry = tarfile.TarInfo(f"{TOP}/manifest.json")
    entry.size = 40 * 2**20
    with tarfile.open(tmp_path / "b.tar.gz", "w:gz", format=tarfile.USTAR_FORMAT) as archive:
        archive.addfile(entry, BytesIO(b" " * entry.size))
    with pytest.raises(BundleError, match="too large"):
        verify(tmp_path / "b.tar.gz")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not gzip",
        gzip.compress(b""),
        gzip.compress(b"short"),
        gzip.compress(b"\0" * 1024),
        gzip.compress(b"x" * 2048),
    ],
    ids=["empty", "text", "nothing inside", "short", "only an end", "noise"],
)
def test_what_is_no_archive_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "b.tar.gz").write_bytes(data)
    with pytest.raises(BundleError):
        verify(tmp_path / "b.tar.gz")


def test_an_ordinary_tarball_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError):
        verify(ordinary_tarball(tmp_path / "o.tar.gz"))


def test_a_bundle_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    whole = forged(GOOD, f"{TOP}/b.txt").write(tmp_path / "whole.tar.gz").read_bytes()
    for length in range(0, len(whole), 7):
        (tmp_path / "cut.tar.gz").write_bytes(whole[:length])
        with pytest.raises(BundleError):
            verify(tmp_path / "cut.tar.gz")


@given(st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_no_damage_to_the_archive_goes_unseen_or_crashes(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    rng = random.Random(seed)
    folder = tmp_path_factory.mktemp("damage")
    raw = bytearray(
        gzip.decompress(forged(GOOD, f"{TOP}/b.txt").write(folder / "b.tar.gz").read_bytes())
    )
    before = bytes(raw)
    for _ in range(rng.randint(1, 4)):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    (folder / "b.tar.gz").write_bytes(gzip.compress(bytes(raw), mtime=0))
    try:
        verified = verify(folder / "b.tar.gz")
    except BundleError:
        return
    # What still verifies is one file list with right hashes: only free words of the manifest can
    # differ.
    assert [file.path for file in verified.manifest.files] == ["a.txt", "b.txt"]
    assert len(raw) == len(before)


def test_unpacking_twice_or_onto_something_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    bundle = forged(GOOD).write(tmp_path / "b.tar.gz")
    _, folder = unpack(bundle, tmp_path / "t")
    (folder / "a.txt").write_text("mine")
    done = aorta("bundle", "unpack", bundle, tmp_path / "t")
    assert done.exit_code == 2
    assert "already there" in done.stderr
    assert (folder / "a.txt").read_text() == "mine"
    assert [path.name for path in (tmp_path / "t").iterdir()] == [TOP]


def test_a_link_in_the_place_of_the_top_folder_is_not_followed(tmp_path: Path) -> None:
    bundle = forged(GOOD).write(tmp_path / "b.tar.gz")
    (tmp_path / "t").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "t" / TOP).symlink_to(tmp_path / "elsewhere")
    assert aorta("bundle", "unpack", bundle, tmp_path / "t").exit_code == 2
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_command_says_in_one_line_why_and_exits_1(tmp_path: Path) -> None:
    bundle = HOSTILE["symbolic link"]().write(tmp_path / "b.tar.gz")
    for arguments in (["verify", bundle], ["show", bundle], ["unpack", bundle, tmp_path / "t"]):
        done = aorta("bundle", *map(str, arguments), "--json")
        assert done.exit_code == 1
        assert done.json()["error"]["kind"] == "bundle"
        assert done.stderr.count("\n") == 1
    assert aorta("bundle", "verify", tmp_path / "nothing.tar.gz").exit_code == 2


def test_a_target_that_cannot_be_written_is_an_infrastructure_error(tmp_path: Path) -> None:
    bundle = forged(GOOD).write(tmp_path / "b.tar.gz")
    (tmp_path / "file").write_text("")
    assert aorta("bundle", "unpack", bundle, tmp_path / "file" / "t").exit_code == 5
    assert aorta("bundle", "unpack", bundle, tmp_path / "file").exit_code == 5
