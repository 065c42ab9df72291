"""Packing: learn what is private from everything that ships, take it out of everything, write one archive.

`prepare` does all of it in memory and touches nothing; `write` puts the archive beside the user's other files.
Between the two the user may look (`--review`) and say no.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from aorta.bundle.collect import Collected, Member, collect, digest, read_member
from aorta.bundle.errors import RefusedError
from aorta.bundle.identity import this_site
from aorta.bundle.manifest import MANIFEST, FileEntry, Manifest
from aorta.bundle.policy import Policy
from aorta.bundle.portable import doubles, problem_with
from aorta.bundle.relocate import relocated
from aorta.bundle.ship import SHIP, updated_ship
from aorta.bundle.source import Source, open_source
from aorta.bundle.tarball import Entry, write_tarball
from aorta.core.names import slug
from aorta.engine.rundir import write_atomically
from aorta.scrub.files import ScrubbedFile, is_text, learn_file, scrub_file
from aorta.scrub.scrubber import Rules, Scrubber, Span, count_groups
from aorta.scrub.structure import ScrubError

_MOST_IN_ONE_SECOND = 1000


@dataclass(frozen=True)
class PackedFile:
    """One file as it will leave."""

    path: str
    data: bytes
    executable: bool
    spans: tuple[Span, ...] = ()
    unscrubbed: bool = False


@dataclass(frozen=True)
class Prepared:
    """Everything a bundle will hold; nothing is written yet."""

    source: Source
    files: tuple[PackedFile, ...]
    left_out: tuple[str, ...]

    @property
    def scrubbed(self) -> dict[str, int]:
        return count_groups([span for file in self.files for span in file.spans])


def prepare(run_dir: Path, ticket: str | None, policy: Policy, patterns: Sequence[str]) -> Prepared:
    """Read, refuse, scrub, check."""
    source = open_source(run_dir, ticket)
    found = collect(source, policy)
    _refuse(found.problems, source)
    rules = Rules(
        patterns=tuple(patterns),
        secret_names=tuple(policy.secret_names),
        keep=tuple(policy.keep),
        identity=this_site(run_dir),
    )
    scrubber = Scrubber(rules)
    hashes = _learn(scrubber, found, source)
    files = [_scrubbed(scrubber, member, source, hashes[member.path]) for member in found.members]
    left_out = tuple(scrubber.file_name(path) for path in found.left_out)
    files = _with_ship(files, source, len(left_out))
    _check_names(files, source)
    return Prepared(source, tuple(sorted(files, key=lambda file: file.path)), left_out)


def write(prepared: Prepared, output: Path) -> Path:
    """`<output>/<ticket>-<UTC>.tar.gz`, whole or not at all."""
    name = slug(prepared.source.ticket)
    top = f"{name}-{prepared.source.top}"
    created = prepared.source.created
    when = int(created.timestamp()) if created else 0
    content = [(Entry(f"{top}/{MANIFEST}", len(raw := _manifest(prepared).to_bytes())), raw)]
    content += [
        (Entry(f"{top}/{file.path}", len(file.data), file.executable), file.data)
        for file in prepared.files
    ]
    path = _free_path(output, name)
    write_atomically(path, write_tarball(content, when))
    return path


def _learn(scrubber: Scrubber, found: Collected, source: Source) -> dict[str, str]:
    """First reading of every file. All that cannot be scrubbed is named at once."""
    hashes: dict[str, str] = {}
    problems: list[str] = []
    scrubber.learn("\n".join([*(member.path for member in found.members), *found.left_out]))
    for member in found.members:
        data = read_member(member)
        hashes[member.path] = digest(data)
        if member.binary:
            continue
        if not is_text(data):
            problems.append(
                f"{member.path}: is not text and cannot be scrubbed; "
                "exclude it, or let it pass as it is with `binary:` in a policy"
            )
            continue
        try:
            learn_file(scrubber, member.path, data)
        except ScrubError as wrong:
            problems.append(str(wrong))
    _refuse(problems, source)
    return hashes


def _scrubbed(scrubber: Scrubber, member: Member, source: Source, expected: str) -> PackedFile:
    data = read_member(member)
    if digest(data) != expected:
        raise RefusedError([f"{member.path}: changed while it was being packed"], where=member.path)
    name = scrubber.file_name(member.path)
    if member.binary:
        return PackedFile(name, data, member.executable, unscrubbed=True)
    roots = sorted({str(source.root.absolute()), str(source.root.resolve())})
    moved, spans = _relocated(member.path, data, roots)
    clean = scrub_file(scrubber, member.path, moved)
    _check_final(scrubber, member.path, clean)
    return PackedFile(name, clean.data, member.executable, (*spans, *clean.spans))


def _relocated(path: str, data: bytes, roots: Sequence[str]) -> tuple[bytes, tuple[Span, ...]]:
    text, spans = relocated(path, data.decode("utf-8", "surrogateescape"), roots)
    return (text.encode("utf-8", "surrogateescape"), spans) if spans else (data, ())


def _check_final(scrubber: Scrubber, path: str, clean: ScrubbedFile) -> None:
    """What was put together from scrubbed parts is scrubbed once more; if that still finds anything, nothing leaves."""
    if clean.put_together and scrub_file(scrubber, path, clean.data).spans:
        raise ScrubError(
            "scrubbing did not come to an end; leave the file out with a policy", where=path
        )


def _with_ship(files: list[PackedFile], source: Source, left_out: int) -> list[PackedFile]:
    before = next((file for file in files if file.path == SHIP), None)
    paths = sorted({MANIFEST, SHIP, *(file.path for file in files)})
    text = updated_ship(
        before.data.decode("utf-8", "replace") if before else None,
        ticket=source.ticket,
        layout=source.layout,
        files=paths,
        removed=count_groups([span for file in files for span in file.spans]),
        left_out=left_out,
        unscrubbed=[file.path for file in files if file.unscrubbed],
    )
    ship = PackedFile(SHIP, text.encode(), executable=False, spans=before.spans if before else ())
    return [*(file for file in files if file.path != SHIP), ship]


def _check_names(files: list[PackedFile], source: Source) -> None:
    paths = [file.path for file in files]
    problems = [f"{path}: {problem}" for path in paths if (problem := problem_with(path))]
    problems += [
        f"{one} and {other}: are one name on some systems; rename one"
        for one, other in doubles([MANIFEST, *paths])
    ]
    _refuse(problems, source)


def _refuse(problems: Sequence[str], source: Source) -> None:
    if problems:
        raise RefusedError(problems, where=str(source.root))


def _manifest(prepared: Prepared) -> Manifest:
    created = prepared.source.created
    return Manifest(
        ticket=prepared.source.ticket,
        verb=prepared.source.layout.verb,
        created=created.strftime("%Y-%m-%dT%H:%M:%SZ") if created else None,
        scrubbed=prepared.scrubbed,
        left_out=list(prepared.left_out),
        files=[
            FileEntry(
                path=file.path,
                sha256=digest(file.data),
                bytes=len(file.data),
                scrubbed={
                    group: count for group, count in count_groups(file.spans).items() if count
                },
                unscrubbed=file.unscrubbed,
            )
            for file in prepared.files
        ],
    )


def _free_path(output: Path, ticket: str) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    names = (
        f"{ticket}-{stamp}{f'-{n}' if n > 1 else ''}.tar.gz" for n in range(1, _MOST_IN_ONE_SECOND)
    )
    return next(path for name in names if not os.path.lexists(path := output / name))
