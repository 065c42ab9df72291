"""Packing: learn what is private from everything that ships, and take it out of everything.

`prepared` reads every file twice, piece by piece, into a spool that nobody else sees;
`writing.write` puts the archive beside the user's other files. Between the two the reproducer is
rehearsed, and the user may look (`--review`) and say no.

Paths into the run directory itself stay useful: they become relative to the file they stand in.
That is what lets a shipped recipe run on another path: a relative path in a recipe is relative to
the recipe.
"""

import gc
import hashlib
import os
import posixpath
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from aorta.bundle.layouts import Policy, is_program
from aorta.bundle.manifest import MANIFEST, RefusedError, doubles, problem_with
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
from aorta.engine.rundir import SHIP
from aorta.scrub.encodings import as_bytes, as_text
from aorta.scrub.files import Account, FileScrubber, NotTextError
from aorta.scrub.findings import GROUPS, Kind, as_file_name
from aorta.scrub.scrubber import Rules, Scrubbed, Scrubber
from aorta.scrub.structure import learn_document


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
            found = [(*match.span(), Kind.PATH, here) for match in pattern.finditer(text)]
            moved = Scrubbed.of(text, found)
            account.add_scrubbed(moved, line)
            yield as_bytes(moved.text)
        else:
            yield part
        line += part.count(b"\n") if account.room else 0


_LARGEST_SHIP = 4 << 20


@dataclass(frozen=True)
class PackedFile:
    """One file as it will leave; its content is in the spool."""

    path: str
    start: int  # in the spool
    size: int
    sha256: str
    executable: bool
    account: Account = field(default_factory=Account)
    unscrubbed: bool = False
    cut: int = 0  # bytes of a log that stay here

    @property
    def taken(self) -> int:
        """How many stretches of it were replaced."""
        return self.account.counts.total()


@dataclass(frozen=True)
class Prepared:
    """Everything a bundle will hold; nothing is written yet."""

    source: RunSource
    ticket: str
    files: tuple[PackedFile, ...]  # without SHIP.md, which says of the others what became of them
    left_out: tuple[str, ...]
    own_ship: tuple[str, Account] | None
    spool: IO[bytes]

    @property
    def scrubbed(self) -> dict[str, int]:
        found = Counter(dict.fromkeys(GROUPS.values(), 0))
        accounts = [file.account for file in self.files]
        for account in [*accounts, self.own_ship[1]] if self.own_ship else accounts:
            found.update(account.groups)
        return dict(found)

    @property
    def logs_only(self) -> bool:
        """Nothing in it can be run."""
        return not any(is_program(file.path) for file in self.files)

    @property
    def name(self) -> str:
        return slug(as_file_name(self.ticket))

    @property
    def top(self) -> str:
        return f"{self.name}-{self.source.top}"


@contextmanager
def prepared(
    run_dir: Path,
    ticket: str | None,
    policy: Policy,
    patterns: Sequence[str],
    near: Path,
    *,
    whole_logs: bool = False,
    allow_binary: bool = False,
) -> Iterator[Prepared]:
    """Read, refuse, scrub, check. The spool lies in `near` if it exists, and is removed."""
    source = open_source(run_dir, ticket)
    found = collect(source, policy, whole_logs=whole_logs, allow_binary=allow_binary)
    _refuse(found.problems, source)
    rules = Rules(
        patterns=tuple(patterns),
        secret_names=tuple(policy.secret_names),
        keep=tuple(policy.keep),
        values=secret_values(),
        identity=this_site(run_dir),
    )
    with _spool(near) as spool:
        packing = _Packing(source, FileScrubber(Scrubber(rules)), spool)
        with _without_collector():
            packing.learn(found.members, found.left_out, allow_binary)
            files = [packing.add(member) for member in found.members if member.path != SHIP]
        _check_names([*(file.path for file in files), SHIP], source)
        yield Prepared(
            source,
            packing.scrubbed_ticket(),
            tuple(sorted(files, key=lambda file: file.path)),
            tuple(map(packing.scrubber.file_name, found.left_out)),
            packing.ship(next((m for m in found.members if m.path == SHIP), None)),
            spool,
        )


