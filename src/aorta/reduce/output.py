"""Writes what ships: every file of the run directory goes through the scrubber on its way. The private state does not."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aorta.core.documents import dump_yaml
from aorta.engine.events import TrialRecord
from aorta.engine.rundir import PRIVATE, RunDir, fresh_dir, write_atomically, writing
from aorta.executors.evidence import read_end
from aorta.reduce.plan import ReducePlan
from aorta.reduce.report import SCHEMA, ReduceReport
from aorta.reduce.ship import ship_text, unfinished_ship
from aorta.reduce.shrunken import ENV, SCRIPT, Reproducer
from aorta.scrub.files import scrub_bytes
from aorta.scrub.scrubber import Scrubber
from aorta.scrub.structure import scrub_document
from aorta.version import __version__
from aorta.workloads.ranks import RANK_LOGS, rank_logs

TRACE = "reduction_trace.jsonl"
SHIP = "SHIP.md"
RESULT = "result.json"
SHRUNKEN = "shrunken"
_MOST_LOG = 16 << 20  # of each stream, the end


@dataclass
class Scrubbing:
    """What scrubbing did to the files that ship: replacements by file, and the files it could not clean."""

    changed: dict[str, int] = field(default_factory=dict)
    withheld: list[str] = field(default_factory=list)


@dataclass
class Output:
    """The shipping side of one run directory."""

    run: RunDir
    plan: ReducePlan
    scrubber: Scrubber

    @classmethod
    def of(cls, run: RunDir, plan: ReducePlan) -> "Output":
        return cls(run, plan, plan.scrubber())

    def begin(self) -> None:
        """What a killed run leaves: its spec, and a SHIP.md that says there is nothing to ship."""
        done = Scrubbing()
        self._write("spec.yaml", _utf8(self._spec_text()), done)
        self._write(SHIP, _utf8(unfinished_ship(str(self.run.path))), done)
        write_atomically(self.run.path / TRACE, b"")

    def append_to_trace(self, line: Mapping[str, Any]) -> None:
        place = self.run.path / TRACE
        with writing(place), place.open("ab") as file:
            file.write(_json_line(self._scrubbed(line)[0]))

    def lay_out(self, reproducer: Reproducer, folder: Path) -> Scrubbing:
        """The reproducer as it ships: every file scrubbed, those that cannot be left out, no empty folder."""
        done = Scrubbing()
        reproducer.lay_out(folder)
        with writing(folder):
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                name = f"{SHRUNKEN}/{path.relative_to(folder).as_posix()}"
                data, mode = path.read_bytes(), path.stat().st_mode
                path.unlink()
                self._put(folder.parent, folder.name, name, data, mode, done)
            for path in sorted(folder.rglob("*"), reverse=True):
                if path.is_dir() and not any(path.iterdir()):
                    path.rmdir()
        return done

    def finish(
        self,
        report: ReduceReport,
        trace: Sequence[Mapping[str, Any]],
        reproducer: Reproducer | None,
        env: Mapping[str, Any],
    ) -> None:
        """Everything that ships, from scratch; then the list of it."""
        staged = fresh_dir(self.run.private / "shipping" / SHRUNKEN)
        done, needed = Scrubbing(), list[str]()
        if reproducer is not None:
            done = self.lay_out(reproducer, staged)
            write_atomically(staged / ENV, _json_text(self._scrubbed(env)[0]))
            needed = reproducer.still_needed((staged / SCRIPT).read_text("utf-8", "replace"))
        self._clear()
        if reproducer is not None:
            staged.rename(self.run.path / SHRUNKEN)
        shutil.rmtree(staged.parent)
        self._write("spec.yaml", _utf8(self._spec_text()), done)
        self._write_document(TRACE, [*trace], done, lines=True)
        for name, data in self._logs(report).items():
            self._write(name, data, done)
        result = {"schema": SCHEMA, "aorta_version": __version__, **report.to_json()}
        self._write_document(RESULT, [result], done, lines=False)
        ship = ship_text(
            report,
            sorted(self._written()),
            changed=done.changed,
            withheld=done.withheld,
            patterns=len(self.plan.scrub),
            needed=needed,
            secrets=sorted(reproducer.secrets) if reproducer else (),
            private=self.run.private_beside,
        )
        self._write(SHIP, _utf8(ship), done)

    def _spec_text(self) -> str:
        """As it was written; without the patterns themselves, which name what must not be named."""
        document = self.plan.spec.document
        source = Path(self.plan.spec.file)
        if "scrub" not in document and source.is_file():
            return source.read_text("utf-8-sig")
        return dump_yaml({key: value for key, value in document.items() if key != "scrub"})

    def _logs(self, report: ReduceReport) -> dict[str, bytes]:
        """The output of the failing run that the answer rests on; where nothing failed, of the last run."""
        record = report.last_failing(report.reduction.best) or next(reversed(report.records), None)
        return {} if record is None else _log_files(self.run.private, record)

    def _written(self) -> Iterator[str]:
        for path in self.run.path.rglob("*"):
            name = path.relative_to(self.run.path).as_posix()
            if path.is_file() and name != SHIP and not name.startswith(f"{PRIVATE}/"):
                yield name

    def _clear(self) -> None:
        """A resumed run may end in other files than the partial result before it."""
        for folder in (SHRUNKEN, "logs"):
            shutil.rmtree(self.run.path / folder, ignore_errors=True)

    def _scrubbed(self, document: Any) -> tuple[Any, int]:
        clean, spans = scrub_document(self.scrubber, document)
        return clean, len(spans)

    def _write_document(
        self, name: str, documents: Sequence[Any], done: Scrubbing, *, lines: bool
    ) -> None:
        clean = [self._scrubbed(document) for document in documents]
        done.changed[name] = sum(count for _, count in clean)
        as_bytes = _json_line if lines else _json_text
        write_atomically(self.run.path / name, b"".join(as_bytes(part) for part, _ in clean))

    def _write(self, name: str, data: bytes, done: Scrubbing) -> None:
        with writing(self.run.path / name):
            self._put(self.run.path, "", name, data, 0o644, done)

    def _put(
        self, root: Path, instead: str, name: str, data: bytes, mode: int, done: Scrubbing
    ) -> None:
        """The file under its scrubbed name; not at all where it matches and cannot be cleaned."""
        place = self.scrubber.file_name(name)
        clean = scrub_bytes(self.scrubber, name, data)
        if clean is None:
            done.withheld.append(place)
            return
        done.changed[place] = len(clean.spans)
        path = root / (place.replace(SHRUNKEN, instead, 1) if instead else place)
        write_atomically(path, clean.data)
        path.chmod(mode & 0o777)


def _log_files(private: Path, record: TrialRecord) -> dict[str, bytes]:
    trial = private / record.path
    places = {f"logs/{name}": trial / name for name in ("stdout.log", "stderr.log")}
    for log in rank_logs(trial / RANK_LOGS):
        places[f"logs/rank_{log.rank}.out"] = log.stdout
        places[f"logs/rank_{log.rank}.err"] = log.stderr
    return {name: read_end(path, _MOST_LOG) for name, path in places.items() if path.is_file()}


def _utf8(text: str) -> bytes:
    """A name that is no UTF-8 stands as an escape, which JSON reads back as the same name."""
    return text.encode("utf-8", "backslashreplace")


def _json_line(line: Mapping[str, Any]) -> bytes:
    return _utf8(json.dumps(line, ensure_ascii=False, separators=(",", ":"))) + b"\n"


def _json_text(content: Mapping[str, Any]) -> bytes:
    return _utf8(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
