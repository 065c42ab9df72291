"""Ten lines for people, the same as `summary.md`, and `solve.json`."""

from collections.abc import Iterator
from typing import Any

from aorta.core.durations import show_duration
from aorta.core.stats import percent_range
from aorta.engine.rundir import write_atomically, write_json
from aorta.solve.solution import SCHEMA, Solution


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
        yield "shipped", _bundle(document)
    for said in document["not_found_out"]:
        yield "not found out", said
    for said in document["next"][:2]:
        yield "do now", said
    shared = document["shared_trials"]
    yield (
        "spent",
        f"{document['trials']} trials in {show_duration(document['seconds'])}"
        + (f", {shared} more were known already" if shared else ""),
    )
    yield "results", document["run_dir"]


def _failure(document: dict[str, Any]) -> str:
    failure = document["failure"]
    if failure is None:
        return "nothing is known yet"
    rate = failure["rate"]
    often = f"{rate['reproduced']} of {rate['of']} times"
    if document["status"] == "did_not_reproduce":
        return f"it did not fail: {often}"
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
        tried = any(row["name"] == "triage" and row["trials"] for row in document["stages"])
        return "nothing that was tried" if tried else "not looked for"
    return (
        f"{' + '.join(cure['mitigations'])} (seen on the {cure['verified_on']} workload; "
        f"chance of luck {cure['p']:.1g})"
    )


def _culprit(document: dict[str, Any]) -> str:
    """One change; two that must come together; or the candidates among which it could not be told."""
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
