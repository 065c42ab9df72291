"""The classifier of `aorta.attribution.classify`, fitted on failures whose cause is known, and
measured on those that were held back from the fit.

    python -m benchmarks.attribution_model            prints how it reads what it was not fitted on
    python -m benchmarks.attribution_model --write    and writes its weights and what it said

It learns from the field's eight sets, the corpus, `faults/phrases.jsonl` (messages as libraries word
them) and `faults/reports.jsonl` (what public bug reports show, without values, paths and names, each
with its class, whether a restart would meet it again, and what the patterns said when they first saw
it). Every set, every quarter of the reports (by repository) and all reports of each collector are
held back in turn. Of the field's sets what the patterns said at the first look counts: they have
learned from them since.
"""

import argparse
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aorta.attribution import Evidence, facts_of
from aorta.attribution.classify import (
    SCALE,
    WEIGHTS,
    ConfidenceFit,
    Said,
    features,
    may_stop,
    said_of,
    shares_of,
)
from aorta.attribution.documents import USER_ERRORS, FailureClass
from aorta.attribution.events.reading import read
from aorta.attribution.evidence import kernel_sources, readable_sources
from aorta.attribution.policy import SURE
from aorta.attribution.timeline.causes import find_cause, with_recorded_ends
from aorta.attribution.timeline.finding import said_of_cause, speaks_of_a_failure
from benchmarks.faults.corpus import cases
from benchmarks.faults.field.sets import SETS

FAULTS = Path(__file__).parent / "faults"
RESULTS = Path(__file__).parent / "results"
LOOKS = RESULTS / "model_look.json"
MODEL = Path(__file__).parents[1] / "src/aorta/attribution" / WEIGHTS
QUARTERS = 4
PULL = 0.03  # towards nothing, of every weight
ROUNDS = 80
FEWEST = 4  # examples that a word must stand in
SMALLEST = 25  # of a weight that is written, in hundredths: half of the file, and no point of class

Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class Example:
    """A failure with what it says, what is true of it, and what patterns first said of it."""

    name: str
    fold: str
    failure_class: str
    met_again: bool | None
    said: Said
    look: Mapping[str, object]
    repository: str = ""
    collector: int | None = None


def main(write: bool = False) -> None:
    found = list(examples())
    looks = held_back(found)
    if write:
        MODEL.write_text(written(found, looks), encoding="utf-8")
        LOOKS.write_text("[\n" + ",\n".join(json.dumps(row) for row in looks) + "\n]\n")
    report(looks)


# ---- what it learns from


def examples() -> Iterator[Example]:
    for name, excerpts in SETS.items():
        told = json.loads((RESULTS / f"field_{name}_look.json").read_text())
        looks = {row["job"]: row for row in told}
        for each in excerpts:
            said = what_was_said(each.evidence())
            yield Example(each.name, name, each.failure_class, None, said, looks[each.name])
    for case in cases():
        said = what_was_said(case.evidence())
        yield Example(case.name, "corpus", case.failure_class, None, said, {})
    for line in (FAULTS / "phrases.jsonl").read_text().splitlines():
        row = json.loads(line)
        said = said_of(row["text"], row["raised"])
        yield Example(row["name"], "phrases", row["class"], None, said, {})
    yield from reports()


def what_was_said(evidence: Evidence) -> Said:
    """What the cause of a failure says, as the word model reads it."""
    logs = readable_sources(evidence)
    facts = facts_of(evidence, logs, read([*logs, *kernel_sources(evidence)])[0])
    return said_of_cause(find_cause(with_recorded_ends(facts))[0], facts)


def reports() -> Iterator[Example]:
    for line in (FAULTS / "reports.jsonl").read_text().splitlines():
        row = json.loads(line)
        repository = row["source"].partition("#")[0].lower()
        quarter = zlib.crc32(repository.encode()) % QUARTERS
        told = row["said"]
        said = Said(
            told.get("kind", ""),
            told.get("message", ""),
            told.get("later", ""),
            tuple(told.get("around", ())),
        )
        known = (row["name"], f"reports {quarter + 1}", row["class"], row["mistake"], said)
        yield Example(*known, row["look"], repository, row["collector"])


# ---- the fit


def written(found: Sequence[Example], looks: Sequence[Mapping[str, object]]) -> str:
    """The model's file: its classes, its calibrations, then a line a word with its weights."""
    vocabulary, matrix = _matrix(found)
    classes, truth = _truth(found)
    weights = _pruned(matrix.T @ _fitted(matrix @ matrix.T, truth))
    both = (of_class(looks), of_user_error(looks))
    numbers = " ".join(f"{each.slope:.3f} {each.offset:.3f}" for each in both)
    lines = [" ".join(classes), numbers]
    for word, row in zip(vocabulary, np.rint(weights * SCALE).astype(int), strict=True):
        entries = [f"{at}:{weight}" for at, weight in enumerate(row) if weight]
        if entries:
            lines.append(f"{word}\t{' '.join(entries)}")
    return "\n".join(lines) + "\n"


