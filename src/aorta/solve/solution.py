"""What all stages together amount to: the one value that the JSON, the summary, the page and the
exit code read; and ten lines of it for people, the same as `summary.md`.
"""

import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from aorta.core.durations import show_duration
from aorta.core.errors import Exit
from aorta.core.stats import percent_range, rate_to_json
from aorta.engine.rundir import RunDir, write_atomically, write_json
from aorta.reduce.launcher import python_of
from aorta.solve.state import State

SCHEMA = "aorta.solve/1"


@dataclass(frozen=True)
class Solution:
    state: State
    stopped: Exit | None = None  # somebody stopped it
    is_under_way: bool = False

    @property
    def status(self) -> str:
        state = self.state
        first = state.results.get("reproduce")
        if self.stopped is not None or self.is_under_way or first is None:
            return "partial"
        if first.status == "no_answer":
            return "did_not_reproduce"
        if first.status != "done":
            return "partial"
        if first.answer.get("mistake"):
            return "user_error"
        named = self.broken or (self.culprits and state.known("bisect").get("status") != "range")
        return "solved" if self.cure is not None or named else "partly"

    @property
    def exit_code(self) -> Exit:
        if self.stopped is not None:
            return self.stopped
        if self.status in {"did_not_reproduce", "user_error"}:
            return Exit.NO_ANSWER
        if self.status == "partial":
            return Exit.BUDGET
        found = self.reproducer is not None or self.cure is not None or self.culprits or self.broken
        if found:
            return Exit.OK
        spent = any(result.status == "budget" for result in self.state.results.values())
        return Exit.BUDGET if spent else Exit.NO_ANSWER

    @property
    def failure(self) -> dict[str, Any] | None:
        known = self.state.known("reproduce")
        if not known:
            return None
        seen = self.state.known("reduce").get("failure") or known.get("failure") or {}
        return {
            **dict.fromkeys(("type", "frames", "message", "ended")),
            **seen,
            "class": known.get("class"),
            "confidence": known.get("confidence"),
            "summary": known.get("summary"),
            "rate": self._rate,
            "signature": known.get("signature"),
        }

    @property
    def _rate(self) -> dict[str, Any]:
        """How often the original failed: when it was reproduced, and where its reduction began."""
        counts = [self.state.known("reproduce")["rate"], self.state.known("reduce").get("original")]
        seen = [count for count in counts if count]
        return rate_to_json(*(sum(count[key] for count in seen) for key in ("reproduced", "of")))

    @property
    def reproducer(self) -> dict[str, Any] | None:
        reduced = self.state.reduction
        if reduced.get("status") not in {"reduced", "not_reduced", "partial"}:
            return None
        if not reduced.get("original", {}).get("reproduced"):
            return None
        return {
            "path": f"{reduced['run_dir']}/shrunken",
            "axes": self._axes,
            "cheaper": self.cheaper,
            "rate": reduced["confirmed"] or _plain(reduced["original"]),
            "elsewhere": self.state.known("bundle").get("elsewhere"),
        }

    @property
    def _axes(self) -> list[dict[str, Any]]:
        """Every axis that was reduced, from where it began, and the program's own source."""
        axes = list(self.state.known("reduce").get("axes", []))
        source = self.state.known("source").get("axes", [])
        return [*axes, *(axis for axis in source if axis["kind"] == "source" or not axes)]

    @property
    def _python(self) -> str:
        """What goes before the script where `python3` is not the Python that the trials had."""
        about = RunDir(Path(self.state.reduction["run_dir"])).about()
        python = about.get("python")
        found = shutil.which("python3")
        same = (
            found is not None and python is not None and Path(found).parent == Path(python).parent
        )
        return f"PYTHON={shlex.quote(python)} " if python and not same else ""

    @property
    def cheaper(self) -> float | None:
        """How many times less one run of the reproducer takes."""
        reduced = self.state.reduction
        first = self.state.known("reduce") or reduced
        before = (first.get("original") or {}).get("median_sec")
        after = (reduced.get("final") or {}).get("median_sec")
        return round(before / after, 2) if before and after else None

    @property
    def cure(self) -> dict[str, Any] | None:
        found = self.state.known("triage").get("cure")
        return dict(found) if isinstance(found, Mapping) else None

    @property
    def culprits(self) -> list[Any]:
        """What the bisection named; nothing where it did not end or is contradicted."""
        if not self.state.is_done("bisect"):
            return []
        return list(self.state.known("bisect").get("culprits") or [])

    @property
    def divergence(self) -> dict[str, Any] | None:
        found = self.state.known("diverge")
        return dict(found) if found.get("first") or found.get("first_nonfinite") else None

    @property
    def isolation(self) -> dict[str, Any] | None:
        """As `aorta isolate` has it, where nodes were compared."""
        return dict(self.state.known("isolate")) or None

    @property
    def broken(self) -> str:
        """The node, link or device that is guilty; empty where none was found to be."""
        return str(self.state.known("isolate").get("broken") or "")

    @property
    def not_found_out(self) -> list[str]:
        """What a user could have hoped to be told, and why it is not."""
        said = []
        for name, result in self.state.results.items():
            if result.status in {"no_answer", "failed", "budget"} or (
                result.status == "skipped" and result.why and name not in {"isolate", "bundle"}
            ):
                said.append(f"{_QUESTIONS[name]}: {result.why}")
            elif result.status == "done" and result.why:
                said.append(f"{name}: {result.why}")
        return said

    def to_json(self) -> dict[str, Any]:
        return self._document

    @cached_property
    def _document(self) -> dict[str, Any]:
        state = self.state
        bundle = state.known("bundle")
        return {
            "status": self.status,
            "run_dir": str(state.path),
            "failure": self.failure,
            "reproducer": self.reproducer,
            "cure": self.cure,
            "culprits": self.culprits,
            "bisect_status": state.known("bisect").get("status") if self.culprits else None,
            "confidence": state.known("bisect").get("confidence") if self.culprits else None,
            "divergence": self.divergence,
            "isolation": self.isolation,
            "bundle": {"path": bundle["path"], "sha256": bundle["sha256"]} if bundle else None,
            "stages": [result.row() for result in state.results.values()],
            "trials": state.shared.trials,
            "shared_trials": state.known("reproduce").get("looks", 0),
            "seconds": round(state.shared.elapsed, 3),
            "not_found_out": self.not_found_out,
            "next": self.next_commands,
        }

    @property
    def next_commands(self) -> list[str]:
        state, known = self.state, self.state.known("reproduce")
        again = shlex.join(["aorta", "solve", "--resume", str(state.path)])
        if self.stopped is not None and self.reproducer is None:
            return [again]
        if self.status == "user_error":
            command = shlex.join(state.request.command) or "..."
            stages = "reduce,source,bundle" if python_of(state.request.command) else "reduce,bundle"
            return [
                *(known.get("advice", []) or [f"mend this: {known.get('summary')}"]),
                f"if it is right as it is: aorta solve --stages {stages} -- {command}",
            ]
        if self.status == "did_not_reproduce":
            return [
                "run it where it fails, or give it longer: aorta solve --budget 8h ...",
                "if it is slow: aorta solve --oracle metric --pattern 'time ([0-9.]+)' --above 0.5",
            ]
        told = list((self.isolation or {}).get("next", [])) if self.broken else []
        if self.cure is not None:
            lines = state.known("triage")["optimize"].get("environment_lines", [])
            told += ["; ".join(lines)] if lines else []
        if self.reproducer is not None:
            script = shlex.quote(f"{self.reproducer['path']}/run_repro.sh")
            told.append(f"{self._python}bash {script}")
        if packed := state.known("bundle"):
            run = " --run" if packed["elsewhere"] is not None else ""  # there may be nothing to run
            told.append(f"aorta bundle verify {shlex.quote(packed['path'])}{run}")
        told.append(f"aorta report {shlex.quote(str(state.path))}")
        budget = any(result.status == "budget" for result in state.results.values())
        return [*told, again] if budget or self.stopped or self.is_under_way else told


