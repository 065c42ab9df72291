"""Is this the same failure again? Measured on a corpus of strangers' messages, verb by verb.

Noisy programs fail in one way, in words that vary; slips are two failures that are not the same.
`first` were written before the rule, `later` after it, `third` and `fourth` each when all before
were right to the last. Prints, for the rule itself and for `run`, `triage` and `reduce`, how many
of the same were called the same and how many of the different were called different, and what
noise costs a reduction in trials.
"""

import random
import shlex
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from aorta import api
from aorta.core.failure import failure_of, learned, same_failure
from aorta.core.trial import StreamEnd, TrialEnd
from benchmarks.identity_cases import (
    NOISY_FROM,
    ROWS,
    SLIPS_BELOW,
    Case,
    Said,
    cases,
    program,
    said,
)
from benchmarks.identity_peers import same_exit, same_group

_RUNS, _TRIALS = 12, 6
_NOWHERE = Path("none")


@dataclass
class Count:
    right: int = 0
    of: int = 0
    wrong: tuple[str, ...] = ()

    def add(self, name: str, right: int, of: int) -> None:
        self.right, self.of = self.right + right, self.of + of
        if right < of:
            self.wrong = (*self.wrong, f"{name} ({right} of {of})")

    def line(self, what: str, most: int = 20) -> str:
        share = 100 * self.right / self.of if self.of else 0.0
        named = ", ".join(self.wrong[:most])
        more = f" and {len(self.wrong) - most} more" if len(self.wrong) > most else ""
        missed = f"; wrong: {named}{more}" if self.wrong else ""
        return f"  {what:49} {self.right:5} of {self.of:5}  {share:6.2f} %{missed}"


def end_of(run: Said) -> TrialEnd:
    out, err = (StreamEnd(_NOWHERE, tail=text) for text in (run.stdout, run.stderr))
    return TrialEnd("t", out, err, exit_code=run.exit_code, signal=run.signal)


def rule_on_noise(case: Case) -> tuple[int, int]:
    """Failures of one configuration, one after the other, beside what was learned so far."""
    rng = random.Random(case.name)
    known, right = failure_of(end_of(said(case.one, rng))), 0
    for _ in range(_RUNS - 1):
        more = learned(known, failure_of(end_of(said(case.one, rng))))
        known, right = more or known, right + (more is not None)
    return right, _RUNS - 1


def rule_on_noise_unlearned(case: Case) -> tuple[int, int]:
    """The same, each beside the first alone."""
    rng = random.Random(case.name)
    failures = [failure_of(end_of(said(case.one, rng))) for _ in range(_RUNS)]
    return sum(map(bool, (same_failure(failures[0], f) for f in failures[1:]))), _RUNS - 1


def rule_on_slips(case: Case) -> tuple[int, int]:
    """Beside one failure, and beside what three taught, both ways round."""
    rng, other = random.Random(case.name), case.other or {}
    first, *more = [failure_of(end_of(said(case.one, rng))) for _ in range(3)]
    known = first
    for failure in more:
        known = learned(known, failure) or known
    pairs = [(one, failure_of(end_of(said(other, rng)))) for one in (first, known, first, known)]
    found = [same_failure(*pair) for pair in (*pairs, *(pair[::-1] for pair in pairs))]
    return sum(not answer for answer in found), len(found)


def peers() -> None:
    """The same corpus by what two other systems call the same; each failure beside the first."""
    for name, same in (("exit code alone", same_exit), ("frames, type, message", same_group)):
        noise, slips = Count(), Count()
        for case in cases("noisy"):
            rng = random.Random(case.name)
            first, *more = [said(case.one, rng) for _ in range(_RUNS)]
            noise.add(case.name, sum(same(first, one) for one in more), len(more))
        for case in cases("slips"):
            rng = random.Random(case.name)
            pairs = [(said(case.one, rng), said(case.other or {}, rng)) for _ in range(4)]
            slips.add(case.name, sum(not same(*pair) for pair in pairs), len(pairs))
        print(noise.line(f"same called same: {name}", most=4))
        print(slips.line(f"different called different: {name}", most=4))


def run_on_noise(case: Case, folder: Path) -> tuple[int, int]:
    report = api.run(
        command=tuple(program(case, folder)), trials=_TRIALS, results_dir=folder / "results"
    )
    return report.tally.reproduced, _TRIALS