def held_back(found: Sequence[Example]) -> list[dict[str, object]]:
    """What models say of the failures that each was not fitted on."""
    _, matrix = _matrix(found)
    alike = matrix @ matrix.T
    classes, truth = _truth(found)
    rows: list[dict[str, object]] = []
    for fold, rest, out in _folds(found):
        fitted = _fitted(alike[np.ix_(rest, rest)], truth[rest])
        weights = _pruned(matrix[rest].T @ fitted)
        for index, sums in zip(out, matrix[out] @ weights, strict=True):
            rows.append(
                _look(fold, found[index], dict(zip(classes, map(float, sums), strict=True)))
            )
    return rows


def _look(fold: str, example: Example, sums: Mapping[str, float]) -> dict[str, object]:
    best, share, user_error = shares_of(sums, example.said)
    return {
        "job": example.name,
        "fold": fold,
        "truth": example.failure_class,
        "met_again": example.met_again,
        "patterns_said": example.look["class"],
        "pattern": _by_pattern(example.look),
        "action": example.look["action"],
        "speaks": speaks_of_a_failure(example.said),
        "may_stop": may_stop(example.said, best),
        "class": best,
        "share": round(share, 3),
        "user_error": round(user_error, 4),
    }


def _folds(found: Sequence[Example]) -> Iterator[tuple[str, list[int], list[int]]]:
    """What is held back in turn: its name, what the model is fitted on meanwhile, and what it is
    asked of. Phrases were written after the field's sets had been seen.
    """
    for fold in dict.fromkeys(example.fold for example in found):
        if fold not in {"corpus", "phrases"}:
            unknown = {fold} if fold.startswith("reports") else {fold, "phrases"}
            rest = [index for index, example in enumerate(found) if example.fold not in unknown]
            yield fold, rest, [i for i, example in enumerate(found) if example.fold == fold]
    for collector in sorted({e.collector for e in found if e.collector is not None}):
        out = [i for i, example in enumerate(found) if example.collector == collector]
        known = {found[index].repository for index in out}
        rest = [i for i, e in enumerate(found) if e.repository not in known]
        yield f"collector {collector}", rest, out


def _by_pattern(look: Mapping[str, object]) -> bool:
    """Whether a pattern that is there named it: certain ones, and likely ones of user errors. The
    first three sets were looked at before what a finding rests on was stated.
    """
    basis = look.get("basis")
    sure = float(str(look.get("confidence", 0)))
    kind = str(basis).split(".")[1] if basis else ("certain" if sure >= 0.85 else "likely")
    likely = kind == "likely" and (bool(basis) or sure >= 0.65)
    return kind == "certain" or (likely and look["class"] in USER_ERRORS)


def _matrix(found: Sequence[Example]) -> tuple[list[str], Matrix]:
    vectors = [features(example.said) for example in found]
    often = Counter(word for vector in vectors for word in vector)
    vocabulary = sorted(word for word, times in often.items() if times >= FEWEST)
    at = {word: index for index, word in enumerate(vocabulary)}
    matrix = np.zeros((len(vectors), len(vocabulary)), np.float32)
    for row, vector in enumerate(vectors):
        for word, much in vector.items():
            if word in at:
                matrix[row, at[word]] = much
    return vocabulary, matrix


def _truth(found: Sequence[Example]) -> tuple[tuple[str, ...], Matrix]:
    classes = tuple(sorted({example.failure_class for example in found}))
    return classes, np.array([[e.failure_class == c for c in classes] for e in found], np.float32)


def _pruned(weights: Matrix) -> Matrix:
    return np.where(np.abs(weights) * SCALE >= SMALLEST, weights, np.float32(0))