def _plain(rate: Mapping[str, Any]) -> dict[str, Any]:
    return {key: rate[key] for key in ("reproduced", "of")}


_QUESTIONS = {
    "reproduce": "whether it fails",
    "reduce": "the smallest reproducer",
    "triage": "what makes it stop",
    "bisect": "what brought it",
    "diverge": "where the numbers part",
    "isolate": "whether it is a node",
    "source": "one short script that fails the same way",
    "bundle": "a bundle that works elsewhere",
}


def write_summary(solution: Solution) -> None:
    path = solution.state.path
    write_json(path / "solve.json", SCHEMA, solution.to_json())
    lines = [f"- **{head}**: {text}" for head, text in rows(solution)]
    title = solution.state.request.ticket or path.name
    write_atomically(path / "summary.md", "\n".join([f"# {title}", "", *lines]) + "\n")


def summary_lines(solution: Solution) -> list[str]:
    """At most ten or so, whatever was found."""
    return [f"{head:<14} {text}" for head, text in rows(solution)]


def rows(solution: Solution) -> Iterator[tuple[str, str]]:
    document = solution.to_json()
    yield "what fails", _failure(document)
    if document["status"] not in {"did_not_reproduce", "user_error"}:
        yield "reproducer", _reproducer(document)
        yield "makes it stop", _cure(document)
        yield "brought by", _culprit(document)
        if document["divergence"]:
            yield "numbers part", _divergence(document["divergence"])
        if document["isolation"]:
            yield "node or job", document["isolation"]["sentence"]
        yield "shipped", _bundle(document)
    for said in document["not_found_out"]:
        yield "not found out", said
    for said in document["next"][:2]:
        yield "do now", said
    yield "spent", f"{document['trials']} trials in {show_duration(document['seconds'])}"
    yield "results", document["run_dir"]


