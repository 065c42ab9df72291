"""What an isolation found: one document, and a few lines for people."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta.core.axis import as_indexes
from aorta.core.errors import Exit
from aorta.core.trial import Outcome
from aorta.engine.events import Ending, Reason, TrialRecord
from aorta.search.isolation import LINK, NODE, NODES, RANK, SOFTWARE, Hypothesis, Isolation

SCHEMA = "aorta.isolate/1"
_SHOWN = 5  # suspects that a document names
_LEAST_SHOWN = 0.01
FIRST_RANK = "first_rank"
"""What a trial's record keeps: the rank that failed first, where attribution is sure of one."""
_LOST_EVERY_TIME = 2  # placements, before it is said that a node is lost in each of them


@dataclass(frozen=True)
class IsolateReport:
    """The search as it ended, and every run behind it."""

    run_dir: Path
    names: Sequence[str]
    ranks_per_node: int
    command: tuple[str, ...] | str
    is_slurm: bool
    search: Isolation
    records: Sequence[TrialRecord]
    ending: Ending
    priors: Sequence[str] = ()

    @property
    def status(self) -> str:
        """found, software, several, not_known, or partial where it was stopped before that."""
        answer = self.search.answer
        if answer is None:
            return "not_known" if self.ending.reason is Reason.DONE else "partial"
        if answer.kind == SOFTWARE:
            return "software"
        return "found" if answer.kind in {NODE, LINK, RANK} else "several"

    @property
    def exit_code(self) -> Exit:
        if self.status == "partial":
            return self.ending.exit_code
        return Exit.NO_ANSWER if self.status == "not_known" else Exit.OK

    @property
    def node_hours(self) -> float:
        seconds = sum(r.duration * len(as_indexes(r.point[NODES])) for r in self.records)
        return seconds / 3600

    def to_json(self) -> dict[str, Any]:
        search = self.search
        return {
            "status": self.status,
            "guilty": self._guilty(),
            "software": round(search.software, 4),
            "runs": len(self.records),
            "node_hours": float(f"{self.node_hours:.3g}"),
            "rates": self._rates(),
            "placements": [self._placement(record) for record in self.records],
            "nodes": [
                {"name": name, "probability": round(guilt, 4)}
                for name, guilt in zip(
                    self.names, search.belief.node_suspicion(len(self.names)), strict=True
                )
            ],
            "local_ranks": {str(rank): times for rank, times in self._local_ranks().items()},
            "lost": list(self.lost_nodes),
            "priors": list(self.priors),
            "next": list(self._next()),
            "run_dir": str(self.run_dir),
        }

    def lines(self) -> Iterator[str]:
        """The answer in a sentence, what it rests on, and what to do."""
        yield self.sentence
        software = f"; software {self.search.software:.0%}" if self._has_failed else ""
        yield f"  {len(self.records)} runs, {self.node_hours:.2g} node-hours{software}"
        for suspect in self._guilty()[:_SHOWN]:
            yield f"  {suspect['kind']:<9} {suspect['name']}  {suspect['probability']:.1%}"
        ranks = self._local_ranks()
        for rank, times in ranks.most_common(1):
            began = f"{times} of the {ranks.total()} failures seen to begin on the node"
            yield f"  evidence  local rank {rank}, which is GPU {rank} as a rule, began {began}"
        for line in self.priors:
            yield f"  prior     {line}"
        for node in self.lost_nodes:
            yield f"  lost      {node}: in each of its placements, which is a fault of its own"
        for line in self._next():
            yield f"  next      {line}"
        yield f"  results   {self.run_dir}"

    @property
    def sentence(self) -> str:
        answer, search = self.search.answer, self.search
        if answer is None:
            tried = f"{len(self.records)} runs"
            if self.ending.reason is not Reason.DONE:
                return f"Stopped after {tried}: {self.ending.detail}"
            if not self._has_failed:
                return f"It did not fail in {tried}"
            return f"Not known after {tried}: no explanation is {search.confidence:.0%} likely"
        if answer.kind == SOFTWARE:
            sets = "nodes"
            if answer.members:
                failed = (r for r in self.records if r.outcome is Outcome.REPRODUCED)
                sets = f"{min(len(self._placement(r)['nodes']) for r in failed)} or more nodes"
            return f"The software: every set of {sets} fails alike ({search.software:.0%})"
        sure = f"({self.search.belief.share(answer):.0%})"
        name = self._name(answer)
        if answer.kind == NODE:
            kind = self._kind(answer).capitalize()
            return f"{kind} {name} {sure}: failed in {self._seen(answer)} it took part in"
        if answer.kind == LINK:
            return f"The link between {name} {sure}: failed in {self._seen(answer)} with both"
        if answer.kind == RANK:
            return f"Not the hardware: it follows {name} wherever it runs {sure}"
        return f"More than one node {sure}: {name} come first"

    @property
    def _has_failed(self) -> bool:
        return any(record.outcome is Outcome.REPRODUCED for record in self.records)

    def _seen(self, what: Hypothesis) -> str:
        failed, passed, _, _ = self.search.counts(what)
        return f"{failed} of {failed + passed} runs"

    @property
    def broken(self) -> str:
        """The hardware that the answer names; empty where it names none."""
        answer = self.search.answer
        return "" if answer is None or answer.kind in {SOFTWARE, RANK} else self._name(answer)

    # -- parts of the document ---------------------------------------------------------------------

    def _guilty(self) -> list[dict[str, Any]]:
        """The answer; without one, the likeliest suspects of what was seen to fail."""
        answer, belief = self.search.answer, self.search.belief
        likely = [what for what, share in belief.weights.items() if share >= _LEAST_SHOWN]
        chosen = likely if answer is None else [answer]
        suspects = [what for what in chosen if what.kind != SOFTWARE][:_SHOWN]
        return [
            {"kind": self._kind(what), "name": name, "probability": round(belief.share(what), 4)}
            for what in suspects
            if self._has_failed
            for name in self._names_of(what)
        ]

    def _kind(self, what: Hypothesis) -> str:
        if what.kind in {LINK, RANK}:
            return what.kind
        return "device" if all(name.isdigit() for name in self.names) else NODE

    def _names_of(self, what: Hypothesis) -> list[str]:
        if what.kind in {NODE, LINK, RANK}:
            return [self._name(what)]
        return [self.names[member] for member in what.members]

    def _name(self, what: Hypothesis) -> str:
        if what.kind == RANK:
            first = what.members[0] * self.ranks_per_node
            last = first + self.ranks_per_node - 1
            return f"rank {first}" if first == last else f"ranks {first}-{last}"
        return " and ".join(self.names[member] for member in what.members)

    def _rates(self) -> dict[str, float | None]:
        best = self.search.answer or self.search.belief.best
        failed, passed, failed_without, passed_without = self.search.counts(best)
        return {
            "guilty": _share(failed, passed),
            "background": _share(failed_without, passed_without),
        }

    def _placement(self, record: TrialRecord) -> dict[str, Any]:
        members = as_indexes(record.point[NODES])
        per_node = self.ranks_per_node
        return {
            "nodes": [self.names[node] for node in members],
            "ranks": [[p * per_node, (p + 1) * per_node - 1] for p in range(len(members))],
            "outcome": record.outcome.value,
            "why": record.why,
        }

    def _has_gpus(self, what: Hypothesis) -> bool:
        return what.kind == self._kind(what) == NODE and self.ranks_per_node > 1

    def _local_ranks(self) -> Counter[int]:
        """How often each rank of the named node, counted on the node, was seen to fail first."""
        answer, seen = self.search.answer, Counter[int]()
        if answer is None or not self._has_gpus(answer):
            return seen
        for record in self.records:
            position, local = divmod(int(record.kept.get(FIRST_RANK, -1)), self.ranks_per_node)
            members = as_indexes(record.point[NODES])
            if 0 <= position < len(members) and members[position] == answer.members[0]:
                seen[local] += 1
        return seen

    @property
    def lost_nodes(self) -> Sequence[str]:
        """Nodes of which every placement could not be tried, twice at least."""
        return [self.names[node] for node in self.search.lost_nodes(_LOST_EVERY_TIME)]

    def _next(self) -> Iterator[str]:
        answer, job = self.search.answer, spelled(self.command)
        if answer is None:
            if self.ending.reason is not Reason.DONE:
                yield f"aorta isolate --resume {self.run_dir}"
            return
        if answer.kind in {SOFTWARE, RANK}:
            yield f"aorta solve -- {job}"
            return
        name = self._name(answer)
        if self.is_slurm:
            reason = f"aorta isolate: {self.search.belief.share(answer):.0%} guilty"
            for member in answer.members:
                yield f"scontrol update NodeName={self.names[member]} State=DRAIN Reason='{reason}'"
        else:
            yield f"run without {name}, and test it by itself"
        if self._has_gpus(answer):
            there = f"srun -w {name}" if self.is_slurm else f"on {name}:"
            devices = f"0-{self.ranks_per_node - 1}"
            yield f"which GPU of it: {there} aorta isolate --nodes {devices} -- {job}"


def spelled(command: tuple[str, ...] | str) -> str:
    """As a shell reads it."""
    return command if isinstance(command, str) else shlex.join(command)


def _share(failed: int, passed: int) -> float | None:
    return round(failed / (failed + passed), 4) if failed + passed else None