def _fitted(alike: Matrix, truth: Matrix) -> Matrix:
    """How much each example counts for each class: a softmax regression with small weights, by
    accelerated descent.
    """
    largest = np.ones(len(alike), np.float32)
    for _ in range(20):
        largest = alike @ largest
        length = float(np.linalg.norm(largest))
        largest /= length
    step = 1 / (0.53 * length + PULL)
    counts = ahead = np.zeros_like(truth)
    speed = 1.0
    for _ in range(ROUNDS):
        sums = alike @ ahead
        shares = np.exp(sums - sums.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        moved = np.asarray(ahead - step * (shares - truth + PULL * ahead), np.float32)
        faster = (1 + math.sqrt(1 + 4 * speed * speed)) / 2
        ahead = np.asarray(moved + (speed - 1) / faster * (moved - counts), np.float32)
        counts, speed = moved, faster
    return counts


# ---- how sure it is


def of_class(looks: Sequence[Mapping[str, object]]) -> ConfidenceFit:
    """By how often such shares were right on the reports of another collector."""
    rows = [row for row in looks if is_read(row) and group_of(row) == "collectors"]
    return _logistic([(_number(row, "share"), row["class"] == row["truth"]) for row in rows])


def of_user_error(looks: Sequence[Mapping[str, object]]) -> ConfidenceFit:
    """The same for being met again after a restart, where words may stop a job. It states what
    stops one only more than half-way to certainty from the surest that was not met again.
    """
    rows = [
        (_number(row, "user_error"), bool(row["met_again"]))
        for row in looks
        if is_read(row) and row["may_stop"] and row["met_again"] is not None
    ]
    found = _logistic(rows)
    least = (1 + max((share for share, again in rows if not again), default=0.0)) / 2
    offset = math.log(SURE / (1 - SURE)) - found.slope * math.log(least / (1 - least))
    return ConfidenceFit(found.slope, min(found.offset, offset))


def _logistic(rows: Sequence[tuple[float, bool]]) -> ConfidenceFit:
    shares = np.clip([share for share, _ in rows], 1e-6, 1 - 1e-6)
    odds = np.column_stack([np.log(shares / (1 - shares)), np.ones(len(rows))])
    right = np.array([right for _, right in rows], float)
    prior = weights = np.array([1.0, 0.0])
    for _ in range(50):
        stated = 1 / (1 + np.exp(-np.clip(odds @ weights, -30, 30)))
        curve = odds.T @ (odds * (stated * (1 - stated))[:, None]) + np.eye(2)
        uphill = odds.T @ (right - stated) - (weights - prior)
        weights = weights + 0.5 * np.linalg.solve(curve, uphill)
    return ConfidenceFit(float(weights[0]), float(weights[1]))


# ---- how well


def is_read(row: Mapping[str, object]) -> bool:
    """Whether the classifier names it: no pattern names it, and there is something to read."""
    return not row["pattern"] and bool(row["speaks"])


def verdict(row: Mapping[str, object], user_error: ConfidenceFit) -> tuple[str, str]:
    """The class and the decision at the first failure of a job that made no step."""
    if row["pattern"]:
        return str(row["patterns_said"]), str(row["action"])
    if not row["speaks"]:
        return str(row["patterns_said"]), "RESTART"
    named = FailureClass(str(row["class"]))
    sure = user_error(_number(row, "user_error")) >= SURE and row["may_stop"]
    return named, "STOP" if sure and named in USER_ERRORS else "RESTART"


def report(looks: Sequence[Mapping[str, object]]) -> None:
    stated, user_error = of_class(looks), of_user_error(looks)
    print("\nheld back from the fit: patterns, else the classifier")
    print(f"{'held back':14} {'jobs':>5} {'class':>6} {'user errors stopped':>20} {'wrong':>6}")
    folds = dict.fromkeys(str(row["fold"]) for row in looks)
    for fold in (*folds, "field", "reports", "collectors"):
        rows = [row for row in looks if fold in {row["fold"], group_of(row)}]
        said = [(row, *verdict(row, user_error)) for row in rows]
        right = sum(row["truth"] == named for row, named, _ in said)
        user = [action for row, _, action in said if row["met_again"]]
        wrong = [
            action
            for row, _, action in said
            if row["met_again"] is False and row["truth"] not in {"time_limit", "cancelled"}
        ]
        stopped = f"{user.count('STOP')} of {len(user)}"
        print(f"{fold:14} {len(rows):5} {right:6} {stopped:>20} {wrong.count('STOP'):6}")
    print("\nreliability on the reports of another collector: stated, right")
    read = [row for row in looks if is_read(row) and group_of(row) == "collectors"]
    told = [(stated(_number(row, "share")), row["class"] == row["truth"]) for row in read]
    for low, high in ((0.8, 1.0), (0.6, 0.8), (0.4, 0.6), (0.2, 0.4), (0.0, 0.2)):
        band = [pair for pair in told if low <= pair[0] < high]
        if band:
            share, right = (sum(column) for column in zip(*band, strict=True))
            print(f"  {share / len(band):.2f}   {right} of {len(band)} ({right / len(band):.0%})")


def group_of(row: Mapping[str, object]) -> str:
    """What is held back together: the sets of the field, the quarters of the reports, or the
    reports of each collector.
    """
    kind = str(row["fold"]).split(maxsplit=1)[0]
    return {"reports": "reports", "collector": "collectors"}.get(kind, "field")


def _number(row: Mapping[str, object], name: str) -> float:
    return float(str(row[name]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    main(parser.parse_args().write)
