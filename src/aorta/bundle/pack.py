"""Packing: learn what is private from everything that ships, scrub everything, write the archive.

Paths into the run directory become relative to the file they stand in, so that a shipped recipe
runs on another path.
"""

import gc
import gzip
import hashlib
import io
import os
import posixpath
import re
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO

from aorta.bundle.archive import MANIFEST, Checked, FileEntry, Manifest, RefusedError, problem_with
from aorta.bundle.layouts import LOGS_ONLY, is_log, read_policy
from aorta.bundle.source import (
    Member,
    RunSource,
    collect,
    open_source,
    read_member,
    secret_values,
    this_site,
)
from aorta.core.errors import InfrastructureError
from aorta.core.names import slug
from aorta.core.stats import counted
from aorta.engine.rundir import OF_THIS_DIRECTORY, SHIP, RunDir
from aorta.executors.evidence import TAIL, read_end
from aorta.scrub.files import (
    Account,
    FileScrubber,
    NotTextError,
    as_bytes,
    as_text,
    is_program,
    learn_document,
)
from aorta.scrub.findings import GROUPS, Kind, SecretSpan, as_plain_word
from aorta.scrub.known import split_patterns
from aorta.scrub.scrubber import LOOKED_FOR, Rules, Scrubbed, Scrubber


def relocated(
    path: str, pieces: Iterable[bytes], roots: Sequence[str], account: Account
) -> Iterator[bytes]:
    """The file `path` with every way to a root of the run made relative, in whole lines."""
    here = posixpath.relpath(".", str(PurePosixPath(path).parent))
    longest_first = sorted(roots, key=len, reverse=True)
    one_of = "|".join(map(re.escape, longest_first))
    pattern = re.compile(rf"(?<![\w./\-])(?:{one_of})(?![\w.\-])")
    line = 1
    for part in pieces:
        if any(as_bytes(root) in part for root in longest_first):
            text = as_text(part)
            found = (SecretSpan(*m.span(), Kind.PATH, m.group()) for m in pattern.finditer(text))
            moved = Scrubbed.of(text, ((one, here) for one in found), line=line)
            account.add(moved)
            yield as_bytes(moved.text)
        else:
            yield part
        line += part.count(b"\n")


@dataclass(frozen=True)
class PackedFile:
    entry: FileEntry
    start: int  # in the spool
    executable: bool
    account: Account

    @property
    def path(self) -> str:
        return self.entry.path


@dataclass(frozen=True)
class Prepared:
    source: RunSource
    ticket: str
    files: tuple[PackedFile, ...]  # without SHIP.md
    left_out: tuple[str, ...]
    own_ship: str  # what the run says of what it shares
    spool: IO[bytes]

    @property
    def scrubbed(self) -> dict[str, int]:
        found = Counter(dict.fromkeys(GROUPS.values(), 0))
        for file in self.files:
            found.update(file.account.groups)
        return dict(found)

    @property
    def name(self) -> str:
        return slug(as_plain_word(self.ticket))


@dataclass(frozen=True, kw_only=True)
class BundleRequest:
    """Which run to pack, where to, and what must not leave."""

    run_dir: Path
    output: Path = Path()
    ticket: str | None = None  # None: the one that the run itself names
    scrub: tuple[str, ...] = ()  # text to take out besides what is found
    policy: Path | None = None  # a file of the site's rules
    whole_logs: bool = False  # not only the first 1 MiB and the last 7 MiB of each
    allow_binary: bool = False  # files that are no text may leave as they are
    check: bool = True  # run the reproducer from where the bundle is unpacked
    timeout: float | None = None  # of one such run, in seconds


@contextmanager
def prepared(request: BundleRequest) -> Iterator[Prepared]:
    """Read every file twice, refuse, scrub into a spool that is removed afterwards."""
    policy = read_policy(request.policy)
    source = open_source(request.run_dir, request.ticket)
    found = collect(
        source, policy, whole_logs=request.whole_logs, allow_binary=request.allow_binary
    )
    _refuse(found.problems, source)
    given = (pattern for option in request.scrub for pattern in split_patterns(option))
    rules = Rules(
        patterns=(*policy.scrub, *given, *RunDir(request.run_dir).about().get("scrub", ())),
        keep=tuple(policy.keep),
        values=secret_values(),
        identity=this_site(request.run_dir),
    )
    with _spool(request.output) as spool:
        logs = filter(is_log, [*(member.path for member in found.members), *found.left_out])
        printed = (as_text(read_end(source.root / log, TAIL)) for log in logs)
        packing = _Packing(source, FileScrubber(Scrubber(rules), printed), spool)
        gc.disable()  # millions of small things, and no cycles: the collector costs a fifth
        try:
            packing.learn(found.members, found.left_out, request.allow_binary)
            first = sorted(found.members, key=lambda member: member.ours)
            files = [packing.add(member) for member in first if member.path != SHIP]
        finally:
            gc.enable()
        _check_names([*(file.path for file in files), SHIP, MANIFEST], source)
        yield Prepared(
            source,
            packing.scrubber.text(source.ticket).text,
            tuple(sorted(files, key=lambda file: file.path)),
            tuple(map(packing.scrubber.file_name, found.left_out)),
            packing.own_ship(found.members),
            spool,
        )


