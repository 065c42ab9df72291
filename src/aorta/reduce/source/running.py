"""The source of a program as the last thing that a reduction makes smaller: its two questions, and
what they amount to.
"""

import os
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aorta.core.axis import Point, Purpose
from aorta.core.errors import UsageError
from aorta.core.failure import Failure
from aorta.core.oracle import Deciding
from aorta.core.trial import TrialEnd, TrialSpec, Verdict
from aorta.engine.events import TrialRecord
from aorta.engine.judge import Judge, Judges, KOfN, SameJudge
from aorta.engine.question import Keep
from aorta.engine.rundir import writing
from aorta.reduce.experiment import DATA, PLACE, ImpatientJudges, ReductionExperiment
from aorta.reduce.files import WorkloadFiles, requirements, requirements_text
from aorta.reduce.plan import ReducePlan
from aorta.reduce.shrunken import Reproducer
from aorta.reduce.source.inline import MAIN, closed, inlined, unreached
from aorta.reduce.source.program import TraceFacts, UserModule, read_facts
from aorta.reduce.source.repair import Fix, fixes_of_patch, repaired
from aorta.reduce.source.search import AXIS, Candidate, SourceSearch
from aorta.reduce.source.tree import count_lines
from aorta.reduce.source.trials import (
    FACTS,
    ORIGINAL,
    PROGRAM,
    REPRO,
    EntryScript,
    SourceOracle,
    entry_of,
    facts_file,
    failing_statement,
    keep_facts,
    lay_out,
)
from aorta.reduce.spec import source_axis
from aorta.runtimes.programs import heard
from aorta.search.reduction import Reduction, Status
from aorta.workloads.trial import workload_experiment

_MOST_BYTES = 64 << 20  # of a data file that may lie beside the script, copied for every trial
_MOST_IN_SCRIPT = 2000  # bytes of a file that may stand in the script
_TRACED = 4  # times as long as it took untraced
_HOOK = Path(__file__).with_name("hook")


def check_source(plan: ReducePlan) -> tuple[EntryScript, list[Fix]]:
    """The program of the command, and what the known fix changes in it. Raises `UsageError` where
    there is no such program, or the patch does not fit, before anything was run.
    """
    axis, cwd = source_axis(plan.spec), plan.base.subject.cwd
    assert axis is not None
    entry = entry_of(plan.request.config["command"], cwd, axis.initial)
    if axis.fixed_by is None:
        return entry, []
    patch = plan.spec.base / axis.fixed_by
    if not patch.is_file():
        raise UsageError("there is no such file", where=axis.fixed_by)
    return entry, fixes_of_patch(patch, cwd)


