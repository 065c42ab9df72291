"""The NaN example (`train.py`) as a registered workload, with its axes declared in Python."""

import math
import time
from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

from aorta.workloads.base import Workload, WorkloadResult
from aorta.workloads.half_nan.train import SHAPES_FILE, TrainSettings, train


class HalfNan(Workload):
    """A mixed-precision training run whose scaled gradients overflow."""

    axes = (
        {
            "name": "NUM_STEPS",
            "kind": "env",
            "type": "int",
            "initial": 5000,
            "floor": 50,
            "strategy": "binary",
            "monotone": True,
        },
        {
            "name": "BATCH_SIZE",
            "kind": "env",
            "type": "int",
            "initial": 2048,
            "floor": 16,
            "strategy": "binary",
        },
        {
            "name": "SHAPES_FILE",
            "kind": "file_subset",
            "initial": str(SHAPES_FILE),
            "strategy": "dd-min",
        },
    )
    steps_axis = "NUM_STEPS"
    predicates: ClassVar = {"ended_in_nan": lambda result: math.isnan(result.metrics["last_loss"])}

    def setup(self) -> None:
        self.settings = TrainSettings.from_env(self.variables())

    def run(self) -> WorkloadResult:
        times = [time.perf_counter()]
        loss = math.inf
        for loss in train(self.settings):
            times.append(time.perf_counter())
            if math.isnan(loss):
                break
        steps = len(times) - 1
        result = WorkloadResult(
            passed=True,
            total_iterations=steps,
            step_times_ms=[(end - start) * 1000 for start, end in pairwise(times)],
            elapsed_sec=times[-1] - times[0],
            metrics={"last_loss": loss},
            main_work_started=True,
            executed_iterations=steps,
            configured_iterations=self.settings.num_steps,
        )
        return _with_nan(result, steps) if math.isnan(loss) else result


def _with_nan(result: WorkloadResult, step: int) -> WorkloadResult:
    hint = f"NaN detected at step {step}"
    print(hint, flush=True)
    return replace(
        result,
        passed=False,
        failure_count=1,
        first_failure_iteration=step,
        failure_details=[{"hint": hint, "type": "nan", "step": step}],
    )
