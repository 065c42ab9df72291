"""The word model, fitted: from failures whose cause is known, and judged on those that were held
back from the fit.

    python -m benchmarks.attribution_words                    prints how it reads what it was not
    fitted on python -m benchmarks.attribution_words --write            and writes its weights, and
    what it said of what was held back python -m benchmarks.attribution_words --collect FILE...
    takes failures from files of public bug reports

It learns from the field's eight sets, the corpus, the messages that rows must read, and
`faults/reports.jsonl`: what public bug reports show, as messages without values, paths and names,
each with its class, whether a restart would meet it again, and what the rows said of it when they
first saw it. Every set, and every quarter of the reports (by repository, so that none is on both
sides), is held back in turn. Then all reports of one collector are, who looked at other systems
than the other and has a hand of his own in naming classes: that is how far it carries. Of the
field's sets the first looks count: rows have learned from them since.
"""

import argparse
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aorta.attribution import Evidence, LogTail, attribute
from aorta.attribution.analysis import what_was_said
from aorta.attribution.facts import ReadCloser
from aorta.attribution.finding import (
    FITTED,
    HOW_IT_SHOWS,
    fitted_as,
    may_stop,
    met_again,
    read_closer,
    speaks_of_a_failure,
)
from aorta.attribution.policy import MISTAKES, SURE
from aorta.attribution.registry import built_in
from aorta.attribution.taxonomy import FailureClass, Role
from aorta.attribution.word_model import (
    MISTAKE,
    SCALE,
    WEIGHTS,
    Guess,
    Said,
    WordModel,
    features,
    guessed,
    said_of,
)
from benchmarks.faults.corpus import cases
from benchmarks.faults.field.sets import SETS

REPORTS = Path(__file__).parent / "faults" / "reports.jsonl"
RESULTS = Path(__file__).parent / "results"
LOOKS = RESULTS / "words_look.json"
MODEL = Path(__file__).parents[1] / "src/aorta/attribution" / WEIGHTS
QUARTERS = 4
OF_COLLECTOR = "collector"
PULL = 0.03  # towards nothing, of every weight
ROUNDS = 80
FEWEST = 2  # examples that a word must stand in
SMALLEST = 5  # of a weight that is written, in hundredths
# The field's sets and the corpus tell what a first failure gets; what is restarted once to be safe
# may be a mistake all the same.
_MAY_BE_A_MISTAKE = {"user_exception", "assertion", "device_oom", "data_error", "unknown"}

Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class Example:
    """A failure with what it says, what is true of it, and what the rows first said of it."""

    name: str
    fold: str
    failure_class: str
    mistake: bool | None
    said: Said
    look: Mapping[str, object]
    repository: str = ""
    collector: int | None = None


ROWS_ALONE = WordModel((), {})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--collect", nargs="+", type=Path, metavar="FILE")
    asked = parser.parse_args()
    if asked.collect:
        REPORTS.write_text("".join(f"{json.dumps(row)}\n" for row in collected(asked.collect)))
        return
    found = list(examples())
    looks = held_back(found)
    if asked.write:
        MODEL.write_text(written(found), encoding="utf-8")
        LOOKS.write_text("[\n" + ",\n".join(json.dumps(row) for row in looks) + "\n]\n")
    report(looks)


# ---- what it learns from


def collected(files: Iterable[Path]) -> Iterator[dict[str, object]]:
    """Reports as they are kept: what the library says, and what rows that had never seen it said. A
    file is one collector's.
    """
    for collector, file in enumerate(files, 1):
        for line in file.read_text().splitlines():
            told = json.loads(line)
            log = "\n".join(told["lines"]) + "\n"
            evidence = Evidence(tails=(LogTail(log, name="job.log"),))
            result = attribute(evidence, words=ROWS_ALONE)
            look = {
                "class": result.finding.failure_class,
                "action": result.decision.action,
                "basis": result.finding.basis,
                "steps": result.finding.made_steps,
            }
            kept = {name: told[name] for name in ("name", "source", "system", "class", MISTAKE)}
            said = what_was_said(evidence).as_dict()
            yield {**kept, "collector": collector, "said": said, "look": look}


def examples() -> Iterator[Example]:
    for name, excerpts in SETS.items():
        looks = json.loads((RESULTS / f"field_{name}_look.json").read_text())
        by_job = {row["job"]: row for row in looks}
        for each in excerpts:
            mistake = _told(each.user_error, each.failure_class)
            said = what_was_said(each.evidence())
            yield Example(each.name, name, each.failure_class, mistake, said, by_job[each.name])
    for case in cases():
        mistake = _told(case.user_error, case.failure_class)
        said = what_was_said(case.evidence())
        yield Example(case.name, "corpus", case.failure_class, mistake, said, {})
    yield from of_rows()
    yield from reports()


def of_rows() -> Iterator[Example]:
    """The messages that rows must read: what they know, words know too."""
    for row in built_in().patterns:
        if row.role is Role.ROOT and row.on in {"exception", "sentence", "line"}:
            for hit in row.hits:
                said = said_of(hit, row.on != "line")
                yield Example(row.id, "rows", row.failure_class, None, said, {})