class _Packing:
    def __init__(self, source: RunSource, files: FileScrubber, spool: IO[bytes]) -> None:
        self.source = source
        self.files, self.scrubber = files, files.scrubber
        self.spool = spool
        self._binary: set[str] = set()
        self._roots = sorted({str(source.root.absolute()), str(source.root.resolve())})

    def learn(self, members: Sequence[Member], left_out: Sequence[str], allow_binary: bool) -> None:
        names = [*(member.path for member in members), *left_out]
        self.scrubber.learn("\n".join([*names, *self._roots, self.source.ticket]))
        for document in self.source.private_documents():
            learn_document(self.scrubber, document)
        for member in members:
            try:
                moved = relocated(member.path, read_member(member), self._roots, Account())
                self.files.learn(member.path, moved, ours=member.ours)
            except NotTextError:
                self._binary.add(member.path)
        if self._binary and not allow_binary:
            what = f"is not text (1 of {len(self._binary)} files); --allow-binary ships it as it is"
            _refuse([f"{min(self._binary)}: {what}"], self.source)

    def add(self, member: Member) -> PackedFile:
        account, content = Account(), hashlib.sha256()
        start = self.spool.seek(0, os.SEEK_END)
        for piece in self._pieces(member, account):
            content.update(piece)
            self.spool.write(piece)
        entry = FileEntry(
            path=self.scrubber.file_name(member.path),
            sha256=content.hexdigest(),
            bytes=self.spool.tell() - start,
            scrubbed=account.groups,
            unscrubbed=member.path in self._binary,
            left_out_bytes=member.cut,
        )
        return PackedFile(entry, start, member.executable, account)

    def own_ship(self, members: Sequence[Member]) -> str:
        """What the run says of what it shares, without what it says of its own directory."""
        own = [piece for m in members if m.path == SHIP for piece in self._pieces(m, Account())]
        return b"".join(own).decode("utf-8", "replace").partition(OF_THIS_DIRECTORY)[0].strip("\n")

    def _pieces(self, member: Member, account: Account) -> Iterator[bytes]:
        given = read_member(member)
        if member.path in self._binary:
            return given
        moved = relocated(member.path, given, self._roots, account)
        return self.files.scrub(member.path, moved, account, ours=member.ours)


@contextmanager
def _spool(near: Path) -> Iterator[IO[bytes]]:
    try:
        with tempfile.TemporaryFile(dir=near if near.is_dir() else None) as file:
            yield file
    except OSError as wrong:
        raise InfrastructureError(f"cannot write: {wrong.strerror}", where=str(near)) from None


def _check_names(paths: list[str], source: RunSource) -> None:
    problems = [f"{path}: {problem}" for path in paths if (problem := problem_with(path))]
    twice = [path for path, count in Counter(paths).items() if count > 1]
    _refuse([*problems, *(f"{path}: two files have this name" for path in twice)], source)


def _refuse(problems: Sequence[str], source: RunSource) -> None:
    if problems:
        raise RefusedError(problems, where=str(source.root))


UNKNOWN = (
    "names of models, projects, customers and data sets that look like ordinary words",
    "names of people in free text, and what a sentence gives away",
    "what the source, the data and the shapes themselves tell about the work",
    "a secret without a shape that stands behind no name that announces one",
    "a known secret of fewer than six characters, where nothing announces it",
    "what a picture, a sound or another binary file shows",
)


def write(prepared: Prepared, output: Path, checked: Checked | None = None) -> Path:
    """`<output>/<ticket>-<UTC>.tar.gz`, whole or not at all."""
    ship = "\n".join([*_ship_lines(prepared, checked), ""]).encode()
    manifest = _manifest(prepared, ship, checked).to_bytes()
    try:
        output.mkdir(parents=True, exist_ok=True)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        endings = ("", *(f"-{n}" for n in range(2, 1000)))
        paths = (output / f"{prepared.name}-{stamp}{ending}.tar.gz" for ending in endings)
        path = next(path for path in paths if not os.path.lexists(path))
        with tempfile.TemporaryDirectory(dir=output, prefix=".packing-") as scratch:
            draft = Path(scratch) / path.name
            with draft.open("wb") as file:
                _write_archive(prepared, {MANIFEST: manifest, SHIP: ship}, file)
                os.fsync(file.fileno())
            draft.rename(path)
    except OSError as wrong:
        raise InfrastructureError(f"cannot write: {wrong.strerror}", where=str(output)) from None
    return path


