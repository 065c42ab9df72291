"""How often attribution is right, and whether it knows: over the corpus of real failures, set by
set.

`tuning` is what the patterns were first written against. Every other set was written, with its
truth, before any rule had seen it, and measured once before anything was learned from it: that
first look is the estimate for failures to come, and is printed beside today's figure. The sets
`fresh`, `newest`, `last` and `gpu` followed one another in this order, and hold many failures that
were made to look like what they are not; `frameworks` are real failures of JAX, Ray, HF Trainer,
Lightning, srun and docker.

    python -m benchmarks.attribution_accuracy    prints the answer for every job
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aorta.attribution import Attribution, attribute
from benchmarks import attribution_model
from benchmarks.faults.corpus import Case, cases
from benchmarks.faults.field import Excerpt
from benchmarks.faults.field.sets import SETS as FIELD

RESULTS = Path(__file__).parent / "results"
FIRST_LOOKS = (RESULTS / "first_looks.json", RESULTS / "frameworks_look.json")
# class right, root right, false STOPs, user errors stopped; of the jobs that failed as meant
EARLIER = {
    "held_back": (32, 29, 32, 0, "9 of 10"),
    "later": (20, 14, 20, 0, "3 of 6"),
    "unseen": (20, 17, 20, 2, "4 of 5"),
}
SETS = ("fresh", "newest", "last", "gpu", "frameworks")


@dataclass(frozen=True)
class Look:
    """What was said about one job, beside what is true of it."""

    case: Case
    failure_class: str
    root: int | None
    action: str
    confidence: float

    @property
    def is_right(self) -> bool:
        return self.failure_class == self.case.failure_class

    @property
    def has_root(self) -> bool:
        return not self.case.root_ranks or self.root in self.case.root_ranks


def report() -> None:
    corpus = {case.name: case for case in cases()}
    results = {name: attribute(case.evidence()) for name, case in corpus.items()}
    today = [_today(corpus[name], result) for name, result in results.items()]
    told = [row for path in FIRST_LOOKS for row in json.loads(path.read_text())]
    first = [_first(corpus[row["job"]], row) for row in told]
    accuracy(today, first)
    took = sorted(result.elapsed_ms for result in results.values())
    print(f"time to verdict: median {took[len(took) // 2]:.0f} ms, slowest {took[-1]:.0f} ms")
    print("targets: no false STOP; 90 % of user errors stopped at the first failure")
    field()
    attribution_model.report(json.loads(attribution_model.LOOKS.read_text()))


def _today(case: Case, result: Attribution) -> Look:
    finding = result.finding
    return Look(
        case, finding.failure_class, finding.root.rank, result.decision.action, finding.confidence
    )


def _first(case: Case, row: dict[str, object]) -> Look:
    root, confidence = row["root"], row["confidence"]
    return Look(
        case,
        str(row["class"]),
        root if isinstance(root, int) else None,
        str(row["action"]),
        confidence if isinstance(confidence, float) else 0.0,
    )


def accuracy(today: list[Look], first: list[Look]) -> None:
    print(
        f"\n{'corpus':14} {'jobs':>4} {'class':>6} {'root':>6} {'false STOP':>11} "
        f"{'user errors stopped':>20}"
    )
    for half in ("tuning", *EARLIER, *SETS):
        row(half, [look for look in today if look.case.half == half])
        if half in EARLIER:
            of, right, root, wrong, stopped = EARLIER[half]
            print(f"{'  first look':14} {of:4} {right:6} {root:6} {wrong:11} {stopped:>20}")
        elif half in SETS:
            row("  first look", [look for look in first if look.case.half == half])
    row("all", today)


def row(name: str, looks: list[Look]) -> None:
    right = sum(look.is_right for look in looks)
    root = sum(look.has_root for look in looks)
    stops = [look.case for look in looks if look.action == "STOP"]
    wrong = sum(case.decision != "STOP" for case in stops)
    user = sum(look.case.user_error for look in looks)
    stopped = sum(case.user_error for case in stops)
    print(f"{name:14} {len(looks):4} {right:6} {root:6} {wrong:11} {f'{stopped} of {user}':>20}")


def answers() -> Iterator[str]:
    """What is said of every job, a line each: to compare two versions of the code."""
    named: list[tuple[str, Case | Excerpt]] = [(case.name, case) for case in cases()]
    named += [(f"{name}/{e.name}", e) for name, excerpts in FIELD.items() for e in excerpts]
    for name, job in named:
        found = attribute(job.evidence())
        said = (found.finding.failure_class, found.finding.root.rank, found.decision.action)
        yield f"{name:44} {' '.join(map(str, said))} {found.decision.rule}"


NOT_LEARNED_FROM = {"last"}
_FIELD_BANDS = ((0.9, 1.0), (0.7, 0.9), (0.3, 0.7), (0.0, 0.3))


def field() -> None:
    """Failures in the shapes of the field; only first looks mean anything."""
    print(
        f"\n{'field':14} {'jobs':>4} {'class':>6} {'root':>8} {'false STOP':>11} "
        f"{'user errors stopped':>20}"
    )
    looks: list[tuple[float, bool]] = []
    for name, excerpts in FIELD.items():
        rows = {
            row["job"]: row for row in json.loads((RESULTS / f"field_{name}_look.json").read_text())
        }
        looks += [
            (rows[e.name]["confidence"], rows[e.name]["class"] == e.failure_class) for e in excerpts
        ]
        first = [
            (e, rows[e.name]["class"], rows[e.name]["root"], rows[e.name]["action"])
            for e in excerpts
        ]
        _field_row(f"{name}, first look", first)
        if name not in NOT_LEARNED_FROM:
            told = ((e, attribute(e.evidence())) for e in excerpts)
            now = [
                (e, r.finding.failure_class, r.finding.root.rank, r.decision.action)
                for e, r in told
            ]
            _field_row("  today", now)
    print("\nreliability at the first looks of the field: stated confidence, right")
    for low, high in _FIELD_BANDS:
        band = [(stated, right) for stated, right in looks if low <= stated < high]
        if band:
            stated = sum(row[0] for row in band) / len(band)
            right = sum(row[1] for row in band)
            print(
                f"  {low:.1f} to {high:.1f}   {stated:.2f}   {right} of {len(band)} "
                f"({right / len(band):.0%})"
            )


def _field_row(name: str, rows: Sequence[tuple[Excerpt, str, int | None, str]]) -> None:
    right = sum(kind == e.failure_class for e, kind, _, _ in rows)
    rooted = [(e, root) for e, _, root, _ in rows if e.root_ranks]
    root = sum(found in e.root_ranks for e, found in rooted)
    wrong = sum(action == "STOP" and e.decision != "STOP" for e, _, _, action in rows)
    user = [action for e, _, _, action in rows if e.user_error]
    stopped = f"{user.count('STOP')} of {len(user)}"
    print(
        f"{name:18} {len(rows):4} {right:6} {f'{root} of {len(rooted)}':>8} {wrong:7} {stopped:>20}"
    )


if __name__ == "__main__":
    print(*answers(), sep="\n")