class _Packing:
    """One bundle's way from the run directory into the spool."""

    def __init__(self, source: RunSource, files: FileScrubber, spool: IO[bytes]) -> None:
        self.source = source
        self.files = files
        self.spool = spool
        self._binary: set[str] = set()
        self._roots = sorted({str(source.root.absolute()), str(source.root.resolve())})

    @property
    def scrubber(self) -> Scrubber:
        return self.files.scrubber

    def scrubbed_ticket(self) -> str:
        return self.scrubber.text(self.source.ticket).text

    def learn(self, members: Sequence[Member], left_out: Sequence[str], allow_binary: bool) -> None:
        """First reading of every file. All that cannot be scrubbed is named at once."""
        problems: list[str] = []
        data: list[Member] = []  # of the program, and no text
        names = [*(member.path for member in members), *left_out]
        self.scrubber.learn("\n".join([*names, *self._roots, self.source.ticket]))
        for document in self.source.private_documents():
            learn_document(self.scrubber, document)
        for member in members:
            if member.binary:
                continue
            try:
                moved = relocated(member.path, read_member(member), self._roots, Account())
                self.files.learn(member.path, moved, ours=member.ours)
            except NotTextError:
                if is_program(member.path):
                    data.append(member)
                else:
                    problems.append(
                        f"{member.path}: is not text and cannot be scrubbed; "
                        "exclude it, or let it pass as it is with `binary:` in a policy"
                    )
        self._binary = {member.path for member in data}
        if data and not allow_binary:
            problems.append(_binaries(data))
        _refuse(problems, self.source)

    def add(self, member: Member) -> PackedFile:
        account, content = Account(), hashlib.sha256()
        start = self.spool.seek(0, os.SEEK_END)
        for piece in self._pieces(member, account):
            content.update(piece)
            self.spool.write(piece)
        return PackedFile(
            self.scrubber.file_name(member.path),
            start,
            self.spool.tell() - start,
            content.hexdigest(),
            member.executable,
            account,
            self._is_binary(member),
            member.cut,
        )

    def _is_binary(self, member: Member) -> bool:
        return member.binary or member.path in self._binary

    def ship(self, member: Member | None) -> tuple[str, Account] | None:
        if member is None:
            return None
        account = Account()
        data = b"".join(self._pieces(member, account))[:_LARGEST_SHIP]
        return data.decode("utf-8", "replace"), account

    def _pieces(self, member: Member, account: Account) -> Iterator[bytes]:
        given = read_member(member)
        if self._is_binary(member):
            return given
        moved = relocated(member.path, given, self._roots, account)
        return self.files.scrub(member.path, moved, account, ours=member.ours)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Scrubbing makes millions of small things and no cycles; the collector costs a third."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def _spool(near: Path) -> Iterator[IO[bytes]]:
    """A file without a name: whatever ends this process, nothing of it is left."""
    try:
        with tempfile.TemporaryFile(dir=near if near.is_dir() else None) as file:
            yield file
    except OSError as wrong:
        raise InfrastructureError(f"cannot write: {wrong.strerror}", where=str(near)) from None


def _binaries(data: Sequence[Member]) -> str:
    named = ", ".join(member.path for member in data[:3])
    more = f" and {len(data) - 3} more" if len(data) > 3 else ""
    size = sum(member.identity[2] for member in data) / 1e6
    return (
        f"{named}{more}: is not text and cannot be scrubbed ({len(data)} files of the program's "
        f"data, {size:.1f} MB); let them leave as they are with --allow-binary, or exclude them in "
        "a policy"
    )


def _check_names(paths: list[str], source: RunSource) -> None:
    problems = [f"{path}: {problem}" for path in paths if (problem := problem_with(path))]
    problems += [
        f"{one} and {other}: are one name on some systems; rename one"
        for one, other in doubles([MANIFEST, *paths])
    ]
    _refuse(problems, source)


def _refuse(problems: Sequence[str], source: RunSource) -> None:
    if problems:
        raise RefusedError(problems, where=str(source.root))
