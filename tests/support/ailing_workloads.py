"""Workloads that go wrong in every way a workload can, for tests that run them in a child
process.
"""

import ctypes
import logging
import math
import os
import sys
import time
from pathlib import Path
from typing import ClassVar

from aorta.workloads.base import Workload, WorkloadResult


class Healthy(Workload):
    """Passes, and tells what it was given."""

    predicates: ClassVar = {
        "was_configured": lambda result: bool(result.metrics["config"]),
        "is_broken": lambda result: bool(1 / 0),
    }

    def setup(self) -> None:
        self.note("setup")

    def run(self) -> WorkloadResult:
        self.note("run")
        return WorkloadResult(passed=True, metrics={"config": self.config})

    def cleanup(self) -> None:
        self.note("cleanup")

    def note(self, phase: str) -> None:
        """Phases go to a file, if one is wanted, because a result says nothing about what came
        after it.
        """
        if "notes" in self.config:
            with Path(self.config["notes"]).open("a") as notes:
                notes.write(f"{phase}\n")


class Failing(Healthy):
    def run(self) -> WorkloadResult:
        details = [{"hint": "the loss is NaN", "loss": math.nan, "where": Path("/x")}]
        return WorkloadResult(passed=False, failure_count=1, failure_details=details)


class ConstructorRaises(Healthy):
    def __init__(self, config: dict[str, object]) -> None:
        super().__init__(config)
        raise KeyError("no such setting")


class SetupRaises(Healthy):
    def setup(self) -> None:
        raise RuntimeError("no device")


class SetupExits(Healthy):
    def setup(self) -> None:
        sys.exit(0)


class RunRaises(Healthy):
    def run(self) -> WorkloadResult:
        raise ArithmeticError("lost a bit")


class RunMissesModule(Healthy):
    def run(self) -> WorkloadResult:
        import a_module_that_is_nowhere  # type: ignore[import-not-found]  # the point of it

        return WorkloadResult(passed=bool(a_module_that_is_nowhere))


class RunReturnsNonsense(Healthy):
    def run(self) -> WorkloadResult:
        return {"passed": True}  # type: ignore[return-value]  # what a careless author writes


class PassesWithFailures(Healthy):
    def run(self) -> WorkloadResult:
        return WorkloadResult(passed=True, failure_count=3)


class CleanupRaises(Healthy):
    def cleanup(self) -> None:
        raise OSError("could not unmount")


class CleanupSegfaults(Healthy):
    def cleanup(self) -> None:
        ctypes.string_at(0)


class RunRaisesAndCleanupRaises(RunRaises):
    def cleanup(self) -> None:
        raise OSError("could not unmount")


class Segfaults(Healthy):
    def run(self) -> WorkloadResult:
        ctypes.string_at(0)
        return WorkloadResult(passed=True)


class LeavesWithZero(Healthy):
    def run(self) -> WorkloadResult:
        os._exit(0)


class Hangs(Healthy):
    def run(self) -> WorkloadResult:
        print("hanging", flush=True)
        time.sleep(600)
        return WorkloadResult(passed=True)


class WritesGarbage(Healthy):
    """Binary, half a character, no newline: and it configures logging for itself."""

    def run(self) -> WorkloadResult:
        logging.basicConfig(format="mine: %(message)s")
        logging.getLogger("workload").warning("through my own format")
        sys.stdout.buffer.write(b"\xff\x00{]\xc3" * 100_000)
        sys.stdout.flush()
        os.close(1)
        return WorkloadResult(passed=True)


class Distributed(Healthy):
    launch_mode = "distributed"
    min_world_size = 2


class NotAWorkload:
    """A class that is no workload."""