def reports() -> Iterator[Example]:
    for line in REPORTS.read_text().splitlines():
        row = json.loads(line)
        repository = row["source"].partition("#")[0].lower()
        quarter = zlib.crc32(repository.encode()) % QUARTERS
        told = row["said"]
        said = Said(
            told.get("kind", ""),
            told.get("message", ""),
            told.get("later", ""),
            tuple(told.get("frames", ())),
            tuple(told.get("around", ())),
        )
        fold = f"reports {quarter + 1}"
        known = (row["name"], fold, row["class"], row[MISTAKE], said, row["look"])
        yield Example(*known, repository, row["collector"])


def _told(user_error: bool, failure_class: str) -> bool | None:
    return None if not user_error and failure_class in _MAY_BE_A_MISTAKE else user_error


# ---- the fit


def written(found: Sequence[Example]) -> str:
    """The model's file: its columns, then a line a word, with the weights that are not nearly
    nothing.
    """
    vectors = [features(example.said) for example in found]
    often = Counter(word for vector in vectors for word in vector)
    vocabulary = sorted(word for word, times in often.items() if times >= FEWEST)
    matrix = _matrix(vectors, vocabulary)
    columns, weights = _weights(matrix, found)
    lines = [" ".join(columns)]
    for word, row in zip(vocabulary, np.rint(weights * SCALE).astype(int), strict=True):
        entries = [f"{at}:{weight}" for at, weight in enumerate(row) if abs(weight) >= SMALLEST]
        if entries:
            lines.append(f"{word}\t{' '.join(entries)}")
    return "\n".join(lines) + "\n"


def held_back(found: Sequence[Example]) -> list[dict[str, object]]:
    """What models say of the failures that each was not fitted on, the corpus apart, of which rows
    and model know the whole.
    """
    vectors = [features(example.said) for example in found]
    matrix = _matrix(vectors, sorted({word for vector in vectors for word in vector}))
    rows: list[dict[str, object]] = []
    for fold, rest, out in _folds(found):
        columns, weights = _weights(matrix[rest], [found[index] for index in rest])
        for index, sums in zip(out, matrix[out] @ weights, strict=True):
            guess = guessed(dict(zip(columns, map(float, sums), strict=True)))
            example = found[index]
            rows.append(
                {
                    "job": example.name,
                    "fold": fold,
                    "truth": example.failure_class,
                    "met_again": example.mistake,
                    "rows": example.look["class"],
                    "basis": _basis(example.look),
                    "action": example.look["action"],
                    "speaks": speaks_of_a_failure(example.said),
                    "raised": bool(example.said.kind),
                    "may_stop": may_stop(example.said, FailureClass(str(example.look["class"]))),
                    "class": guess.failure_class,
                    "share": round(guess.share, 3),
                    MISTAKE: round(guess.mistake, 3),
                    "mistakes": round(guess.mistakes, 3),
                }
            )
    return rows


def _folds(found: Sequence[Example]) -> Iterator[tuple[str, list[int], list[int]]]:
    """What is held back in turn: its name, what the model is fitted on meanwhile, and what it is
    asked of.
    """
    for fold in dict.fromkeys(example.fold for example in found):
        if fold not in {"corpus", "rows"}:
            # Rows have learned from the field's sets.
            unknown = {fold} if fold.startswith("reports") else {fold, "rows"}
            rest = [index for index, example in enumerate(found) if example.fold not in unknown]
            yield fold, rest, [i for i, example in enumerate(found) if example.fold == fold]
    for collector in sorted({e.collector for e in found if e.collector is not None}):
        out = [i for i, example in enumerate(found) if example.collector == collector]
        known = {found[index].repository for index in out}
        rest = [i for i, e in enumerate(found) if e.repository not in known]
        yield f"{OF_COLLECTOR} {collector}", rest, out


def _basis(look: Mapping[str, object]) -> str:
    """The first three sets were looked at before what a finding rests on was told."""
    known = look.get("basis")
    sure = float(str(look.get("confidence", 0)))
    kind = "certain" if sure >= 0.85 else "likely" if sure >= 0.65 else "weak"
    return str(known) if known else f"first.{kind}"


def _matrix(vectors: Sequence[Mapping[str, float]], vocabulary: Sequence[str]) -> Matrix:
    at = {word: index for index, word in enumerate(vocabulary)}
    matrix = np.zeros((len(vectors), len(vocabulary)), np.float32)
    for row, vector in enumerate(vectors):
        for word, much in vector.items():
            if word in at:
                matrix[row, at[word]] = much
    return matrix


