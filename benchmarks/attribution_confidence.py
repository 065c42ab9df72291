"""Confidence, fitted: how often findings were right at the first look, by dialect and by how sure the row was.

    python -m benchmarks.attribution_confidence        prints the table
    python -m benchmarks.attribution_confidence --write    and puts it where attribution reads it

Only looks at failures that no rule had learned from count. Few fall on each dialect, so that each share is drawn towards that of all
dialects by the weight of `PRIOR` looks, and one with fewer than `FEWEST` has that of all. A weak row never reaches what a STOP needs, nor a likely one
what it needs after the first step.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from aorta.attribution.decision import SURE, SURE_LATER
from aorta.attribution.finding import fitted_as
from aorta.attribution.taxonomy import FailureClass
from benchmarks.faults.corpus import cases
from benchmarks.faults.field import eighth, fifth, last, seventh, sixth

RESULTS = Path(__file__).parent / "results"
TABLE = Path(__file__).parents[1] / "src/aorta/attribution/confidence.toml"
# Looks: dialects differ by no more than chance where their rows are sure, and by much where they are weak.
# Leaving each set out in turn, the looks cannot tell priors of 1 to 12 for likely and weak rows apart (log loss .4175 at best, .4178 with 3).
# Of these, 3 is taken because every band then states within a tenth of what was right; with 5 or 8 the second states .11 too little.
PRIOR = {"certain": 20, "likely": 3, "likely_mistake": 20, "weak": 3, "nothing": 5}
# A hundred looks cannot show more for certain; for the others, with what an exit code adds, too little to stop.
MOST = {
    "certain": 0.95,
    "likely": SURE_LATER - 0.04,
    "likely_mistake": SURE_LATER - 0.04,
    "weak": SURE - 0.05,
    "nothing": 0.5,
}
FEWEST = 4  # looks that give a dialect a figure of its own
KINDS = tuple(PRIOR)
_HEAD = "# How often findings were right at the first look: written by `python -m benchmarks.attribution_confidence --write`.\n"

LOOKED_AT = (
    ("last", last.EXCERPTS),
    ("fifth", fifth.EXCERPTS),
    ("sixth", sixth.EXCERPTS),
    ("seventh", seventh.EXCERPTS),
    ("eighth", eighth.EXCERPTS),
)

Shares = Mapping[str, Mapping[str, tuple[int, int]]]  # kind -> dialect -> (right, of)


def main() -> None:
    report()
    if "--write" in sys.argv:
        TABLE.write_text(_HEAD + _toml(fitted(counted(looks()))))


def report() -> None:
    shares = counted(looks())
    show(shares, fitted(shares))


def looks() -> Iterator[tuple[str, bool]]:
    """What each held-back finding rested on, and whether it was right."""
    for name, excerpts in LOOKED_AT:
        truth = {excerpt.name: excerpt.failure_class for excerpt in excerpts}
        for row in json.loads((RESULTS / f"field_{name}_look.json").read_text()):
            yield _told(row), row["class"] == truth[row["job"]]
    real = {case.name: case.failure_class for case in cases() if case.half == "frameworks"}
    for row in json.loads((RESULTS / "frameworks_look.json").read_text()):
        yield _told(row), row["class"] == real[row["job"]]


def _told(row: Mapping[str, str]) -> str:
    dialect, kind = row["basis"].split(".")
    return f"{dialect}.{fitted_as(kind, FailureClass(row['class']))}"


def counted(rows: Iterator[tuple[str, bool]]) -> Shares:
    found: dict[str, dict[str, list[bool]]] = {kind: defaultdict(list) for kind in KINDS}
    for basis, right in rows:
        dialect, kind = basis.split(".")
        found[kind][dialect].append(right)
    return {
        kind: {name: (sum(told), len(told)) for name, told in sorted(by_dialect.items())}
        for kind, by_dialect in found.items()
    }


def fitted(shares: Shares) -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {}
    for kind, by_dialect in shares.items():
        right, of = (sum(column) for column in zip(*by_dialect.values(), strict=True))
        overall = (right + 1) / (of + 2)
        most = MOST[kind]
        table[kind] = {"overall": round(min(most, overall), 2)}
        for dialect, (well, looked) in by_dialect.items():
            if looked < FEWEST:
                continue
            share = (well + PRIOR[kind] * overall) / (looked + PRIOR[kind])
            table[kind][dialect] = round(min(most, share), 2)
    return table


def show(shares: Shares, table: Mapping[str, Mapping[str, float]]) -> None:
    print(
        "\nreliability at first looks that nothing was learned from, and the confidence fitted to it"
    )
    print(f"{'row':8} {'dialect':12} {'right':>10} {'stated':>7}")
    for kind, by_dialect in shares.items():
        for dialect, (right, of) in by_dialect.items():
            print(
                f"{kind:8} {dialect:12} {f'{right} of {of}':>10} {table[kind].get(dialect, table[kind]['overall']):7.2f}"
            )
        print(f"{kind:8} {'any other':12} {'':10} {table[kind]['overall']:7.2f}")


def _toml(table: Mapping[str, Mapping[str, float]]) -> str:
    return "".join(
        f"\n[{kind}]\n" + "".join(f"{name} = {value}\n" for name, value in row.items())
        for kind, row in table.items()
    )


if __name__ == "__main__":
    main()
