"""What may be asked of an isolation, the function that answers it, and the answer as a document."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aorta.attribution import AttributeRequest, attribute_request
from aorta.core.axis import Point, as_indexes
from aorta.core.errors import Exit, UsageError
from aorta.core.names import expand_hosts, spelled
from aorta.core.oracle import Deciding, Oracle, known_failure
from aorta.core.trial import Outcome, TrialEnd, TrialSpec, Verdict
from aorta.engine.events import Ending, Listener, Reason, TrialRecord
from aorta.engine.judge import EveryTrial, SameJudge
from aorta.engine.question import Budget, Question
from aorta.engine.rundir import write_json
from aorta.engine.session import Resume, Session, keep_request, taken_up
from aorta.executors.choosing import ExecutorChoice
from aorta.executors.slurm_commands import nodes_of
from aorta.registry.environments import EnvironmentLayers
from aorta.search.isolation import LINK, NODE, NODES, RANK, SOFTWARE, Hypothesis, Isolation
from aorta.workloads.startable import check_startable
from aorta.workloads.trial import WorkloadExperiment, WorkloadRequest, workload_experiment

SCHEMA = "aorta.isolate/1"
NODES_VARIABLE = "AORTA_NODES"
"""The nodes of a trial's placement, in the order of their ranks, for a command that needs them."""

_SURE = 0.6  # of attribution, before the rank that it names counts
_HARDWARE = frozenset({"hardware_fault", "link_fault"})
_SUSPECT, _STRONG_SUSPECT = 4.0, 20.0
FIRST_RANK = "first_rank"
"""What a trial's record keeps: the rank that failed first, where attribution is sure of one."""
_SHOWN, _LEAST_SHOWN = 5, 0.01  # suspects that a document names
_LOST_EVERY_TIME = 2  # placements, before it is said that a node is lost in each of them
_SHOWN_NODES = 8  # of a placement, in a line of progress
_REHEARSALS = 3  # simulated searches behind an estimate