def _weights(matrix: Matrix, found: Sequence[Example]) -> tuple[tuple[str, ...], Matrix]:
    """The columns and, for each word, what it says for and against each."""
    columns = tuple(sorted({example.failure_class for example in found}))
    alike = matrix @ matrix.T
    truth = np.array([[e.failure_class == name for name in columns] for e in found], np.float32)
    classes = matrix.T @ _fitted(alike, truth)
    known = [index for index, example in enumerate(found) if example.mistake is not None]
    again = np.array([[bool(found[i].mistake), not found[i].mistake] for i in known], np.float32)
    both = matrix[known].T @ _fitted(alike[np.ix_(known, known)], again)
    return (*columns, MISTAKE), np.column_stack([classes, both[:, 0] - both[:, 1]])


def _fitted(alike: Matrix, truth: Matrix) -> Matrix:
    """How much each example counts for each column: a softmax regression with small weights, by
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


# ---- how well


def is_asked(row: Mapping[str, object]) -> bool:
    """Whether the word model is asked: no row was sure, or it told only how it showed."""
    kind = str(row["basis"]).split(".")[1]
    if not row["speaks"]:
        return False
    return kind in {"weak", "nothing"} or (kind != "certain" and row["rows"] in HOW_IT_SHOWS)


def verdict(row: Mapping[str, object]) -> tuple[str, str, float]:
    """The class, the decision and the confidence that rows and words together come to, at the first
    failure of a job that made no step.
    """
    if not is_asked(row):
        return str(row["rows"]), str(row["action"]), _share(row)
    told = closer(row)
    stops = told.failure_class in MISTAKES and _met_again(row) >= SURE
    return told.failure_class, "STOP" if stops else "RESTART", FITTED[told.kind][told.band]


def closer(row: Mapping[str, object]) -> ReadCloser:
    known = (FailureClass(str(row["rows"])), str(row["basis"]), _share(row))
    is_mistake = _met_again(row) >= SURE
    return read_closer(*known, _guess(row), bool(row["raised"]), is_mistake=is_mistake)


def _met_again(row: Mapping[str, object]) -> float:
    return met_again(_guess(row)) if row["may_stop"] else 0.0


def _guess(row: Mapping[str, object]) -> Guess:
    shares = (float(str(row[name])) for name in ("share", MISTAKE, "mistakes"))
    return Guess(FailureClass(str(row["class"])), *shares)


def _share(row: Mapping[str, object]) -> float:
    """What a row's word is worth by itself."""
    dialect, kind = str(row["basis"]).split(".")
    table = FITTED[fitted_as(kind, FailureClass(str(row["rows"])))]
    return table.get(dialect, table["overall"])


def report(looks: Sequence[Mapping[str, object]]) -> None:
    print(
        "\nheld back from the fit: what rows said at first looks, and what rows and words come to "
        "together"
    )
    print(f"{'':12} {'':4} {'class right':>14} {'mistakes stopped':>20} {'wrong STOPs':>14}")
    print(
        f"{'held back':12} {'jobs':>4} {'rows':>7}{'both':>7} {'rows':>8}{'both':>6}{'of':>6} "
        f"{'rows':>8}{'both':>6}"
    )
    folds = dict.fromkeys(str(row["fold"]) for row in looks)
    for fold in (*folds, "field", "reports", f"{OF_COLLECTOR}s"):
        _row(fold, [row for row in looks if fold in {row["fold"], group_of(str(row["fold"]))}])
    told = [(verdict(row), row) for row in looks if group_of(str(row["fold"])) == "collectors"]
    print("\nreliability of what both come to, on the reports of another collector: stated, right")
    for low, high in ((0.9, 1.0), (0.8, 0.9), (0.7, 0.8), (0.5, 0.7), (0.3, 0.5), (0.0, 0.3)):
        band = [(c, name == row["truth"]) for (name, _, c), row in told if low <= c < high]
        if band:
            stated, right = (sum(column) for column in zip(*band, strict=True))
            print(f"  {stated / len(band):.2f}   {right} of {len(band)} ({right / len(band):.0%})")


def group_of(fold: str) -> str:
    """What is held back together: the sets of the field, the quarters of the reports, or the
    reports of each collector.
    """
    kind = fold.split(maxsplit=1)[0]
    return {"reports": "reports", OF_COLLECTOR: "collectors"}.get(kind, "field")


def _row(name: str, looks: Sequence[Mapping[str, object]]) -> None:
    told = [(row, verdict(row)) for row in looks]
    rows = sum(row["rows"] == row["truth"] for row in looks)
    both = sum(row["truth"] == said for row, (said, _, _) in told)
    mistakes = [(row["action"], action) for row, (_, action, _) in told if row["met_again"]]
    spared = [
        (row["action"], action)
        for row, (_, action, _) in told
        if row["met_again"] is False and row["truth"] not in {"time_limit", "cancelled"}
    ]
    right, wrong = (
        [sum(column == "STOP" for column in columns) for columns in zip(*rows_, strict=True)]
        for rows_ in (mistakes, spared)
    )
    print(
        f"{name:12} {len(looks):4} {rows:7}{both:7} {right[0]:8}{right[1]:6}{len(mistakes):6} "
        f"{wrong[0]:8}{wrong[1]:6}"
    )


if __name__ == "__main__":
    main()
