"""Confidence, fitted: how often findings were right at the first look, by dialect and by how sure
the row was.

    python -m benchmarks.attribution_confidence        prints the table
    python -m benchmarks.attribution_confidence --write    and puts it where attribution reads it

Only looks at failures that no rule had learned from count. Few fall on each dialect, so that each
share is drawn towards that of all dialects by the weight of `PRIOR` looks, and one with fewer than
`FEWEST` has that of all. A weak row never reaches what a STOP needs, nor a likely one what it needs
after the first step.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from aorta.attribution.finding import BANDS, band_of, fitted_as
from aorta.attribution.policy import SURE, SURE_LATER, stops_at_first
from aorta.attribution.taxonomy import FailureClass
from benchmarks import attribution_words
from benchmarks.faults.corpus import cases
from benchmarks.faults.field.sets import SETS

RESULTS = Path(__file__).parent / "results"
TABLE = Path(__file__).parents[1] / "src/aorta/attribution/confidence.toml"
# Looks: dialects differ by no more than chance where their rows are sure, and by much where they
# are weak. Leaving each set out in turn, the looks cannot tell priors of 1 to 12 for likely and
# weak rows apart (log loss .4175 at best, .4178 with 3). Of these, 3 is taken because every band
# then states within a tenth of what was right; with 5 or 8 the second states .11 too little.
PRIOR = {"certain": 20, "likely": 3, "likely_mistake": 20, "weak": 3, "nothing": 5}
# A hundred looks cannot show more for certain; for the others, with what an exit code adds, too
# little to stop.
MOST = {
    "certain": 0.95,
    "likely": SURE_LATER - 0.04,
    "likely_mistake": SURE_LATER - 0.04,
    "weak": SURE - 0.05,
    "nothing": 0.5,
}
FEWEST = 4  # looks that give a dialect a figure of its own
KINDS = tuple(PRIOR)
CLOSER = ("agreed", "doubted", "words", "last_lines")  # how a class is named where no row is sure
_HEAD = (
    "# How often findings were right at the first look: written by `python -m "
    "benchmarks.attribution_confidence --write`.\n"
)

LOOKED_AT = ("last", "fifth", "sixth", "seventh", "eighth")

Shares = Mapping[str, Mapping[str, tuple[int, int]]]  # kind -> dialect -> (right, of)


def main() -> None:
    report()
    if "--write" in sys.argv:
        TABLE.write_text(_HEAD + _toml(measured()))


def report() -> None:
    shares = counted(looks())
    show(shares, fitted(shares))


def looks() -> Iterator[tuple[str, bool]]:
    """What each held-back finding rested on, and whether it was right."""
    for name in LOOKED_AT:
        truth = {excerpt.name: excerpt.failure_class for excerpt in SETS[name]}
        for row in json.loads((RESULTS / f"field_{name}_look.json").read_text()):
            yield _told(row), row["class"] == truth[row["job"]]
    real = {case.name: case.failure_class for case in cases() if case.half == "frameworks"}
    for row in json.loads((RESULTS / "frameworks_look.json").read_text()):
        yield _told(row), row["class"] == real[row["job"]]
    for example in attribution_words.reports():
        yield _told(example.look), example.look["class"] == example.failure_class


def stops() -> Iterator[tuple[str, bool]]:
    """How sure a row was that named a mistake, and whether a restart would have met it again.

    The truths of the field's sets tell of that only for the job as a whole (one rank's mistake is
    restarted): there the class counts.
    """
    for row in json.loads(attribution_words.LOOKS.read_text()):
        kind = row["basis"].split(".")[1]
        if attribution_words.group_of(row["fold"]) == "collectors":
            continue  # the same reports once more: what rows say of them is the same
        of_the_scheduler = row["truth"] in {"time_limit", "cancelled"}
        named = stops_at_first(FailureClass(row["rows"])) and not of_the_scheduler
        if kind in {"certain", "likely"} and named:
            is_report = row["fold"].startswith("reports")
            yield kind, row["met_again"] if is_report else row["rows"] == row["truth"]


def read_closer() -> dict[str, dict[str, float]]:
    """How often row and words together were right, by how they came to it and how sure the words
    were; held back from the fit.

    Only reports count, held back by repository and by collector: what imitates them has words of
    few hands, which a model that knows others of theirs reads too well, and who collects together
    names classes alike.
    """
    found: dict[str, list[tuple[str, bool]]] = {kind: [] for kind in CLOSER}
    for row in json.loads(attribution_words.LOOKS.read_text()):
        is_report = attribution_words.group_of(row["fold"]) != "field"
        if attribution_words.is_asked(row) and is_report:
            closer = attribution_words.closer(row)
            found[closer.kind].append((closer.band, closer.failure_class == row["truth"]))
    return {kind: rising(_tally(iter(rows))) for kind, rows in found.items()}


def met_again(share: str) -> dict[str, float]:
    """The same for a share that tells whether a restart would meet it again, where words may stop.

    What is not more than half-way to certainty from the surest that was not met again states too
    little to stop.
    """
    found = [
        (row[share], row["met_again"])
        for row in json.loads(attribution_words.LOOKS.read_text())
        if attribution_words.is_asked(row) and row["may_stop"] and row["met_again"] is not None
    ]
    surest = max((stated for stated, again in found if not again), default=0.0)
    stated = rising(_tally((band_of(told), again) for told, again in found))
    least = (1 + surest) / 2
    return {
        name: value if int(name[1:]) / 100 >= least else min(value, SURE - 0.05)
        for name, value in stated.items()
    }


def _told(row: Mapping[str, object]) -> str:
    dialect, kind = str(row["basis"]).split(".")
    return f"{dialect}.{fitted_as(kind, FailureClass(str(row['class'])))}"


def counted(rows: Iterator[tuple[str, bool]]) -> Shares:
    found: dict[str, dict[str, list[bool]]] = {kind: defaultdict(list) for kind in KINDS}
    for basis, right in rows:
        dialect, kind = basis.split(".")
        found[kind][dialect].append(right)
    return {
        kind: {name: (sum(told), len(told)) for name, told in sorted(by_dialect.items())}
        for kind, by_dialect in found.items()
    }


def measured() -> dict[str, dict[str, float]]:
    """All that attribution states: by row and dialect, by how sure the word model is, and how often
    a STOP was right.
    """
    return {
        **fitted(counted(looks())),
        "stops": {
            kind: round(min(MOST[kind], (well + 1) / (of + 2)), 2)
            for kind, (well, of) in _tally(stops()).items()
        },
        **read_closer(),
        "mistake": met_again("mistake"),
        "mistakes": met_again("mistakes"),
    }


def _tally(rows: Iterator[tuple[str, bool]]) -> dict[str, tuple[int, int]]:
    found: dict[str, list[bool]] = defaultdict(list)
    for name, right in rows:
        found[name].append(right)
    return {name: (sum(told), len(told)) for name, told in sorted(found.items())}


def rising(tally: Mapping[str, tuple[int, int]]) -> dict[str, float]:
    """The share of each band, where none states less than one below it: such bands are taken
    together.
    """
    pools: list[tuple[list[str], int, int]] = []
    for low in sorted(BANDS):
        name = band_of(low / 100)
        right, of = tally.get(name, (0, 0))
        pools.append(([name], right, of))
        while len(pools) > 1 and _share(pools[-1]) <= _share(pools[-2]):
            names, more_right, more = pools.pop()
            earlier, right, of = pools.pop()
            pools.append(([*earlier, *names], right + more_right, of + more))
    return {name: round(_share(pool), 2) for pool in pools for name in pool[0]}


def _share(pool: tuple[list[str], int, int]) -> float:
    return (pool[1] + 1) / (pool[2] + 2)


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
        "\nreliability at first looks that nothing was learned from, and the confidence fitted to "
        "it"
    )
    print(f"{'row':8} {'dialect':12} {'right':>10} {'stated':>7}")
    for kind, by_dialect in shares.items():
        for dialect, (right, of) in by_dialect.items():
            print(
                f"{kind:8} {dialect:12} {f'{right} of {of}':>10} "
                f"{table[kind].get(dialect, table[kind]['overall']):7.2f}"
            )
        print(f"{kind:8} {'any other':12} {'':10} {table[kind]['overall']:7.2f}")


def _toml(table: Mapping[str, Mapping[str, float]]) -> str:
    return "".join(
        f"\n[{kind}]\n" + "".join(f"{name} = {value}\n" for name, value in row.items())
        for kind, row in table.items()
    )


if __name__ == "__main__":
    main()