@dataclass(frozen=True, kw_only=True)
class IsolateRequest:
    """A command, the nodes (or local devices) it may run on, and what it needs of them."""

    nodes: str = ""  # such as n[1-64]; with the local executor: devices, such as 0,1,2,3
    command: tuple[str, ...] | str = ()
    cwd: Path | None = None
    ranks_per_node: int = 1
    world_size: int | None = None  # the fewest ranks that the job runs with; None: one node's
    most_nodes: int | None = None  # of a placement; None: all of them
    history: tuple[Path, ...] = ()  # logs or cycle directories of earlier failures
    confidence: float = 0.95
    layers: EnvironmentLayers = field(default_factory=EnvironmentLayers)
    oracle: Oracle | None = None
    timeout: float | None = None  # of one run, in seconds
    max_trials: int | None = None
    max_wall_clock: float | None = None
    executor: ExecutorChoice = field(default_factory=ExecutorChoice)
    output: Path = Path("isolate")
    name: str | None = None  # of the run directory below it; None: the time
    resume: Resume | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return expand_hosts(self.nodes, where="--nodes")

    def placed(self, point: Point) -> str:
        """Where a placement runs, for people: `nodes n3,n7`, `devices 0,2`."""
        members = as_indexes(point[NODES]) if point.values else ()
        names = ",".join(self.names[node] for node in members[:_SHOWN_NODES])
        more = f" and {len(members) - _SHOWN_NODES} more" if len(members) > _SHOWN_NODES else ""
        return f"{'devices' if self.executor.name == 'local' else 'nodes'} {names}{more}"

    @property
    def smallest(self) -> int:
        """Nodes of the smallest placement the job runs on."""
        return max(1, -(-(self.world_size or 1) // self.ranks_per_node))


@dataclass(frozen=True)
class IsolateReport:
    """The search as it ended, and every run behind it."""

    request: IsolateRequest
    run_dir: Path
    search: Isolation
    records: Sequence[TrialRecord]
    ending: Ending
    priors: Sequence[str]

    @property
    def status(self) -> str:
        """found, software, several, not_known, or partial where it was stopped before that."""
        answer = self.search.answer
        if answer is None:
            return "not_known" if self.ending.reason is Reason.DONE else "partial"
        return "found" if answer.kind in {NODE, LINK, RANK} else answer.kind

    @property
    def exit_code(self) -> Exit:
        codes = {"partial": self.ending.exit_code, "not_known": Exit.NO_ANSWER}
        return codes.get(self.status, Exit.OK)

    @property
    def node_hours(self) -> float:
        return sum(r.duration * len(as_indexes(r.point[NODES])) for r in self.records) / 3600

    def to_json(self) -> dict[str, Any]:
        search, names = self.search, self.request.names
        suspicion = search.belief.node_suspicion(len(names))
        return {
            "status": self.status,
            "guilty": self._guilty(),
            "software": self._likely(search.software),
            "runs": len(self.records),
            "node_hours": float(f"{self.node_hours:.3g}"),
            "rates": self._rates(),
            "placements": [self._placement(record) for record in self.records],
            "nodes": [
                {"name": name, "probability": self._likely(guilt)}
                for name, guilt in zip(names, suspicion, strict=True)
            ],
            "lost": list(self.lost_nodes),
            "priors": list(self.priors),
            "next": list(self._next()),
            "run_dir": str(self.run_dir),
            "summary": list(self.lines()),
        }

    def lines(self) -> Iterator[str]:
        """The answer in a sentence, what it rests on, and what to do."""
        yield self.sentence
        software = f"; software {self.search.software:.0%}" if self._has_failed else ""
        yield f"  {len(self.records)} runs, {self.node_hours:.2g} node-hours{software}"
        for suspect in self._guilty()[:_SHOWN]:
            yield f"  {suspect['kind']:<9} {suspect['name']}  {suspect['probability']:.1%}"
        lost = [f"{node}: in each of its placements, a fault by itself" for node in self.lost_nodes]
        for word, lines in (("prior", self.priors), ("lost", lost), ("next", self._next())):
            yield from (f"  {word:<9} {line}" for line in lines)
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
                failing = (r for r in self.records if r.outcome is Outcome.REPRODUCED)
                least = min(len(as_indexes(record.point[NODES])) for record in failing)
                sets = f"{least} or more nodes"
            return f"The software: every set of {sets} fails alike ({search.software:.0%})"
        sure = f"({self.search.belief.share(answer):.0%})"
        name = " and ".join(self._names(answer))
        if answer.kind == RANK:
            return f"Not the hardware: it follows {name} wherever it runs {sure}"
        if answer.kind not in {NODE, LINK}:
            return f"More than one node {sure}: {name} come first"
        kind = "The link between" if answer.kind == LINK else self._kind(answer).capitalize()
        failed, passed, _, _ = search.counts(answer)
        return f"{kind} {name} {sure}: failed in {failed} of {failed + passed} runs it took part in"

    def _likely(self, share: float) -> float | None:
        """Nothing is to blame for what never failed."""
        return round(share, 4) if self._has_failed else None

    @property
    def _has_failed(self) -> bool:
        return any(record.outcome is Outcome.REPRODUCED for record in self.records)

    @property
    def broken(self) -> str:
        """The hardware that the answer names; empty where it names none."""
        answer = self.search.answer
        if answer is None or answer.kind in {SOFTWARE, RANK}:
            return ""
        return " and ".join(self._names(answer))

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
            for name in self._names(what)
        ]

    def _kind(self, what: Hypothesis) -> str:
        if what.kind in {LINK, RANK}:
            return what.kind
        return "device" if all(name.isdigit() for name in self.request.names) else NODE

    def _names(self, what: Hypothesis) -> list[str]:
        if what.kind != RANK:
            names = [self.request.names[member] for member in what.members]
            return [" and ".join(names)] if what.kind == LINK else names
        per_node = self.request.ranks_per_node
        first = what.members[0] * per_node
        return [f"ranks {first}-{first + per_node - 1}" if per_node > 1 else f"rank {first}"]

    def _rates(self) -> dict[str, float | None]:
        best = self.search.answer or self.search.belief.best
        failed, passed, failed_else, passed_else = self.search.counts(best)
        return {"guilty": _share(failed, passed), "background": _share(failed_else, passed_else)}

    def _placement(self, record: TrialRecord) -> dict[str, Any]:
        members = as_indexes(record.point[NODES])
        per_node = self.request.ranks_per_node
        return {
            "nodes": [self.request.names[node] for node in members],
            "ranks": [[p * per_node, (p + 1) * per_node - 1] for p in range(len(members))],
            "outcome": record.outcome.value,
            "why": record.why,
        }

    @property
    def lost_nodes(self) -> Sequence[str]:
        """Nodes of which every placement could not be tried, twice at least."""
        return [self.request.names[node] for node in self.search.lost_nodes(_LOST_EVERY_TIME)]

    def _next(self) -> Iterator[str]:
        answer, job = self.search.answer, spelled(self.request.command)
        if answer is None:
            yield from filter(None, [self.ending.command_to_go_on("isolate", self.run_dir)])
            return
        if answer.kind in {SOFTWARE, RANK}:
            yield f"aorta solve -- {job}"
            return
        is_slurm = self.request.executor.name == "slurm"
        if is_slurm:
            reason = f"aorta isolate: {self.search.belief.share(answer):.0%} guilty"
            for name in (self.request.names[member] for member in answer.members):
                yield f"scontrol update NodeName={name} State=DRAIN Reason='{reason}'"
        else:
            yield f"run without {self.broken}, and test it by itself"
        if answer.kind == self._kind(answer) == NODE and self.request.ranks_per_node > 1:
            there = f"srun -w {self.broken}" if is_slurm else f"on {self.broken}:"
            devices = f"0-{self.request.ranks_per_node - 1}"
            yield f"which GPU of it: {there} aorta isolate --nodes {devices} -- {job}"


def isolate(
    request: IsolateRequest, listeners: Callable[[], Sequence[Listener]] = tuple
) -> IsolateReport:
    """Which node, link or rank is it, or is it the software?

    Raises `UsageError` before anything runs for nodes that cannot be read, and for a job that
    needs more of them than there are.
    """
    request = resumed(request)
    _check(request)
    cwd = (request.cwd or Path()).absolute()
    request = replace(request, cwd=cwd, history=tuple(p.absolute() for p in request.history))
    if request.executor.name == "local":
        check_startable(request.command, cwd)
    elif request.executor.name == "slurm":
        partition = request.executor.resources.partition
        known = {node.name for node in nodes_of(partition)}
        if missing := [name for name in request.names if name not in known]:
            where = f"the partition {partition}" if partition else "the default partition"
            raise UsageError(f"{where} has no node {', '.join(missing)}", where="--nodes")
    search, priors = _search(request)
    experiment = _Placements(request, _experiment(request))
    if request.resume is not None:
        session = Session.resuming(request.output, "isolate", request.resume)
    else:
        session = Session.fresh(request.output, "isolate", name=request.name)
        keep_request(session.run, replace(request, layers=request.layers.absolute()))
    # A placement is a job of its own: no worker takes the next one on the same nodes.
    placed = replace(request.executor, job_per_trial=True)
    with session, closing(placed.open()) as executor:
        question = Question(
            search=search,
            judges=SameJudge(EveryTrial(1)),
            experiment=experiment,
            fingerprint=_fingerprint(request),
            budget=Budget(
                max_trials=request.max_trials, max_seconds=request.max_wall_clock, retries=1
            ),
            expected=known_failure(request.oracle),
            keep=_first_rank,
            learn=lambda record: _note_first_rank(search, record, request.ranks_per_node),
        )
        answer = session.answer(question, executor, listeners())
        report = IsolateReport(request, session.path, search, answer.records, answer.ending, priors)
        write_json(session.path / "result.json", SCHEMA, report.to_json())
        return report


def resumed(
    request: IsolateRequest, say: Callable[[str], None] = lambda _words: None
) -> IsolateRequest:
    """The request that a run was begun with, if no command is given, under what this one says."""
    return taken_up(request, request.output, "isolate", is_whole=bool(request.command), say=say)


def plan_lines(request: IsolateRequest) -> Iterator[str]:
    """The first placements and what the whole should cost, for people; nothing is run."""
    _check(request)
    search, priors = _search(request)
    names = request.names
    yield f"command  {spelled(request.command)}"
    yield f"  nodes  {len(names)}, placements of {search.smallest} to {search.largest}"
    for line in priors:
        yield f"  prior  {line}"
    for point in search.ask(max(1, request.executor.jobs or 1)):
        yield f"  first  {','.join(names[node] for node in as_indexes(point[NODES]))}"
    for words, rate in (("always", 1.0), ("every second run", 0.5)):
        runs, nodes = _expected(request, rate)
        yield f"  cost   {runs} runs, {nodes} node-runs, if one guilty node fails {words}"


def _check(request: IsolateRequest) -> None:
    if not request.command or not request.nodes:
        raise UsageError(
            "give --nodes and the job behind --, such as: aorta isolate --nodes n[1-8] -- srun job"
        )
    names = request.names
    if len(names) < 2:
        raise UsageError("names one node; at least two are needed to compare", where="--nodes")
    if request.smallest > len(names):
        raise UsageError(
            f"the job needs {request.smallest} nodes ({request.world_size} ranks, "
            f"{request.ranks_per_node} on a node), and --nodes names {len(names)}",
            where="--world-size",
        )
    if request.executor.name == "local" and not all(name.isdigit() for name in names):
        raise UsageError(
            "here nodes are its devices, such as 0,1,2,3; add --executor slurm for hosts",
            where="--nodes",
        )


def _search(request: IsolateRequest) -> tuple[Isolation, list[str]]:
    """With prior weights of the nodes, and in words what attribution reads in earlier failures."""
    names = request.names
    weights, said = [1.0] * len(names), []
    for path in request.history:
        finding = attribute_request(AttributeRequest(logs=(path,))).finding
        node, rank = finding.root.node, finding.root.rank
        if node not in names and rank is not None:
            at = rank // request.ranks_per_node
            node = names[at] if at < len(names) else None
        if node not in names or finding.confidence < _SURE:
            continue
        weight = _STRONG_SUSPECT if finding.failure_class in _HARDWARE else _SUSPECT
        weights[names.index(node)] *= weight
        said.append(f"{node}: {finding.failure_class} in {path.name} (weighs {weight:g} times)")
    return Isolation(
        nodes=len(names),
        smallest=request.smallest,
        largest=request.most_nodes,
        confidence=request.confidence,
        suspicion=weights,
    ), said


def _experiment(request: IsolateRequest) -> WorkloadExperiment:
    return workload_experiment(
        WorkloadRequest(
            workload="command",
            config={"command": request.command, "cwd": str(request.cwd)},
            environment=request.layers.resolved_environment(),
            mitigations=request.layers.resolved_mitigations(),
            extra_env=[request.layers.extra_env],
            oracle=request.oracle,
            timeout=request.timeout,
        )
    )


@dataclass(frozen=True)
class _Placements:
    """The experiment: the command on the nodes of a placement, in its order of ranks."""

    request: IsolateRequest
    base: WorkloadExperiment

    @property
    def oracle(self) -> Deciding:
        return self.base.deciding

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        chosen = tuple(self.request.names[node] for node in as_indexes(point[NODES]))
        trial = self.base.trial(Point.of({}), index, trial_dir)
        env = {**trial.env, NODES_VARIABLE: ",".join(chosen)}
        resources = self.request.executor.resources
        if self.request.executor.name == "local":
            masks = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
            env |= dict.fromkeys(masks, ",".join(chosen))
        elif self.request.executor.name == "slurm":
            resources = replace(resources, nodes=len(chosen), nodelist=chosen)
        return replace(trial, id=f"{point.key}.{index}", env=env, resources=resources)


def _fingerprint(request: IsolateRequest) -> Mapping[str, object]:
    return {
        "command": [request.command, str(request.cwd)],
        "nodes": [*request.names, request.ranks_per_node, request.smallest],
        "environment": repr(request.layers),
        "oracle": repr(request.oracle),
        "history": [str(path) for path in request.history],
        "confidence": request.confidence,
    }


def _first_rank(record: TrialRecord, end: TrialEnd) -> dict[str, str]:
    """The rank that failed first, where attribution is sure of one."""
    logs = tuple(s.path for s in (end.stdout, end.stderr) if s.path.is_file() and s.bytes_seen)
    if record.outcome is not Outcome.REPRODUCED or not logs:
        return {}
    finding = attribute_request(AttributeRequest(logs=logs)).finding
    known = finding.root.rank is not None and finding.confidence >= _SURE
    return {FIRST_RANK: str(finding.root.rank)} if known else {}


def _note_first_rank(search: Isolation, record: TrialRecord, ranks_per_node: int) -> None:
    rank = record.kept.get(FIRST_RANK)
    position = None if rank is None else int(rank) // ranks_per_node
    if position is not None and position < len(as_indexes(record.point[NODES])):
        search.note_first(record.point, position)


def _expected(request: IsolateRequest, rate: float) -> tuple[int, int]:
    """The median of a few simulated searches for one guilty node: runs, and nodes times runs."""
    costs = []
    for seed in range(_REHEARSALS):
        rng, (search, _) = random.Random(seed), _search(request)
        guilty, nodes = rng.randrange(search.nodes), 0
        while not search.done:
            point = search.ask(1)[0]
            members = as_indexes(point[NODES])
            nodes += len(members)
            search.tell(point, Verdict(guilty in members and rng.random() < rate))
        costs.append((search.runs, nodes))
    return sorted(costs)[_REHEARSALS // 2]


def _share(failed: int, passed: int) -> float | None:
    return round(failed / (failed + passed), 4) if failed + passed else None
