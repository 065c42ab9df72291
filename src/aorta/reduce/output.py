"""Writes what ships: every file goes through the scrubber on its way. The private state stays."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aorta.core.axis import Point
from aorta.core.documents import dump_yaml
from aorta.core.errors import AortaError
from aorta.core.failure import Failure, failure_from_elsewhere
from aorta.core.oracle import Deciding, Oracle, oracle_from_json, oracle_to_json
from aorta.core.trial import TrialSpec
from aorta.engine.rundir import (
    OF_THIS_DIRECTORY,
    PRIVATE,
    SHIP,
    RunDir,
    fresh_dir,
    write_atomically,
    writing,
)
from aorta.executors.evidence import TAIL, read_end
from aorta.reduce.experiment import ReductionExperiment
from aorta.reduce.handoff import shipped_oracle
from aorta.reduce.launcher import words_of
from aorta.reduce.plan import ReducePlan
from aorta.reduce.report import SCHEMA, ReduceReport, Shipped, summary_lines
from aorta.reduce.shrunken import ENV, SCRIPT, SPEC, Reproducer
from aorta.registry.sidecars import RESOLVED_RECIPE as RECIPE
from aorta.scrub.files import Account, FileScrubber, as_text
from aorta.version import __version__
from aorta.workloads.ranks import RANK_LOGS, rank_logs

_ANYWHERE = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TRACE = "reduction_trace.jsonl"
RESULT = "result.json"
SHRUNKEN = "shrunken"
_OURS = (f"{SHRUNKEN}/{SPEC}", f"{SHRUNKEN}/{RECIPE}")
_MOST_LOG = 16 << 20  # of each stream, the end


@dataclass
class Output:
    """The shipping side of one run directory."""

    run: RunDir
    plan: ReducePlan
    files: FileScrubber
    # What scrubbing did to the files that were written last, and which it could not clean.
    changed: dict[str, int] = field(default_factory=dict)
    withheld: list[str] = field(default_factory=list)

    def begin(self) -> None:
        """What a killed run leaves: its spec, and a SHIP.md that says there is nothing to ship."""
        self._write("spec.yaml", _utf8(self._spec_text()))
        self._write(SHIP, _utf8(_UNFINISHED.format(run_dir=self.run.path)))
        write_atomically(self.run.path / TRACE, b"")

    def lay_out(self, report: ReduceReport, reproducer: Reproducer, folder: Path) -> None:
        """The reproducer as it ships: scrubbed, without what cannot be, no empty folder."""
        printed = (as_text(log[-TAIL:]) for log in self._logs(report).values())
        self.files = FileScrubber(self.files.scrubber, printed)
        reproducer.lay_out(folder)
        with writing(folder):
            found = [path for path in folder.rglob("*") if path.is_file()]
            for path in sorted(found, key=lambda path: (path.name in {SPEC, RECIPE}, path)):
                name = f"{SHRUNKEN}/{path.relative_to(folder).as_posix()}"
                data, mode = path.read_bytes(), path.stat().st_mode
                path.unlink()
                self._put(folder.parent, folder.name, name, data, mode)
            for path in sorted(folder.rglob("*"), reverse=True):
                if path.is_dir() and not any(path.iterdir()):
                    path.rmdir()

    def finish(
        self,
        report: ReduceReport,
        trace: Sequence[Mapping[str, Any]],
        reproducer: Reproducer | None,
        env: Mapping[str, Any],
    ) -> None:
        """Write all that ships anew, also on the way; the old stays until the new is whole."""
        self.changed, self.withheld = {}, []
        staged = fresh_dir(self.run.private / "shipping") / SHRUNKEN
        if reproducer is not None:
            self.lay_out(report, reproducer, staged)
            write_atomically(staged / ENV, _json_text(self._scrubbed(env)[0]))
        shutil.rmtree(self.run.path / "logs", ignore_errors=True)
        place = self.run.path / SHRUNKEN
        if reproducer is not None:
            if place.exists():
                place.rename(staged.parent / "old")
            staged.rename(place)
        shutil.rmtree(staged.parent)
        self._write("spec.yaml", _utf8(self._spec_text()))
        self._write_document(TRACE, [*trace], _json_line)
        for name, data in self._logs(report).items():
            self._write(name, data)
        result = {"schema": SCHEMA, "aorta_version": __version__, **report.to_json()}
        self._write_document(RESULT, [result], _json_text)
        self._write(SHIP, _utf8("\n".join(self._ship_lines(report, reproducer)) + "\n"))

    def retold(self, failure: Failure | None) -> Failure | None:
        """As the program shows it that was laid out."""
        if failure is None or not self.files.taken:
            return failure
        return failure_from_elsewhere(self._scrubbed({"failure": failure.to_json()})[0]["failure"])

    def shipped(self, oracle: Oracle) -> Oracle:
        """For what the program prints that was laid out."""
        clean, _count = self._scrubbed({"oracle": oracle_to_json(oracle)})
        try:
            return oracle_from_json(clean["oracle"], file=self.plan.spec.file)
        except AortaError:
            return oracle  # a part of its syntax is gone, and whoever runs the copy sees that

    def _spec_text(self) -> str:
        """As it was written; without the patterns themselves, which name what must not be named."""
        document = self.plan.spec.document
        source = Path(self.plan.spec.file)
        if "scrub" not in document and source.is_file():
            return source.read_text("utf-8-sig")
        return dump_yaml({key: value for key, value in document.items() if key != "scrub"})

    def _logs(self, report: ReduceReport) -> dict[str, bytes]:
        """The output of the failing run behind the answer; where nothing failed, of the last."""
        record = report.last_failing(report.reduction.best) or next(reversed(report.records), None)
        if record is None:
            return {}
        trial = self.run.private / record.path
        places = {f"logs/{name}": trial / name for name in ("stdout.log", "stderr.log")}
        for log in rank_logs(trial / RANK_LOGS):
            places[f"logs/rank_{log.rank}.out"] = log.stdout
            places[f"logs/rank_{log.rank}.err"] = log.stderr
        return {name: read_end(path, _MOST_LOG) for name, path in places.items() if path.is_file()}

    def _written(self) -> Iterator[str]:
        for path in self.run.path.rglob("*"):
            name = path.relative_to(self.run.path).as_posix()
            if path.is_file() and name not in {SHIP, PRIVATE}:
                yield name

    def _scrubbed(self, document: Any) -> tuple[Any, int]:
        account = Account()
        clean = self.files.document(document, account)
        return clean, account.counts.total()

    def _write_document(
        self, name: str, documents: Sequence[Any], as_bytes: Callable[[Any], bytes]
    ) -> None:
        clean = [self._scrubbed(document) for document in documents]
        self.changed[name] = sum(count for _, count in clean)
        write_atomically(self.run.path / name, b"".join(as_bytes(part) for part, _ in clean))

    def _write(self, name: str, data: bytes) -> None:
        with writing(self.run.path / name):
            self._put(self.run.path, "", name, data, 0o644)

    def _put(self, root: Path, instead: str, name: str, data: bytes, mode: int) -> None:
        """The file under its scrubbed name; not at all where it matches and cannot be cleaned."""
        place, account = self.files.scrubber.file_name(name), Account()
        clean = self.files.whole(name, data, account, ours=name in _OURS)
        if clean is None:
            self.withheld.append(place)
            return
        self.changed[place] = account.counts.total()
        path = root / (place.replace(SHRUNKEN, instead, 1) if instead else place)
        write_atomically(path, clean)
        path.chmod(mode & 0o777)

    def _ship_lines(self, report: ReduceReport, reproducer: Reproducer | None) -> Iterator[str]:
        """SHIP.md: what is inside, what was taken out, and what to read before anything leaves."""
        yield from (
            "# What is shared",
            "",
            "```",
            *summary_lines(report, names_files=False),
            "```",
            "",
        )
        if report.mitigations:
            yield f"- with the mitigations {', '.join(report.mitigations)}"
        if report.status == "not_reduced":
            yield "- add axes that make it smaller: steps, sizes, data files, ranks, a window"
        if reproducer is not None:
            for name in sorted(reproducer.secrets):
                yield f"- set `{name}` before running it: its value is a secret"
            for what in reproducer.still_needed():
                yield f"- it needs {what}, which is not in here"
        yield from ("", OF_THIS_DIRECTORY, "Nothing leaves this machine by itself.")
        if report.resume_command:
            yield f"Go on with: `{report.resume_command}`"
        if report.has_reproducer:
            yield from ("", *_copy_lines(report.shipped))
        yield from ("", "## Inside", "", *(f"- [ ] `{name}`" for name in sorted(self._written())))
        yield from ("", "## Scrubbed", "", *self._scrub_lines())
        yield from ("", "## Before sending", "")
        yield "- [ ] Read the files above, the logs and the trace first: they quote your program."
        yield "- [ ] Values, names and paths that must not leave: run again with `--scrub`."
        yield from (f"- [ ] Then: `{command}`" for command in report.next_commands[1:])
        if private := self.run.private_beside:
            yield f"\nThe journal and the trials, not scrubbed, lie outside, in `{private}`."

    def _scrub_lines(self) -> Iterator[str]:
        patterns = len(self.plan.scrub)
        if not patterns:
            yield "- no patterns were given: `aorta bundle` looks for secrets, paths and names"
            return
        yield f"- patterns given: {patterns}; replaced: {sum(self.changed.values())}"
        yield from (f"- `{name}`: {count}" for name, count in self.changed.items() if count)
        yield from (f"- `{name}` matches, is not text, and was left out" for name in self.withheld)


@dataclass(frozen=True)
class CopyExperiment:
    """What ships, as it ships, in a directory of its own and started from outside it."""

    inner: ReductionExperiment
    reproducer: Reproducer
    output: Output
    report: ReduceReport  # of the search

    @property
    def oracle(self) -> Deciding:
        plan = self.output.plan
        if not plan.is_command:
            return shipped_oracle(plan)
        base = replace(plan.base, oracle=self.output.shipped(plan.oracle))
        return replace(plan, base=base).experiment().oracle

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        folder = trial_dir / "data"
        self.output.lay_out(self.report, self.reproducer, folder)
        return TrialSpec(
            argv=("bash", str((folder / SCRIPT).absolute())),
            trial_dir=trial_dir,
            cwd=trial_dir.absolute(),
            env={**self.reproducer.secrets, **self._path()},
            environment=self.inner.base.environment,
            watch=self.oracle.watch(),
            timeout=self.inner.patience.seconds_for(point),
            resources=self.inner.base.request.resources,
        )

    def _path(self) -> dict[str, str]:
        """A bare PATH plus the directories of the original's programs, and its Python as PYTHON."""
        if self.inner.base.environment.isolated:
            return {}
        if not self.reproducer.plan.is_command:
            return {"PYTHON": sys.executable}
        found = next(map(shutil.which, words_of(self.reproducer.command())), None)
        programs = [*self.reproducer.portable.programs, *([Path(found).parent] if found else [])]
        python = self.reproducer.python
        return {
            "PATH": os.pathsep.join([*dict.fromkeys(map(str, programs)), _ANYWHERE]),
            **({"PYTHON": python} if python else {}),
        }


def _utf8(text: str) -> bytes:
    """A name that is no UTF-8 stands as an escape, which JSON reads back as the same name."""
    return text.encode("utf-8", "backslashreplace")


def _json_line(line: Mapping[str, Any]) -> bytes:
    return _utf8(json.dumps(line, ensure_ascii=False, separators=(",", ":"))) + b"\n"


def _json_text(content: Mapping[str, Any]) -> bytes:
    return _utf8(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


_UNFINISHED = """# Nothing to ship yet

This reduction is running, or was killed. Its journal holds what is known so far.

Go on with: `aorta reduce --resume {run_dir}`
"""


def _copy_lines(shipped: Shipped) -> list[str]:
    """How the copy that ships was seen to end."""
    said = f"{shipped.tally.reproduced} of {shipped.tally.evidence} times"
    if shipped.reproduces:
        return [f"`shrunken/` was run from another directory and failed the same way {said}."]
    if shipped.reproduces is None:
        return ["`shrunken/` was not tried by itself: try it before you send it."]
    lines = [f"`shrunken/` does not fail the same way by itself: {said}."]
    if not shipped.taken:
        lines.append("Name what it needs in the spec, as `workload: {files: [...]}`.")
    return lines
