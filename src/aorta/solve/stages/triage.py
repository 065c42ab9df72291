"""What makes it stop? The smallest stack on the cheapest reproducer, then tried on the original."""

from collections.abc import Mapping, Sequence
from typing import Any

from aorta.core.documents import validated
from aorta.core.trial import Outcome
from aorta.engine.events import Reason
from aorta.probe.gpus import platform_here
from aorta.registry.environments import INLINE_IMAGE
from aorta.registry.mitigation import UNKNOWN_FAILURE
from aorta.registry.mitigations import load_mitigations, plausible_mitigations
from aorta.solve.stages.reproduce import MISTAKES
from aorta.solve.state import Stage, StageResult, State, Stopped, status_of
from aorta.solve.subject import Subject, environment_of, original, run_command, smallest
from aorta.triage.optimize import StackReport
from aorta.triage.recipe import SCHEMA_VERSION, Recipe, RecipeFile
from aorta.triage.request import TriageRequest
from aorta.triage.running import triage

VERIFY = "triage-original"
_MOST_TRIALS = 60
_SURE = 0.5  # of the class of a failure


class Triage(Stage):
    name = "triage"
    only_if = "a mitigation is a plausible cure for the failure"

    def why_not(self, state: State) -> str:
        if not candidates(state):
            kind = state.known("reproduce").get("class")
            return f"no mitigation is a plausible cure for {kind} on {platform_here()}"
        return ""

    def __call__(self, state: State) -> StageResult:
        subject = smallest(state)
        folder = state.folder(self.name)
        finished = triage(
            TriageRequest(
                recipe=_recipe(state, subject, candidates(state)),
                mode="optimize",
                output_dir=state.path,
                run_dir=folder,
                seen=subject.seen,
                **state.how(self.name, folder),
            ),
            state.listeners(self.name),
        )
        assert isinstance(finished, StackReport)
        Stopped.check(finished.ending.reason)
        answer: dict[str, Any] = {"optimize": finished.content()}
        is_over = finished.ending.reason is Reason.DONE
        detail = (finished.no_answer or finished.status) if is_over else finished.ending.detail
        status, why = status_of(finished.ending, finished.status == "found", detail)
        if finished.recommended is not None:
            cure, works, why = self._verified(state, subject, finished.recommended)
            answer["cure" if works else "refuted"] = cure
            status = "done" if works else "no_answer"
        return StageResult(self.name, status, why, str(finished.run_dir), answer=answer)

    def _verified(
        self, state: State, subject: Subject, stack: Mapping[str, Any]
    ) -> tuple[dict[str, Any], bool, str]:
        """The cure, whether it holds on the original, and what to say of it."""
        names, first = tuple(stack["mitigations"]), original(state)
        cure = {
            "mitigations": list(names),
            "p": stack["chance_of_luck"],
            "verified_on": subject.name,
            "reduced": {"failed": stack["failed"], "of": stack["of"]},
        }
        if subject.original is None:  # what it was seen on
            return cure, True, ""
        if state.is_spent:
            return cure, True, f"tried on the reduced reproducer only: {state.is_spent}"
        report = run_command(
            state,
            first,
            stage=self.name,
            counted_as=VERIFY,
            folder=state.path / f"{state.folder(self.name).name}-original",
            trials=first.enough_clean(),
            mitigations=names,
        )
        tally = report.tally
        failed = tally.reproduced + tally.other
        cure["original"] = {"failed": failed, "of": tally.evidence}
        last = next((r.why for r in report.records if r.outcome is not Outcome.CLEAN), "")
        if failed:
            what = f"{' + '.join(names)} mends the reduced reproducer, and not the original"
            often = f"{failed} of {tally.evidence} times"
            return cure, False, f"{what}: it failed {often} with it ({last})"
        if tally.clean < first.enough_clean():
            return cure, True, f"too few trials of the original tell whether it works there: {last}"
        chance = (1 - first.seen.low(0.2)) ** tally.clean
        return {**cure, "verified_on": "original", "p": float(f"{chance:.3g}")}, True, ""


def candidates(state: State) -> list[str]:
    """Plausible cures by the registry, and all of the user's files; where the class is hardly sure,
    or a flaky failure passes for a user's mistake, also those of an unknown failure.
    """
    known = state.known("reproduce")
    failure, rate = str(known.get("class", UNKNOWN_FAILURE)), known.get("rate") or {}
    classes = [failure]
    flaky = rate.get("reproduced", 0) < rate.get("of", 0)
    if (known.get("confidence") or 0.0) < _SURE or (flaky and failure in MISTAKES):
        classes.append(UNKNOWN_FAILURE)
    every, here = load_mitigations(state.request.mitigations_files).values(), platform_here()
    found = [e.name for one in classes for e in plausible_mitigations(one, here, every)]
    return list(dict.fromkeys(found))


def _recipe(state: State, subject: Subject, names: Sequence[str]) -> Recipe:
    environment, command = environment_of(state.request), subject.command
    inline = environment.name.startswith(INLINE_IMAGE)
    place = {"docker": environment.image} if inline else environment.name
    document = {
        "schema_version": SCHEMA_VERSION,
        "ticket": state.request.ticket,
        "workload": "command",
        "trials": _MOST_TRIALS,
        "workload_config": {
            "command": command if isinstance(command, str) else list(command),
            "cwd": str(subject.cwd),
            "oracle": dict(subject.oracle or {}),
        },
        "extra_env": dict(subject.env),
        "cells": [
            {"name": name, "mitigations": [name], "environment": place} for name in ("none", *names)
        ],
    }
    content = validated(RecipeFile, document, file="solve")
    return Recipe(content, sidecars=state.request.mitigations_files, base=subject.cwd)
