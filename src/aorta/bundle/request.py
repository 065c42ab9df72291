"""The public API of the package: everything that may be asked of packing a run, and the one
function that does it.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta.bundle import pack, writing
from aorta.bundle.layouts import read_policy
from aorta.bundle.manifest import Checked, Manifest
from aorta.bundle.pack import Prepared
from aorta.bundle.reading import verify
from aorta.bundle.rehearsal import rehearse
from aorta.core.errors import Exit
from aorta.engine.rundir import RunDir
from aorta.scrub.known import split_patterns

SCHEMA = "aorta.bundle/1"
_ANY_SIZE = 1 << 50  # it is ours


@dataclass(frozen=True, kw_only=True)
class BundleRequest:
    """Which run to pack, where to, and what must not leave."""

    run_dir: Path
    output: Path = Path()
    ticket: str | None = None  # None: the one that the run itself names
    scrub: tuple[str, ...] = ()  # text to take out besides what is found
    policy: Path | None = None  # a file of the site's rules
    whole_logs: bool = False  # not only the first 1 MiB and the last 7 MiB of each
    allow_binary: bool = False  # the program's data may leave as they are
    check: bool = True  # run the reproducer from where the bundle is unpacked
    timeout: float | None = None  # of one such run, in seconds


@dataclass(frozen=True)
class BundleReport:
    """The bundle as it lies there, read once more."""

    path: Path
    sha256: str
    manifest: Manifest

    @property
    def checked(self) -> Checked | None:
        """None: it was not run, or there is nothing to run."""
        return self.manifest.checked

    @property
    def exit_code(self) -> Exit:
        failed = self.checked is not None and not self.checked.reproduces
        return Exit.NO_ANSWER if failed else Exit.OK

    def to_json(self) -> dict[str, Any]:
        return {
            **summary(self.path, self.sha256, self.manifest),
            "left_out": len(self.manifest.left_out),
            "logs_only": self.manifest.logs_only,
            "checked": self.checked.model_dump() if self.checked else None,
        }


def bundle(
    request: BundleRequest,
    agreed: Callable[[Prepared, Checked | None], bool] = lambda _prepared, _checked: True,
) -> BundleReport | None:
    """Scrub, try and pack it; None where `agreed`, which sees all of it and what came of trying
    it before anything is written, says no.
    """
    site = read_policy(request.policy)
    given = [pattern for option in request.scrub for pattern in split_patterns(option)]
    run_dir, output = request.run_dir, request.output
    with pack.prepared(
        run_dir,
        request.ticket,
        site,
        (*site.scrub, *given),
        output,
        whole_logs=request.whole_logs,
        allow_binary=request.allow_binary,
    ) as prepared:
        checked = _rehearsed(prepared, request.timeout) if request.check else None
        if not agreed(prepared, checked):
            return None
        path = writing.write(prepared, output, checked)
    packed = verify(path, max_bytes=_ANY_SIZE)
    return BundleReport(path, packed.sha256, packed.manifest)


def summary(path: Path, sha256: str, manifest: Manifest) -> dict[str, Any]:
    """What every document about a bundle says of it."""
    return {
        "path": str(path),
        "sha256": sha256,
        "ticket": manifest.ticket,
        "files": len(manifest.files),
        "bytes": sum(file.bytes for file in manifest.files),
        "scrubbed": manifest.scrubbed,
    }


def _rehearsed(prepared: Prepared, timeout: float | None) -> Checked | None:
    """Of a run that says of itself that it reproduces."""
    if not prepared.source.reproduces:
        return None
    about = RunDir(prepared.source.root).about()
    with tempfile.TemporaryDirectory(prefix="aorta-bundle-") as scratch:
        path = writing.write(prepared, Path(scratch))
        programs = [str(place) for place in about.get("programs", [])]
        return rehearse(path, programs=programs, python=about.get("python"), timeout=timeout)
