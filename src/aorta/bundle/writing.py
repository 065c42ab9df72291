"""The archive as it leaves: every packed file, `manifest.json`, and a `SHIP.md` that says what is
inside, what was removed, and what the packed copy did when it was run.
"""

import gzip
import hashlib
import io
import os
import re
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from aorta.bundle.layouts import is_program
from aorta.bundle.manifest import MANIFEST, Checked, FileEntry, Manifest
from aorta.bundle.pack import PackedFile, Prepared
from aorta.core.errors import InfrastructureError
from aorta.core.stats import counted
from aorta.engine.rundir import OF_THIS_DIRECTORY, SHIP
from aorta.scrub.files import Account
from aorta.scrub.scrubber import LOOKED_FOR

_BEGIN, _END = "<!-- aorta bundle: begin -->", "<!-- aorta bundle: end -->"
_SECTION = re.compile(rf"\n*{re.escape(_BEGIN)}.*?{re.escape(_END)}\n*", re.DOTALL)
_MOST_IN_ONE_SECOND = 1000
_WORDS = {
    "paths": "private paths, as `<PATH:n>`",
    "addresses": "addresses and host names, as `<IPV4:n>`, `<IPV6:n>`, `<MAC:n>`, `<EMAIL:n>`, "
    "`<HOST:n>`",
    "secrets": "secrets, as `<SECRET:n>`",
    "patterns": "matches of the site's own patterns, as `<TEXT:n>`",
    "names": "user names, as `<USER:n>`",
}
_LOGS_ONLY = (
    "The program that failed is not in this bundle: what is in it can be read; a recipe in it runs "
    "where the program lies."
)
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
        path = _free_path(output, prepared.name)
        with tempfile.NamedTemporaryFile(dir=output, prefix=".packing-", delete=False) as file:
            try:
                _write_archive(prepared, {MANIFEST: manifest, SHIP: ship}, file.file)
                file.flush()
                os.fsync(file.fileno())
                Path(file.name).chmod(0o644)
                Path(file.name).rename(path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as wrong:
        raise InfrastructureError(f"cannot write: {wrong.strerror}", where=str(output)) from None
    return path


def _write_archive(prepared: Prepared, first: Mapping[str, bytes], out: IO[bytes]) -> None:
    """One gzip stream of plain tar headers, the same bytes for the same content: regular files in
    one top folder, no owner, one time for all.

    The fastest level of gzip packs a log at 100 MB/s instead of 20, a fifth larger.
    """
    created = prepared.source.created

    def header(name: str, size: int, executable: bool = False) -> tarfile.TarInfo:
        info = tarfile.TarInfo(f"{prepared.top}/{name}")
        info.size = size
        info.mode = 0o755 if executable else 0o644
        info.mtime = int(created.timestamp()) if created else 0
        return info

    with (
        gzip.GzipFile("", "wb", 1, out, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name, data in first.items():
            tar.addfile(header(name, len(data)), io.BytesIO(data))
        for file in prepared.files:
            prepared.spool.seek(file.start)
            tar.addfile(header(file.path, file.size, file.executable), prepared.spool)


def rehearsed(prepared: Prepared, checked: Checked | None) -> str:
    """What the packed copy did when it was run, in a sentence; "" where there is none to run."""
    if checked is None:
        has_copy = prepared.source.layout.verb == "reduce"
        return "The reproducer was not run from this bundle." if has_copy else ""
    how = "Unpacked into an empty directory, with another home and user name, the reproducer"
    if checked.reproduces:
        return f"{how} failed the same way {checked.reproduced} of {checked.of} times."
    of_program = (file for file in prepared.files if is_program(file.path) and file.taken)
    changed = [f"`{file.path}`" for file in of_program if not file.path.endswith("env.json")]
    keep = "a value that may leave is named under `keep:` in a policy"
    replaced = f" Replaced was something in {', '.join(changed)}; {keep}." if changed else ""
    if not checked.of:
        return f"{how} could **not** be run: `{checked.why}`.{replaced}"
    return (
        f"{how} did **not** fail the same way ({checked.of} runs; the last: `{checked.why}`)."
        f"{replaced}"
    )


def _ship_lines(prepared: Prepared, checked: Checked | None) -> Iterator[str]:
    """The same for the same content. The run's own words come last: they are about what it was
    before scrubbing.
    """
    layout, files = prepared.source.layout, prepared.files
    names = sorted({MANIFEST, SHIP, *(file.path for file in files)})
    yield from (_BEGIN, f"# {prepared.ticket}", "", f"A bundle made by `aorta {layout.verb}`.")
    yield from ("", _LOGS_ONLY) if prepared.logs_only else ()
    if said := rehearsed(prepared, checked):
        yield from ("", said)
    yield from ("", "## Read first", "")
    yield from [f"- `{path}`" for path in layout.reads if path in names] or [f"- `{MANIFEST}`"]
    yield from ("", "## Inside", "")
    folders = Counter(path.split("/")[0] + "/" if "/" in path else path for path in names)
    yield from (f"- `{folder}`: {counted(count, 'file')}" for folder, count in folders.items())
    yield from ("", "## Removed", "", *_removed(prepared), "")
    yield "The same value has the same placeholder everywhere; in file names it reads `HOST-1`."
    yield "No list of the removed values exists. `manifest.json` counts them file by file."
    yield "Only this archive was scrubbed so, not the directory that it was made from."
    yield from ("", "## What was looked for", "", *(f"- {line}" for line in LOOKED_FOR))
    yield "- values of the site's secret variables, also encoded, escaped or in capitals"
    yield from ("", "## What no scrubbing can know", "", *(f"- {line}" for line in UNKNOWN))
    yield from ("", "Name such words with `--scrub`, and look at everything with `--review`.")
    if raw := [f"- `{file.path}`" for file in files if file.unscrubbed]:
        yield from ("", "## Not scrubbed: binary files that the site lets pass", "", *raw)
    own = _SECTION.sub("\n", prepared.own_ship[0]).strip("\n") if prepared.own_ship else ""
    if own:
        yield from ("", "---", "", "What the run says of itself, before anything was replaced:")
        yield from (_END, "", own.partition(OF_THIS_DIRECTORY)[0].strip("\n"))
    else:
        yield _END


def _removed(prepared: Prepared) -> Iterator[str]:
    removed = prepared.scrubbed
    yield from (f"- {count} {_WORDS[group]}" for group, count in removed.items() if count)
    if not any(removed.values()):
        yield "- nothing had to be replaced"
    if prepared.left_out:
        left = counted(len(prepared.left_out), "file")
        yield f"- {left} of the run directory that a bundle does not carry"
    cut = (file for file in prepared.files if file.cut)
    yield from (f"- {file.cut} bytes from the middle of `{file.path}`" for file in cut)


def _manifest(prepared: Prepared, ship: bytes, checked: Checked | None) -> Manifest:
    created = prepared.source.created
    ship_account = prepared.own_ship[1] if prepared.own_ship else Account()
    of_ship = PackedFile(SHIP, 0, len(ship), hashlib.sha256(ship).hexdigest(), False, ship_account)
    return Manifest(
        ticket=prepared.ticket,
        verb=prepared.source.layout.verb,
        created=created.strftime("%Y-%m-%dT%H:%M:%SZ") if created else None,
        scrubbed=prepared.scrubbed,
        left_out=list(prepared.left_out),
        logs_only=prepared.logs_only,
        checked=checked,
        files=[
            FileEntry(
                path=file.path,
                sha256=file.sha256,
                bytes=file.size,
                scrubbed={group: count for group, count in file.account.groups.items() if count},
                unscrubbed=file.unscrubbed,
                left_out_bytes=file.cut,
            )
            for file in sorted((*prepared.files, of_ship), key=lambda file: file.path)
        ],
    )


def _free_path(output: Path, ticket: str) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    names = (
        f"{ticket}-{stamp}{f'-{n}' if n > 1 else ''}.tar.gz" for n in range(1, _MOST_IN_ONE_SECOND)
    )
    return next(path for name in names if not os.path.lexists(path := output / name))
