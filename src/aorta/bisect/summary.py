"""`summary.json` in the form of JAX-Toolbox' triage tool: `container`, `versions` and `result`."""

from collections.abc import Iterator
from typing import Any

from aorta.bisect.findings import Findings
from aorta.bisect.run import MAIN, BisectRun
from aorta.bisect.trials import NOT_BUILT_WORDS
from aorta.bisect.watching import short
from aorta.core.trial import Outcome
from aorta.engine.events import TrialRecord

SUMMARY = "summary.json"


def summary_of(run: BisectRun, findings: Findings) -> dict[str, Any]:
    """Every trial so far in its form."""
    containers: list[dict[str, Any]] = []
    versions: list[dict[str, Any]] = []
    bisected = findings.containers.get("first_bad") or findings.containers.get("last_good")
    for stage, answer in run.answers.items():
        seen: dict[str, int] = {}
        for record in answer.records:
            values = {name: str(value) for name, value in record.point.values}
            said = {**_ran(record), "output_directory": str(run.stage_path(stage) / record.path)}
            if "container" in values:
                containers.append({"container": run.image_of(values["container"]), **said})
                continue
            repetition = seen.setdefault(record.point.config_key, -1) + 1
            seen[record.point.config_key] = repetition
            built = run.builds.took.get(short(record.point), 0.0) if not repetition else 0.0
            about = {"container": bisected, "build_time": built, "test_repetition": repetition}
            standing = findings.good if stage == MAIN else {}
            versions.append({**standing, **values, **said, **about})
    found = {"container": containers, "versions": versions}
    return {**found, "result": dict(_result(findings, bisected))} if findings.culprits else found


def _ran(record: TrialRecord) -> dict[str, Any]:
    if record.outcome in {Outcome.REPRODUCED, Outcome.CLEAN}:
        kind = "TEST_YIELDED_RESULTS"
    else:
        kind = "BUILD_FAILURE" if NOT_BUILT_WORDS in record.why else "TEST_ERROR"
    metrics = {"exit_code": record.exit_code} if kind == "TEST_YIELDED_RESULTS" else {}
    seconds = None if kind == "BUILD_FAILURE" else round(record.duration, 3)
    return {"result": f"TestExecutionOutcome.{kind}", "test_time": seconds, "metrics": metrics}


def _result(findings: Findings, image: str | None) -> Iterator[tuple[str, str | None]]:
    """`PKG_good` and `PKG_bad`; commits that could not be tested in brackets on both of them."""
    blamed = list(dict.fromkeys(said["package"] for said in findings.culprits))
    for name in blamed:
        mine = [said for said in findings.culprits if said["package"] == name]
        hidden = [str(said.get("commit") or said["bad"]) for said in mine[:-1]]
        between = f"[{','.join(hidden)}]" if hidden else ""
        yield f"{name}_good", ",".join(filter(None, (str(mine[0]["good"]), between)))
        yield f"{name}_bad", ",".join(filter(None, (between, str(mine[-1]["bad"]))))
    for name, version in findings.bad.items():
        if name not in blamed:
            yield f"{name}_ref", version
    yield "container", image
