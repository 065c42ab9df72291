"""What all stages together amount to: solve.json, the summary and the exit code."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from aorta.core.durations import show_duration
from aorta.core.errors import Exit
from aorta.core.stats import percent_range, rate_to_json
from aorta.engine.events import Ending, Reason
from aorta.engine.rundir import RunDir, write_atomically, write_json
from aorta.solve.state import State

SCHEMA = "aorta.solve/1"


@dataclass(frozen=True)
class Solution:
    """Of a solve as it ended, or while it is running."""

    state: State
    ended: Reason

    @property
    def status(self) -> str:
        return str(self.to_json()["status"])

    @property
    def failure(self) -> dict[str, Any]:
        return dict(self.to_json()["failure"] or {})

    @property
    def reproducer(self) -> dict[str, Any]:
        return dict(self.to_json()["reproducer"] or {})

    @property
    def cure(self) -> dict[str, Any]:
        return dict(self.to_json()["cure"] or {})

    @property
    def culprits(self) -> list[dict[str, Any]]:
        return list(self.to_json()["culprits"])

    @property
    def again(self) -> str | None:
        """The command that goes on with it, where there is something to go on with."""
        return Ending(self.ended).command_to_go_on("solve", self.state.path)

    @property
    def exit_code(self) -> Exit:
        """What was found answers, whatever ended it; without an answer it is what ended it."""
        if self.ended in {Reason.DONE, Reason.BUDGET} and self.status in {"solved", "partly"}:
            return Exit.OK
        return Exit.NO_ANSWER if self.ended is Reason.DONE else Ending(self.ended).exit_code

    def to_json(self) -> dict[str, Any]:
        return self._document

    @property
    def lines(self) -> list[str]:
        """Ten or so for people, as in `summary.md`."""
        return [f"{row['head']:<14} {row['text']}" for row in self.to_json()["summary"]]

    @cached_property
    def _document(self) -> dict[str, Any]:
        state = self.state
        bundle, bisect, triage = (state.known(name) for name in ("bundle", "bisect", "triage"))
        # What a bisection named that did not end, or that the original contradicts, is no culprit.
        culprits = list(bisect.get("culprits") or []) if state.is_done("bisect") else []
        diverged = state.known("diverge")
        reproducer = self._reproducer()
        document = {
            "status": self._status(culprits, triage.get("cure"), reproducer),
            "run_dir": str(state.path),
            "failure": self._failure(),
            "reproducer": reproducer,
            "cure": triage.get("cure"),
            "culprits": culprits,
            "bisect_status": bisect.get("status") if culprits else None,
            "confidence": bisect.get("confidence") if culprits else None,
            "divergence": diverged if _first(diverged) else None,
            "isolation": state.known("isolate") or None,
            "bundle": {"path": bundle["path"], "sha256": bundle["sha256"]} if bundle else None,
            "stages": [result.row() for result in state.results.values()],
            "trials": state.shared.trials,
            "shared_trials": state.known("reproduce").get("looks", 0),
            "seconds": round(state.shared.elapsed, 3),
            "not_found_out": list(self._not_found_out()),
        }
        document["next"] = list(self._next(document))
        document["summary"] = [{"head": head, "text": text} for head, text in _summary(document)]
        return document

    @property
    def _broken(self) -> str:
        """The node, link or device that is guilty; empty where none was found to be."""
        return str(self.state.known("isolate").get("broken") or "")

    def _status(self, culprits: list[Any], cure: object, reproducer: object) -> str:
        first = self.state.results.get("reproduce")
        if self.ended not in {Reason.DONE, Reason.BUDGET} or first is None:
            return "partial"
        if first.status == "no_answer":
            return "did_not_reproduce"
        if first.answer.get("mistake"):
            return "user_error"
        named = culprits and self.state.known("bisect").get("status") != "range"
        if cure or named or self._broken:
            return "solved"
        return "partly" if reproducer or culprits else "partial"

    def _failure(self) -> dict[str, Any] | None:
        known, reduced = self.state.known("reproduce"), self.state.known("reduce")
        if not known:
            return None
        # How often the original failed: when it was reproduced, and where its reduction began.
        seen = [count for count in (known["rate"], reduced.get("original")) if count]
        counts = [sum(count[key] for count in seen) for key in ("reproduced", "of")]
        return {
            **dict.fromkeys(("type", "frames", "message", "ended")),
            **(reduced.get("failure") or known.get("failure") or {}),
            **{key: known.get(key) for key in ("class", "confidence", "summary", "signature")},
            "rate": rate_to_json(*counts),
        }

    def _reproducer(self) -> dict[str, Any] | None:
        reduced, first = self.state.reduction, self.state.known("reduce")
        if reduced.get("status") not in {"reduced", "not_reduced", "partial"}:
            return None
        if not reduced.get("original", {}).get("reproduced") or reduced["search"] == "lost":
            return None
        before = (first or reduced)["original"].get("median_sec")
        after = (reduced.get("final") or {}).get("median_sec")
        axes, source = first.get("axes", []), self.state.known("source").get("axes", [])
        axes = [*axes, *(a for a in source if a["kind"] == "source" or not axes)]
        # The original is the smallest only once nothing smaller was found to fail.
        if reduced["status"] == "partial" and all(a["final"] == a["initial"] for a in axes):
            return None
        seen = reduced["confirmed"] or reduced["original"]
        return {
            "path": f"{reduced['run_dir']}/shrunken",
            "axes": axes,
            # How many times less one run takes; not one failure, where it fails now and then.
            "cheaper": round(before / after, 2) if before and after else None,
            "rate": {key: seen[key] for key in ("reproduced", "of")},
            "elsewhere": self.state.known("bundle").get("elsewhere"),
        }

    def _not_found_out(self) -> Iterator[str]:
        """What a user could have hoped to be told, and why it is not."""
        for name, result in self.state.results.items():
            skipped = result.status == "skipped" and name in {"isolate", "bundle"}
            if result.why and not skipped:
                yield f"{name}: {result.why}"

    def _next(self, document: Mapping[str, Any]) -> Iterator[str]:
        state, known, found = self.state, self.state.known("reproduce"), document["reproducer"]
        if document["status"] == "user_error":
            yield from known["advice"] or [f"mend this: {known['summary']}"]
            words = shlex.join(state.request.command) or "..."
            yield f"if it is right as it is: aorta solve --stages reduce,source,bundle -- {words}"
            return
        if document["status"] == "did_not_reproduce" or (known and "class" not in known):
            yield "run it where it fails, or give it longer: aorta solve --budget 8h ..."
            pattern = "--pattern 'time ([0-9.]+)' --above 0.5"
            yield f"if it is slow: aorta solve --oracle metric {pattern}"
            if self.again is None:
                return
        if self._broken:
            yield from document["isolation"]["next"]
        if document["cure"]:
            yield "; ".join(state.known("triage")["optimize"]["environment_lines"])
        if found:
            python = RunDir(Path(found["path"]).parent).about().get("python")
            before = f"PYTHON={shlex.quote(python)} " if python else ""
            yield f"{before}bash {shlex.quote(found['path'])}/run_repro.sh"
        if document["bundle"]:
            run = " --run" if state.known("bundle")["elsewhere"] else ""
            yield f"aorta bundle verify {shlex.quote(document['bundle']['path'])}{run}"
        if found or self.ended in {Reason.DONE, Reason.BUDGET}:
            yield f"aorta report {shlex.quote(str(state.path))}"
        yield from filter(None, [self.again])


def write_summary(solution: Solution) -> None:
    path, document = solution.state.path, solution.to_json()
    write_json(path / "solve.json", SCHEMA, document)
    lines = [f"- **{row['head']}**: {row['text']}" for row in document["summary"]]
    title = solution.state.request.ticket or path.name
    write_atomically(path / "summary.md", "\n".join([f"# {title}", "", *lines]) + "\n")


# -- the sentences


def _summary(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "what fails", _failure(document)
    if document["status"] not in {"did_not_reproduce", "user_error"}:
        yield "reproducer", _reproducer(document["reproducer"])
        yield "makes it stop", _cure(document)
        yield "brought by", _culprit(document)
        if first := _first(document["divergence"] or {}):
            where = f" at {first['file']}:{first['line']}" if first.get("file") else ""
            yield "numbers part", f"{first['op']}{where}, step {first['step']}"
        if document["isolation"]:
            yield "node or job", document["isolation"]["sentence"]
        yield "shipped", _bundle(document)
    yield from (("not found out", said) for said in document["not_found_out"])
    yield from (("do now", said) for said in document["next"][:2])
    yield "spent", f"{document['trials']} trials in {show_duration(document['seconds'])}"
    yield "results", document["run_dir"]


def _failure(document: dict[str, Any]) -> str:
    failure = document["failure"]
    if failure is None:
        return "nothing is known yet"
    rate = failure["rate"]
    often = f"{rate['reproduced']} of {rate['of']} times"
    if document["status"] == "did_not_reproduce" or failure["class"] is None:
        return f"it failed {often}"
    if document["status"] == "user_error":
        return str(failure["summary"])
    often += f" ({percent_range(rate['low'], rate['high'])})"
    sure = f" ({100 * failure['confidence']:.0f} % sure)" if failure["confidence"] else ""
    return f"{failure['class']}{sure}, {often}: {failure['summary']}"


def _reproducer(found: dict[str, Any] | None) -> str:
    if found is None:
        return "not reduced"
    axes = ", ".join(
        f"{axis['name']} {axis['initial']} -> {axis['final']}"
        f"{' lines' if axis['kind'] == 'source' else ''}"
        for axis in found["axes"]
        if axis["final"] != axis["initial"]
    )
    cheaper, rate = found["cheaper"] or 0.0, found["rate"]
    shorter = f", one run {cheaper:g} times shorter" if cheaper > 1 else ""
    often = f", fails {rate['reproduced']} of {rate['of']} times"
    return f"{axes or 'nothing could be left out'}{shorter}{often}"


def _cure(document: dict[str, Any]) -> str:
    cure = document["cure"]
    if cure is None:
        return "not known"
    seen = f"seen on the {cure['verified_on']} workload; chance of luck {cure['p']:.1g}"
    return f"{' + '.join(cure['mitigations'])} ({seen})"


def _culprit(document: dict[str, Any]) -> str:
    """One change; two that must come together; or the candidates that are left."""
    culprits, sure = document["culprits"], document["confidence"]
    if not culprits:
        return "not known"
    said = [f"{c['package']} {str(c['bad'])[:12]} {c.get('title') or ''}".strip() for c in culprits]
    if document["bisect_status"] == "range":
        recorded = f"one of {len(said)} changes: {'; '.join(said[:3])}{'; ...' * (len(said) > 3)}"
    else:
        recorded = " and ".join(said)
    return recorded + (f" ({100 * sure:.0f} % sure)" if sure is not None else "")


def _bundle(document: dict[str, Any]) -> str:
    if document["bundle"] is None:
        return "nothing"
    ran = (document["reproducer"] or {}).get("elsewhere")
    often = (
        f" (failed {ran['reproduced']} of {ran['of']} times where it was unpacked)" if ran else ""
    )
    return f"{document['bundle']['path']}{often}"


def _first(divergence: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return divergence.get("first") or divergence.get("first_nonfinite")