def matrix_of(case: Case, folder: Path, rows: int) -> dict[str, Any]:
    """The cell whose ROWS are these, beside a baseline of all rows."""
    recipe = {
        "schema_version": 1,
        "workload": "command",
        "trials": _TRIALS,
        "workload_config": {"command": program(case, folder)},
        "cells": [
            {"name": "baseline-local", "mitigations": ["none"], "environment": "local"},
            {
                "name": "fewer",
                "mitigations": ["none"],
                "environment": "local",
                "extra_env": {"ROWS": str(rows)},
            },
        ],
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    report = api.triage(recipe=path, output_dir=folder / "triage")
    return {cell["name"]: cell for cell in report.to_json()["cells"]}


def triage_on_noise(case: Case, folder: Path) -> tuple[int, int]:
    cells = matrix_of(case, folder, ROWS // 2)
    return sum(cell["failed_count"] for cell in cells.values()), _trials(cells)


def triage_on_slips(case: Case, folder: Path) -> tuple[int, int]:
    cells = matrix_of(case, folder, SLIPS_BELOW // 2)
    right = cells["baseline-local"]["failed_count"] + cells["fewer"]["other_count"]
    return right, _trials(cells)


def _trials(cells: dict[str, Any]) -> int:
    return sum(cell["trials"] for cell in cells.values())


def reduced(case: Case, folder: Path, *before: str) -> api.ReduceReport:
    spec = {
        "workload": {"command": shlex.join([*before, *program(case, folder)])},
        "oracle": {"kind": "exit_code"},
        "axes": [{"name": "ROWS", "kind": "env", "type": "int", "initial": ROWS, "floor": 1}],
    }
    path = folder / "aorta.yaml"
    path.write_text(yaml.safe_dump(spec))
    return api.reduce(spec=path, output=folder / "reduce")


def rows_of(report: api.ReduceReport) -> int:
    (axis,) = report.to_json()["axes"]
    return int(axis["final"])


def by_verb(
    kind: str, measure: Callable[[Case, Path], tuple[int, int]], *, batch: str | None = None
) -> Count:
    count = Count()
    for case in cases(kind):
        if batch in {None, case.batch}:
            with tempfile.TemporaryDirectory(prefix="aorta-identity-") as scratch:
                count.add(case.name, *measure(case, Path(scratch)))
    return count


def by_rule(kind: str, measure: Callable[[Case], tuple[int, int]], batch: str) -> Count:
    count = Count()
    for case in cases(kind):
        if case.batch == batch:
            count.add(case.name, *measure(case))
    return count


def reductions() -> None:
    """Right answers, and the trials of varying words against those of constant ones."""
    noisy, slips, ratios = Count(), Count(), []
    for case in cases("noisy"):
        with tempfile.TemporaryDirectory(prefix="aorta-identity-") as scratch:
            varying = reduced(case, Path(scratch))
            constant = reduced(case, Path(scratch), "env", "CONSTANT=1")
        noisy.add(case.name, int(rows_of(varying) == NOISY_FROM), 1)
        ratios.append((varying.ending.trials / max(1, constant.ending.trials), case.name))
    for case in cases("slips"):
        with tempfile.TemporaryDirectory(prefix="aorta-identity-") as scratch:
            slips.add(case.name, int(rows_of(reduced(case, Path(scratch))) == SLIPS_BELOW), 1)
    print(noisy.line("same called same: reduce"))
    print(slips.line("different called different: reduce"))
    ratios.sort()
    mean = sum(ratio for ratio, _ in ratios) / len(ratios)
    worst = ", ".join(f"{name} {ratio:.2f}" for ratio, name in ratios[-3:])
    print(f"  {'trials against constant words':49} {mean:.3f} times; most: {worst}")


def main() -> None:
    for batch in ("first", "later", "third", "fourth"):
        sizes = [sum(case.batch == batch for case in cases(kind)) for kind in ("noisy", "slips")]
        print(f"{batch}: {sizes[0]} noisy failures, {sizes[1]} slips")
        print(by_rule("noisy", rule_on_noise, batch).line("same called same: the rule"))
        unlearned = by_rule("noisy", rule_on_noise_unlearned, batch)
        print(unlearned.line("... beside one failure alone"))
        print(by_rule("slips", rule_on_slips, batch).line("different called different: the rule"))
    print("all, by ideas of others")
    peers()
    print("all, in the verbs", flush=True)
    print(by_verb("noisy", run_on_noise).line("same called same: run"), flush=True)
    print(by_verb("noisy", triage_on_noise).line("same called same: triage"), flush=True)
    print(by_verb("slips", triage_on_slips).line("different called different: triage"), flush=True)
    reductions()
