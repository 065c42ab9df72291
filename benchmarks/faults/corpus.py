"""The corpus of real failing jobs, as test and benchmark cases."""

import json
from dataclasses import dataclass
from pathlib import Path

from aorta.attribution import Evidence, LogSource
from aorta.attribution.evidence import find_dumps, find_logs, read_failures

CORPUS = Path(__file__).resolve().parents[2] / "tests" / "attribution" / "corpus"


@dataclass(frozen=True)
class Case:
    """One failed job and what a perfect reader would say about it."""

    path: Path
    name: str
    failure_class: str
    root_ranks: tuple[int, ...]
    decision: str
    user_error: bool
    half: str
    origin: str

    def evidence(self, *, with_failures: bool = True) -> Evidence:
        kernel, flights = self.path / "kernel.log", self.path / "flight_recorder"
        return Evidence(
            logs=find_logs([self.path]),
            failures=read_failures(self.path / "failures.json") if with_failures else (),
            kernel_logs=(LogSource(kernel),) if kernel.exists() else (),
            flight_recorder=find_dumps(flights) if flights.is_dir() else (),
        )


def cases() -> list[Case]:
    return [_case(path) for path in sorted(CORPUS.iterdir()) if path.is_dir()]


def _case(path: Path) -> Case:
    truth = json.loads((path / "truth.json").read_text())
    return Case(path, **(truth | {"root_ranks": tuple(truth["root_ranks"])}))
