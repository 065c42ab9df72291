"""Which stages are worth their cost: how many trials and how long each takes, and what a budget leaves out."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aorta.core.durations import show_duration
from aorta.solve.state import State

_SHARE = {"reduce": 0.45, "triage": 0.2, "bisect": 0.25, "diverge": 0.1}
"""Of the time that is left after the failure is known, where there is too little for everything."""

_QUESTIONS = {"reduce": 25, "triage": 6, "bisect": 12, "diverge": 6}
"""Points that a stage judges, as a rule."""

_SMALLER = 0.25  # of the original's time, after a usual reduction


@dataclass(frozen=True)
class Cost:
    trials: int
    seconds: float | None  # None: how long a trial takes is not known yet

    def to_json(self) -> dict[str, Any]:
        seconds = None if self.seconds is None else round(self.seconds, 1)
        return {"trials": self.trials, "seconds": seconds}


@dataclass(frozen=True)
class SolvePlan:
    """What every stage is expected to cost, and why one is left out."""

    costs: Mapping[str, Cost]
    left_out: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "stages": [
                {
                    "name": name,
                    "expected": cost.to_json(),
                    "left_out": self.left_out.get(name),
                }
                for name, cost in self.costs.items()
            ]
        }

    def lines(self) -> list[str]:
        rows = []
        for name, cost in self.costs.items():
            time = f", about {show_duration(cost.seconds)}" if cost.seconds is not None else ""
            why = f"  left out: {self.left_out[name]}" if name in self.left_out else ""
            rows.append(f"  {name:<10} about {cost.trials} trials{time}{why}")
        return rows


def plan_of(state: State) -> SolvePlan:
    """Of the stages that are still to come, from what is known now."""
    rate = state.known("reproduce").get("rate") or {"reproduced": 1, "of": 1}
    seconds = state.known("reproduce").get("median_sec")
    small = (state.known("reduce").get("final") or {}).get("median_sec")
    each = _trials_for_one(rate["reproduced"] / rate["of"] if rate["of"] else 1.0)
    costs: dict[str, Cost] = {}
    for name in state.request.stages:
        if name in state.results:
            continue
        trials = {"reproduce": 5, "bundle": 1}.get(name, _QUESTIONS.get(name, 1) * each)
        one = seconds
        if seconds is not None and name not in {"reproduce", "reduce"}:
            one = small if small is not None else seconds * _SMALLER
        costs[name] = Cost(trials, None if one is None else trials * one / state.request.jobs)
    return SolvePlan(costs, _left_out(state, costs))


def _trials_for_one(rate: float) -> int:
    """So many trials tell a point that fails at this rate from one that does not."""
    if rate >= 0.95:
        return 1
    return max(2, math.ceil(math.log(0.02) / math.log(1 - max(rate, 0.02)) / 2))


def _left_out(state: State, costs: Mapping[str, Cost]) -> dict[str, str]:
    """A stage that could not even begin to answer in what is left goes; the others share what there is."""
    left = state.seconds_left("plan")
    if left is None:
        return {}
    known = {n: c.seconds for n, c in costs.items() if n in _SHARE and c.seconds is not None}
    gone: dict[str, str] = {}
    if sum(known.values()) > left:
        for name, seconds in known.items():
            share = left * _SHARE[name] / sum(_SHARE[n] for n in known)
            state.allowed[name] = share
            one = seconds / costs[name].trials
            if share < 3 * one:
                gone[name] = (
                    f"it takes about {show_duration(seconds)}, and {show_duration(left)} are left"
                )
    return gone