def _failure(document: dict[str, Any]) -> str:
    failure = document["failure"]
    if failure is None:
        return "nothing is known yet"
    rate = failure["rate"]
    often = f"{rate['reproduced']} of {rate['of']} times"
    if document["status"] == "did_not_reproduce":
        return f"it failed {often}" if rate["reproduced"] else f"it did not fail: {often}"
    if document["status"] == "user_error":
        return str(failure["summary"])
    often += f" ({percent_range(rate['low'], rate['high'])})"
    sure = f" ({100 * failure['confidence']:.0f} % sure)" if failure["confidence"] else ""
    return f"{failure['class']}{sure}, {often}: {failure['summary']}"


def _reproducer(document: dict[str, Any]) -> str:
    found = document["reproducer"]
    if found is None:
        return "not reduced"
    axes = ", ".join(
        f"{axis['name']} {axis['initial']} -> {axis['final']}"
        f"{' lines' if axis['kind'] == 'source' else ''}"
        for axis in found["axes"]
        if axis["final"] != axis["initial"]
    )
    cheaper = found["cheaper"]
    times = f", {cheaper:g} times cheaper" if cheaper and cheaper > 1 else ""
    rate = found["rate"]
    often = f", fails {rate['reproduced']} of {rate['of']} times" if rate else ""
    return f"{axes or 'nothing could be left out'}{times}{often}"


def _cure(document: dict[str, Any]) -> str:
    cure = document["cure"]
    if cure is None:
        rows = [row for row in document["stages"] if row["name"] == "triage" and row["trials"]]
        if not rows:
            return "not looked for"
        cut_short = rows[0]["status"] == "budget"
        return "not known: its budget was spent" if cut_short else "nothing that was tried"
    return (
        f"{' + '.join(cure['mitigations'])} (seen on the {cure['verified_on']} workload; "
        f"chance of luck {cure['p']:.1g})"
    )


def _culprit(document: dict[str, Any]) -> str:
    """One change; two that must come together; or the candidates that are left."""
    culprits, status = document["culprits"], document["bisect_status"]
    if not culprits:
        return "not known"
    said = []
    for culprit in culprits[:3]:
        title = f" {culprit['title']}" if culprit.get("title") else ""
        said.append(f"{culprit['package']} {str(culprit['bad'])[:12]}{title}")
    sure = document["confidence"]
    if status == "range":
        more = "; ..." if len(culprits) > len(said) else ""
        told = f"one of {len(culprits)} changes: {'; '.join(said)}{more}"
    else:
        told = " and ".join(said)
    return told + (f" ({100 * sure:.0f} % sure)" if sure is not None else "")


def _divergence(found: dict[str, Any]) -> str:
    first = found.get("first") or found.get("first_nonfinite")
    assert first is not None
    where = f" at {first['file']}:{first['line']}" if first.get("file") else ""
    return f"{first['op']}{where}, step {first['step']}"


def _bundle(document: dict[str, Any]) -> str:
    if document["bundle"] is None:
        return "nothing"
    elsewhere = (document["reproducer"] or {}).get("elsewhere")
    run = (
        f" (failed {elsewhere['reproduced']} of {elsewhere['of']} times where it was unpacked)"
        if elsewhere
        else ""
    )
    return f"{document['bundle']['path']}{run}"