@dataclass
class SourceRun:
    """Implements `engine.question.Experiment`. `before` is what the other axes came to, `failure`
    what the original fails with.
    """

    plan: ReducePlan
    experiment: ReductionExperiment
    private: Path
    before: Reduction
    failure: Failure
    search: SourceSearch | None = None
    initial_lines: int = 0
    initial_files: int = 0
    trials: int = 0
    candidate_count: int = 0
    confirmation: Verdict | None = None
    ends_well_repaired: bool | None = None  # None: no fix is known
    _oracle: SourceOracle | None = None
    entry: EntryScript = field(init=False)
    fixes: list[Fix] = field(init=False)

    def __post_init__(self) -> None:
        self.entry, self.fixes = check_source(self.plan)

    @property
    def cwd(self) -> Path:
        return self.plan.base.subject.cwd

    # -- the questions

    @property
    def originals(self) -> list[Point]:
        """Twice: what its message says otherwise the second time does not matter."""
        point = self._point(ORIGINAL)
        return [point, point.asked_for(Purpose.PROBE, 1)]

    def _point(self, value: str) -> Point:
        return Point.of({**dict(self.before.best.values), AXIS: value})

    # -- a candidate as a trial

    @property
    def oracle(self) -> Deciding:
        """Of the original before it was traced; then what tells its failure from others."""
        return self._oracle or self.experiment.oracle

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        """The original where it lies, or a candidate alone in a folder with the files that it still
        needs; either of them traced.
        """
        trial = self.experiment.trial(self.before.best, index, trial_dir)
        folder = (trial_dir / DATA).absolute()
        root = Path(trial.cwd).resolve()
        is_original = point[AXIS] == ORIGINAL
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if not is_original:
                assert self.search is not None
                laid = folder / PROGRAM
                lay_out(self.search.known[str(point[AXIS])], (folder, root), laid)
                argv = self.experiment.command(self.entry.command, point)
                trial = replace(trial, cwd=laid, argv=argv)
        before = trial.env.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        traced = {
            "AORTA_SOURCE_FACTS": f"{DATA}/{FACTS}",
            "AORTA_SOURCE_ROOT": str(root) if is_original else f"{DATA}/{PROGRAM}",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(_HOOK), before])),
        }
        slower = trial.timeout and trial.timeout * (_TRACED if is_original else 1)
        env = {**trial.env, **traced}
        return replace(trial, env=env, watch=self.oracle.watch(), timeout=slower)

    def keeping(self, keep: Keep) -> Keep:
        """Keeps what a trial showed before the trial's files are cleared away."""

        def kept(record: TrialRecord, end: TrialEnd) -> Any:
            written = facts_file(self.private / record.path)
            place = self._facts_place(str(record.point[AXIS]), record.point.replica)
            if written.is_file() and not place.is_file():
                keep_facts(self.private / record.path, place)
            return keep(record, end)

        return kept

    def _facts_place(self, digest: str, replica: int = 0) -> Path:
        return self.private / "source" / f"{digest}.{replica}.jsonl"

    def _facts(self, digest: str, replica: int = 0) -> TraceFacts:
        return read_facts(self._facts_place(digest, replica))

    def begin(self) -> str:
        """The search, once the original was traced; why there is none, in words, otherwise."""
        facts, again = self._facts(ORIGINAL), self._facts(ORIGINAL, 1)
        sources = {module.file: self._source(module.file) for module in facts.modules}
        modules = with_main(facts.modules, self.entry)
        if not any(module.name == MAIN for module in modules):
            return "its source stays as it is: the program could not be traced"
        for name in self._data(facts):
            if self._file(name).stat().st_size > _MOST_BYTES:
                return f"its source stays as it is: it reads {name}, of more than 64 MiB"
        failing = failing_statement(facts, again, self._source)
        self._oracle = SourceOracle(self.experiment.oracle, self.failure, failing)
        self.initial_lines = sum(map(count_lines, sources.values()))
        self.initial_files = len(sources) + len(self._data(facts))
        self.search = SourceSearch(
            self._one_file(modules, sources, facts),
            lambda candidate: self._facts(candidate.digest),
            self._small_text,
            lambda text: bool(self.fixes) and repaired(text, self.fixes) is not None,
            dict(self.before.best.values),
        )
        return ""

    def _source(self, file: str) -> str:
        return (self.cwd / file).read_text("utf-8", "replace")

    def _small_text(self, name: str) -> str | None:
        """A file's content that may stand in the script; None if it is long or no text."""
        try:
            text = self._file(name).read_text("utf-8")
        except UnicodeDecodeError:
            return None
        return text if len(text) <= _MOST_IN_SCRIPT else None

    @property
    def _roots(self) -> tuple[Path, ...]:
        """Where the program's files lie: what other axes made smaller before the rest."""
        made = self.private / "source" / DATA
        return made, made / PLACE, self.cwd

    def _file(self, name: str) -> Path:
        files = [root / name for root in self._roots]
        return next((file for file in files if file.is_file()), files[-1])

    def _data(self, facts: TraceFacts) -> tuple[str, ...]:
        """Files that it read, other than by an import; they go with the script."""
        modules = {module.file for module in facts.modules}
        laid_out, copy, _ = self._roots
        made = [f for f in sorted(laid_out.rglob("*")) if not f.is_relative_to(copy)]
        names = dict.fromkeys((*(str(f.relative_to(laid_out)) for f in made), *facts.opened))
        return tuple(n for n in names if n not in modules and self._file(n).is_file())

    def _one_file(
        self, modules: Sequence[UserModule], sources: dict[str, str], facts: TraceFacts
    ) -> Iterator[Candidate]:
        """Everything in one file, but for modules that are imported by their text and what these
        import; else the entry script with every other module left beside it.
        """
        for beside in (unreached(modules, sources), {m.name for m in modules} - {MAIN}):
            stays = closed(modules, sources, beside)
            text = inlined(modules, sources, facts.argv, stays)
            files = {module.file for module in modules if module.name in stays}
            yield Candidate(text, tuple(sorted(files.union(self._data(facts)))))

    @property
    def _fails_always(self) -> bool:
        calibration = self.before.calibration
        return calibration is not None and calibration.tally.against == 0

    def judges(self) -> Judges:
        """One trial tells of a failure that was there each time; one that goes on where the
        original had ended is not tried again.
        """
        judges = SameJudge(KOfN(1, 1)) if self._fails_always else self.plan.judges()
        return ImpatientJudges(judges, self.experiment.patience)

    @property
    def repaired(self) -> Point | None:
        """The script with the known fix; None where it holds nothing of what that changes."""
        text = repaired(self.best.text, self.fixes) if self.best is not None else None
        if text is None or self.best is None or self.search is None:
            return None
        candidate = Candidate(text, self.best.beside)
        self.search.known[candidate.digest] = candidate
        return self._point(candidate.digest)

    @property
    def to_be_sure(self) -> Judge:
        """Of the answer itself, by trials that start cold."""
        return KOfN(3, 3) if self._fails_always else self.plan.judges().judge_for(self.before.best)

    @property
    def to_confirm(self) -> Point | None:
        best = self.search.best if self.search is not None else None
        return None if best is None else best.asked_for(Purpose.CONFIRM, 1)

    def count(self, records: Sequence[TrialRecord]) -> None:
        self.trials = len(records)
        self.candidate_count = len({record.point.config_key for record in records})

    # -- what they amount to

    @property
    def best(self) -> Candidate | None:
        return self.search.accepted[-1] if self.search and self.search.accepted else None

    def reduction(self, *, is_over: bool) -> Reduction:
        """With the script as the answer, if there is one."""
        best = self.search.best if self.search is not None else None
        if best is None:
            return self.before
        status = Status.RUNNING
        if is_over:
            sure = self.confirmation is not None and self.confirmation.reproduces
            status = Status.REDUCED if sure else Status.UNCONFIRMED
        return replace(
            self.before,
            status=status,
            why="",
            best=best,
            confirmation=self.confirmation,
            candidates=self.before.candidates + self.candidate_count,
        )

    @property
    def row(self) -> dict[str, Any]:
        """Of `axes` in the result."""
        best = self.best
        lines = self.initial_lines if best is None else count_lines(_formatted(best.text))
        axis = source_axis(self.plan.spec)
        return {
            "name": axis.name if axis is not None else AXIS,
            "kind": AXIS,
            "initial": self.initial_lines,
            "final": lines,
            "floor": 1,
            "monotone": None,
            "trials": self.trials,
            "unresolved": 0,
            "ignored": False,
            "initial_lines": self.initial_lines,
            "final_lines": lines,
            "initial_files": self.initial_files,
            "final_files": self.initial_files if best is None else 1 + len(best.beside),
            "beside": [] if best is None else list(best.beside),
            "ends_well_repaired": self.ends_well_repaired,
        }

    def reproducer(self, shipped_name: Callable[[str], str], rate: str) -> Reproducer | None:
        best = self.best
        if best is None or self.search is None or self.search.best is None:
            return None
        folder = self.private / "source" / "best"
        with writing(folder):
            lay_out(best, self._roots, folder)
            head = self._head(folder / REPRO, rate)
            (folder / REPRO).write_text(f"{head}{_formatted(best.text)}", encoding="utf-8")
        words = list(self.entry.command)
        request = replace(self.plan.request, config={"command": words, "cwd": str(folder)})
        base = workload_experiment(request)
        plan = replace(self.plan, request=request, base=base)
        return Reproducer(
            plan,
            replace(self.experiment, base=base),
            self.search.best,
            WorkloadFiles(folder, (REPRO, *best.beside)),
            shipped_name,
            rate,
            home=".",
        )

    def _head(self, script: Path, rate: str) -> str:
        python = shutil.which(self.entry.words[0]) if self.entry.words else None
        versions = ", ".join(requirements_text(requirements([script], python)).split())
        lines = [
            f"Made by aorta reduce from {self.entry.file}: the shortest program found that fails",
            f"the same way{f'; {rate}' if rate else ''}.",
            f"Failure: {self.failure.text}"[:400],
            f"With: Python {platform.python_version()}{f', {versions}' if versions else ''}",
        ]
        return "".join(f"# {line}\n" for line in lines)


def with_main(modules: Sequence[UserModule], entry: EntryScript) -> list[UserModule]:
    """Of several processes each begins with the program; a user's launcher is left out."""
    found = []
    for module in modules:
        if module.file == entry.file:
            found.append(replace(module, name=MAIN))
        elif module.name not in {MAIN, "__mp_main__"}:
            found.append(module)
    return found


def _formatted(text: str) -> str:
    """As `ruff format` writes it, where that is installed."""
    ruff = shutil.which("ruff")
    if ruff is None:
        return text
    words = (ruff, "format", "--isolated", "-q", "--line-length", "100", "-")
    done = heard(words, text)
    return text if done.returncode else done.stdout
