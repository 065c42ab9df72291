"""Writes what ships: every file of the run directory goes through the scrubber on its way. The private state does not."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aorta.core.documents import dump_yaml
from aorta.engine.journal import TrialRecord
from aorta.engine.rundir import RunDir, fresh_dir, write_atomically
from aorta.reduce.disk import writing
from aorta.reduce.plan import ReducePlan
from aorta.reduce.report import SCHEMA, ReduceReport
from aorta.reduce.ship import ship_text, unfinished_ship
from aorta.reduce.shrunken import ENV, Reproducer
from aorta.scrub.files import is_text, learn_file, scrub_file
from aorta.scrub.scrubber import Scrubber
from aorta.version import __version__
from aorta.workloads.ranks import RANK_LOGS, rank_logs

TRACE = "reduction_trace.jsonl"
SHIP = "SHIP.md"
RESULT = "result.json"
_MOST_LOG = 16 << 20  # of each stream, the end


@dataclass
class Output:
    """The shipping side of one run directory."""

    run: RunDir
    plan: ReducePlan
    scrubber: Scrubber
    changed: dict[str, int] = field(default_factory=dict)
    withheld: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, run: RunDir, plan: ReducePlan) -> "Output":
        return cls(run, plan, plan.scrubber())

    def begin(self) -> None:
        """What a killed run leaves: its spec, and a SHIP.md that says there is nothing to ship."""
        self._write("spec.yaml", self._spec_text().encode())
        self._write(SHIP, unfinished_ship(str(self.run.path)).encode())
        write_atomically(self.run.path / TRACE, b"")

    def append_to_trace(self, line: Mapping[str, Any]) -> None:
        scrubbed = scrub_file(self.scrubber, TRACE, _json_line(line)).data
        place = self.run.path / TRACE
        with writing(place), place.open("ab") as file:
            file.write(scrubbed)

    def finish(
        self,
        report: ReduceReport,
        trace: Sequence[Mapping[str, Any]],
        reproducer: Reproducer | None,
        env: Mapping[str, Any],
    ) -> None:
        """Everything that ships, from scratch; then the list of it."""
        files = {
            "spec.yaml": self._spec_text().encode(),
            TRACE: b"".join(map(_json_line, trace)),
            **self._logs(report),
        }
        if reproducer is not None:
            files |= self._reproducer(reproducer, env)
        for name, data in files.items():
            if is_text(data):
                learn_file(self.scrubber, name, data)
        self._clear()
        written = [self._write(name, data) for name, data in files.items()]
        result = {"schema": SCHEMA, "aorta_version": __version__, **report.to_json()}
        written.append(self._write(RESULT, _json_text(result)))
        ship = ship_text(
            report,
            sorted(filter(None, written)),
            changed=self.changed,
            withheld=self.withheld,
            patterns=len(self.plan.scrub),
            cwd=str(self.plan.base.subject.cwd),
        )
        self._write(SHIP, ship.encode())

    def _spec_text(self) -> str:
        """As it was written; without the patterns themselves, which name what must not be named."""
        document = self.plan.spec.document
        source = Path(self.plan.spec.file)
        if "scrub" not in document and source.is_file():
            return source.read_text("utf-8-sig")
        return dump_yaml({key: value for key, value in document.items() if key != "scrub"})

    def _reproducer(self, reproducer: Reproducer, env: Mapping[str, Any]) -> dict[str, bytes]:
        scratch = fresh_dir(self.run.private / "shrunken")
        reproducer.lay_out(scratch)
        write_atomically(scratch / ENV, _json_text(env))
        found = {
            f"shrunken/{path.relative_to(scratch)}": path.read_bytes()
            for path in sorted(scratch.rglob("*"))
            if path.is_file()
        }
        shutil.rmtree(scratch)
        return found

    def _logs(self, report: ReduceReport) -> dict[str, bytes]:
        """The output of the failing run that the answer rests on; where nothing failed, of the last run."""
        record = report.last_failing(report.reduction.best) or next(reversed(report.records), None)
        return {} if record is None else _log_files(self.run.private, record)

    def _clear(self) -> None:
        """A resumed run may end in other files than the partial result before it."""
        for folder in ("shrunken", "logs"):
            shutil.rmtree(self.run.path / folder, ignore_errors=True)
        self.changed.clear()
        self.withheld.clear()

    def _write(self, name: str, data: bytes) -> str | None:
        """The file under its scrubbed name, which is returned; None where it may not be written at all."""
        place = self.scrubber.file_name(name)
        if is_text(data):
            scrubbed = scrub_file(self.scrubber, name, data)
            self.changed[place] = len(scrubbed.spans)
            data = scrubbed.data
        elif self.scrubber.text(data.decode("latin-1")).spans:
            self.withheld.append(place)
            return None
        path = self.run.path / place
        write_atomically(path, data)
        if place.endswith(".sh"):
            path.chmod(0o755)
        return place


def _log_files(private: Path, record: TrialRecord) -> dict[str, bytes]:
    trial = private / record.path
    places = {f"logs/{name}": trial / name for name in ("stdout.log", "stderr.log")}
    for log in rank_logs(trial / RANK_LOGS):
        places[f"logs/rank_{log.rank}.out"] = log.stdout
        places[f"logs/rank_{log.rank}.err"] = log.stderr
    return {name: _end_of(path) for name, path in places.items() if path.is_file()}


def _end_of(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _MOST_LOG))
        return file.read()


def _json_line(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _json_text(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