def _write_archive(prepared: Prepared, first: Mapping[str, bytes], out: IO[bytes]) -> None:
    """Reproducible bytes. Level 1 of gzip packs a log at 100 MB/s instead of 20, a fifth larger."""
    source = prepared.source
    top = slug(f"{prepared.name}-{source.created or source.layout.verb}")

    def header(name: str, size: int, executable: bool = False) -> tarfile.TarInfo:
        info = tarfile.TarInfo(f"{top}/{name}")
        info.size = size
        info.mode = 0o755 if executable else 0o644
        return info

    with (
        gzip.GzipFile("", "wb", 1, out, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, data in first.items():
            tar.addfile(header(name, len(data)), io.BytesIO(data))
        for file in prepared.files:
            prepared.spool.seek(file.start)
            tar.addfile(header(file.path, file.entry.bytes, file.executable), prepared.spool)


def rehearsed(prepared: Prepared, checked: Checked | None) -> str:
    """What the packed copy did when it was run, in a sentence; "" where there is none to run."""
    if checked is None:
        has_copy = prepared.source.layout.verb == "reduce"
        return "The reproducer was not run from this bundle." if has_copy else ""
    how = "Unpacked into an empty directory, with another home and user name, the reproducer"
    if checked.reproduces:
        return f"{how} failed the same way {checked.reproduced} of {checked.of} times."
    keep = "If a replaced value is the cause: `keep:` in a policy names what may leave."
    if not checked.of:
        return f"{how} could **not** be run: `{checked.why}`. {keep}"
    runs = f"{checked.of} runs; the last: `{checked.why}`"
    return f"{how} did **not** fail the same way ({runs}). {keep}"


def _ship_lines(prepared: Prepared, checked: Checked | None) -> Iterator[str]:
    layout, files = prepared.source.layout, prepared.files
    yield from (f"# {prepared.ticket}", "", f"A bundle made by `aorta {layout.verb}`.")
    if not any(is_program(file.path) for file in files):
        yield from ("", f"It is {LOGS_ONLY}.")
    if said := rehearsed(prepared, checked):
        yield from ("", said)
    yield from ("", "## Removed", "", *_removed(prepared), "")
    yield "The same value has the same placeholder everywhere; in names of files and in what runs"
    yield "it reads `HOST_1`."
    yield "No list of the removed values exists. `manifest.json` counts them file by file."
    yield from ("", "## What was looked for", "", *(f"- {line}" for line in LOOKED_FOR))
    yield "- values of the site's secret variables, also encoded, escaped or in capitals"
    yield from ("", "## What no scrubbing can know", "", *(f"- {line}" for line in UNKNOWN))
    yield from ("", "Name such words with `--scrub`, and look at everything with `--review`.")
    if raw := [f"- `{file.path}`" for file in files if file.entry.unscrubbed]:
        yield from ("", "## Not scrubbed: binary files that the site lets pass", "", *raw)
    if prepared.own_ship:
        yield from ("", "---", "", "What the run says of itself, before anything was replaced:")
        yield from ("", prepared.own_ship)


def _removed(prepared: Prepared) -> Iterator[str]:
    removed = prepared.scrubbed
    for group, count in removed.items():
        if count:
            kinds = ", ".join(f"`<{kind}:n>`" for kind, of in GROUPS.items() if of == group)
            yield f"- {count} {group}, as {kinds}"
    if not any(removed.values()):
        yield "- nothing had to be replaced"
    if prepared.left_out:
        left = counted(len(prepared.left_out), "file")
        yield f"- {left} of the run directory that a bundle does not carry"
    entries = (file.entry for file in prepared.files if file.entry.left_out_bytes)
    yield from (f"- {one.left_out_bytes} bytes from the middle of `{one.path}`" for one in entries)


def _manifest(prepared: Prepared, ship: bytes, checked: Checked | None) -> Manifest:
    of_ship = FileEntry(path=SHIP, sha256=hashlib.sha256(ship).hexdigest(), bytes=len(ship))
    entries = [*(file.entry for file in prepared.files), of_ship]
    return Manifest(
        ticket=prepared.ticket,
        verb=prepared.source.layout.verb,
        created=prepared.source.created,
        scrubbed=prepared.scrubbed,
        left_out=list(prepared.left_out),
        checked=checked,
        files=sorted(entries, key=lambda entry: entry.path),
    )
