"""Run directories of every verb as its documents are laid down in the contracts, with any text in
every field.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aorta.core.axis import Point, Purpose, Value
from aorta.core.failure import Failure
from aorta.core.trial import Outcome
from aorta.engine.events import Opened, TrialRecord
from aorta.engine.journal import Journal

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(1)> \"quoted\" 'single' & &amp; "
    "`tick` "
    "\N{FIRE}\N{PILE OF POO} مرحبا بالعالم \u202eevil\u202c ]]> <!-- \x1b[31mred\x07 \x00"
)
LONG = "y" * 10_000 + " end"
_BEGAN = datetime(2026, 11, 15, 5, 35, 8, tzinfo=UTC)


@dataclass(frozen=True)
class Say:
    """Fields that are free text: as they would be, or with something hostile in place of each."""

    hostile: str = ""

    def __call__(self, usual: str) -> str:
        return f"{usual} {self.hostile}" if self.hostile else usual


def trial(
    seq: int, values: Mapping[str, Value], outcome: str, why: str, seconds: float, **more: Any
) -> TrialRecord:
    purpose = Purpose(more.get("purpose", "probe"))
    failed = outcome != "clean"
    return TrialRecord(
        seq=seq,
        point=Point.of(values, purpose, more.get("replica", 0)),
        index=more.get("index", 0),
        outcome=Outcome(outcome),
        why=why,
        failure=Failure(told_by=why) if failed else None,
        exit_code=1 if failed else 0,
        signal=None,
        timed_out=False,
        duration=seconds,
        started_at=_BEGAN.timestamp() + seq * 2,
        elapsed=seq * 2.0,
        host="here",
        image_digest=None,
        path=f"trials/{seq}",
    )


def private(run: Path, verb: str, trials: Sequence[TrialRecord] = (), **about: Any) -> Path:
    """The private state: what the run says of itself, and its journal."""
    said = {"verb": verb, "created": "2026-11-15T05:35:08Z", "state": "done", **about}
    write(run / ".aorta" / "run.json", said)
    draft = (
        run / ".aorta" / "journal.draft"
    )  # nobody who looks meanwhile finds a run without its journal
    journal = Journal.create(draft, {})
    opened: set[Point] = set()
    for record in trials:
        if record.point not in opened:
            journal.append(Opened(record.point), "main")
            opened.add(record.point)
        journal.append(record, "main")
    journal.close()
    draft.replace(run / ".aorta" / "journal.jsonl")
    return run


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content, indent=2)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))


def run_dir(root: Path, hostile: str = "", trials: int = 40) -> Path:
    say, run = Say(hostile), root / "half_nan"
    outcomes = [
        _pseudo(n, ("reproduced", "clean", "clean", "other", "error")) for n in range(trials)
    ]
    records = [
        trial(n, {}, outcome, say(f"exit 1: loss is nan ({outcome})"), 2 + _noise(n), replica=n)
        for n, outcome in enumerate(outcomes)
    ]
    steps = {"count": 400, "mean": 12.1, "median": 11.9, "p90": 14.0, "max": 40.2}
    summary = [say("half_nan: 8 of 31 trials reproduced the failure"), say("  failure loss is nan")]
    result = {
        "schema": "aorta.run/1",
        "workload": say("half_nan"),
        "step_time_ms": steps,
        "summary": summary,
    }
    write(run / "result.json", result)
    return private(run, "run", records, workload=say("half_nan"))


def reduce_dir(root: Path, hostile: str = "", lines: int = 240) -> Path:
    say, run = Say(hostile), root / "GPU-7" / "2026-11-15T05-35-08"
    sizes = [
        (5000, 2048, lines),
        (50, 16, lines),
        (2500, 2048, lines),
        (625, 2048, lines),
        (312, 2048, lines),
        (156, 2048, lines),
        (137, 2048, lines),
        (130, 2048, lines),
        (137, 16, lines),
        (137, 16, lines // 2),
        (137, 16, lines // 4),
        (137, 16, lines // 8),
        (137, 16, 7),
        (137, 16, 3),
        (137, 16, 2),
        (137, 16, 3),
    ]
    accepted = [
        True,
        False,
        True,
        True,
        True,
        True,
        True,
        False,
        True,
        True,
        False,
        True,
        True,
        True,
        False,
        True,
    ]
    items = say("SHAPES_FILE")
    trace, records, seq = [], [], 0
    for number, ((steps, batch, kept), took) in enumerate(zip(sizes, accepted, strict=True), 1):
        values: dict[str, Value] = {
            "NUM_STEPS": steps,
            "BATCH_SIZE": batch,
            items: tuple(range(kept)),
        }
        for index in range(3):
            outcome = "reproduced" if took else "clean"
            seconds = 0.4 + steps / 900 + _noise(seq) / 9
            records.append(
                trial(seq, values, outcome, say("matched 'loss is nan'"), seconds, index=index)
            )
            seq += 1
        shown = {
            "NUM_STEPS": steps,
            "BATCH_SIZE": batch,
            items: {"count": kept, "kept": _ranges(kept, lines)},
        }
        trace.append(
            {
                "candidate": number,
                "purpose": "probe",
                "values": shown,
                "accepted": took,
                "why": say("3 of 3 reproduced"),
                "outcomes": ["reproduced"] * 3,
                "median_sec": 1.0,
            }
        )
    result = {
        "schema": "aorta.reduce/1", "status": "reduced", "why": "", "run_dir": str(run),
        "axes": [
            {"name": "NUM_STEPS", "kind": "env", "initial": 5000, "final": 137, "floor": 50, "monotone": True},
            {"name": "BATCH_SIZE", "kind": "env", "initial": 2048, "final": 16, "floor": 16, "monotone": None},
            {"name": items, "kind": "file_subset", "initial": lines, "final": 3, "floor": 1, "monotone": False,
             "final_items": [say("tower.wide 128x4096"), say("tower.deep 7x11"), say("head 50257")]},
        ],
        "trials": len(records), "candidates": len(trace), "confirmed": {"reproduced": 10, "of": 10},
        "original": {"reproduced": 4, "of": 4, "median_sec": 6.1}, "final": {"median_sec": 0.6},
        "signature": say("exit 1 | RuntimeError: loss is nan at step <*>"),
        "next": [say(f"aorta triage run --recipe {run}/shrunken/recipe.resolved.yaml")],
        "summary": ["reduced (10 of 10 reproduced)", say("failure    exit 1 | RuntimeError: loss is nan")],
    }  # fmt: skip
    write(run / "result.json", result)
    write(run / "reduction_trace.jsonl", "".join(json.dumps(line) + "\n" for line in trace))
    return private(run, "reduce", records, ticket=say("GPU-7"))


def triage_dir(root: Path, hostile: str = "") -> Path:
    say, run = Say(hostile), root / "GPU-7" / "half_nan" / "2026-11-15T05-35-08"
    mitigations = {"none": (9, 12, "(baseline)"), "hsa_no_sdma": (0, 12, "works"), "xnack": (7, 12, "no effect"),
                   "tf32_off": (8, 12, "inert"), "slow_sync": (3, 12, "not known"), "bad_flag": (0, 0, "did not run"),
                   "nccl_order": (0, 0, "did not run")}  # fmt: skip
    cells, records, seq = [], [], 0
    for environment in ("local", say("image:rocm-6.4")):
        for name, (failed, of, call) in mitigations.items():
            cell = _cell(say, say(name), environment, failed, of, call)
            cells.append(cell)
            for index in range(of):
                outcome = "reproduced" if index < failed else "clean"
                record = trial(
                    seq,
                    {"cell": cell["name"]},
                    outcome,
                    say("exit 1"),
                    3 + _noise(seq),
                    replica=index,
                )
                records.append(record)
                seq += 1
    matrix = {
        "schema": "aorta.triage/1", "workload": say("half_nan"), "ticket": say("GPU-7"), "trials_per_cell": 12,
        "steps_per_trial": 200, "warnings": [say("environment:image: no snapshot: the image has "
                                                 "no Python")], "cells": cells,
    }  # fmt: skip
    write(run / "matrix.json", matrix)
    write(run / "matrix.md", say("# Triage Matrix - half_nan") + "\n")
    return private(run, "triage", records, ticket=say("GPU-7"), workload=say("half_nan"))


def _cell(say: Say, name: str, environment: str, failed: int, of: int, call: str) -> dict[str, Any]:
    slow = 1.4 if "slow" in name else 1.0
    seed = int(hashlib.sha256(f"{name}{environment}".encode()).hexdigest()[:4], 16)
    times = sorted(10 * slow + 1.5 * _noise(seed + n) for n in range(40 if of else 0))
    errors = 3 if "bad" in name else 0
    return {
        "name": f"{name}-{environment}", "mitigations": [name], "environment": environment, "trials": of + errors,
        "failed_count": failed, "passed_count": of - failed, "other_count": 0, "error_count": errors,
        "interval": {"low": max(0.0, failed / of - 0.24), "high": min(1.0, failed / of + 0.24)} if of else {"low": 0, "high": 1},
        "call": call, "why": say("no library on this platform reads it") if call == "inert" else "",
        "p_value_holm": 0.0004 if call == "works" else 0.6 if of else None,
        "min_step_time_ms": times[0] if of else 0, "p50_step_time_ms": times[20] if of else 0,
        "p90_step_time_ms": times[36] if of else 0, "max_step_time_ms": times[-1] if of else 0,
        "steps_counted": len(times), "step_times_ms": times, "step_time_ratio": slow if of else None,
        "confound": "speed (+40%)" if slow > 1 else "-", "mean_wall_clock_sec": 3.1,
        "failure_hints": [[say("loss is nan at step 137"), failed]], "error": say("exit 127") if errors else None,
    }  # fmt: skip


def optimize_dir(root: Path, hostile: str = "") -> Path:
    say, run = Say(hostile), root / "GPU-8" / "half_nan" / "2026-11-15T06-00-00"
    best = {
        "mitigations": [say("hsa_no_sdma"), say("xnack")], "failed": 0, "of": 24, "rate_below": 0.117, "chance_of_luck": 2e-7,
        "without": {say("hsa_no_sdma"): {"failed": 5, "of": 9}, say("xnack") + " ": {"failed": 6, "of": 8}},
    }  # fmt: skip
    content = {
        "schema": "aorta.optimize/1", "status": "found", "workload": say("half_nan"), "ticket": say("GPU-8"),
        "original": {"reproduced": 9, "of": 12, "low": 0.47, "high": 0.91}, "candidates": [say(f"m{n}") for n in range(9)],
        "left_out": {say("tf32_off"): say("no library on this platform reads it")}, "recommended": best,
        "environment_lines": [say("export HSA_ENABLE_SDMA=0"), "export HSA_XNACK=1"], "warnings": [say("look")],
    }  # fmt: skip
    write(run / "optimize.json", content)
    write(run / "optimize.md", say("# The smallest stack that works - half_nan") + "\n")
    return private(run, "triage", [], ticket=say("GPU-8"))


def bisect_dir(root: Path, hostile: str = "", timeline: bool = True) -> Path:
    say, run = Say(hostile), root / "bisect-out"
    jax = [_sha("jax", n) for n in range(60)]
    xla = [_sha("xla", n) for n in range(90)]
    order = sorted([(n / 59, 0) for n in range(59)] + [(n / 89, 1) for n in range(89)])
    packages = [package for _, package in order]
    vectors, applied = [(0, 0)], [0, 0]
    for package in packages:
        applied[package] += 1
        vectors.append((applied[0], applied[1]))
    culprit, records = 101, []
    for seq, at in enumerate(
        (0, 148, 0, 148, 74, 111, 92, 101, 106, 103, 102, 101, 102, 101, 102, 100, 102)
    ):
        a, b = vectors[at]
        outcome = "error" if at == 106 else "reproduced" if at > culprit and seq != 9 else "clean"
        values = {"jax": jax[a], "xla": xla[b]}
        records.append(
            trial(
                seq,
                values,
                outcome,
                say(f"exit {int(outcome != 'clean')}"),
                40 + 9 * _noise(seq),
                replica=seq,
            )
        )
    good, bad = (
        {"jax": jax[vectors[at][0]], "xla": xla[vectors[at][1]]} for at in (culprit, culprit + 1)
    )
    broken = ("jax", "xla")[packages[culprit]]
    result = {
        "schema": "aorta.bisect/1", "status": "found", "confidence": 0.981, "good": good, "bad": bad,
        "culprits": [{"package": broken, "good": good[broken], "bad": bad[broken], "title": say("Fuse the scatter into the reduction"),
                      "author": say("A. Author"), "date": "2026-10-30T11:04:00+00:00", "url": say("https://example.com/xla/commit/1")}],
        "rates": {"good": 0.0, "bad": 0.93}, "builds": 11, "tests": 17, "warnings": [say("xla 6a could not be built")],
        "containers": {"last_good": say("jax:2026-10-29"), "first_bad": say("jax:2026-10-31")},
        "reproduce": {"good": say("git checkout 64xla && pytest"), "bad": say("git checkout 65xla && pytest")},
        "partner": None, "output_dir": str(run),
        "summary": ["One change brings the failure: jax at 62887481156a (probability 98.1%)", say("  11 states, 17 trials")],
    }  # fmt: skip
    write(run / "result.json", result)
    if timeline:
        histories = [{"package": "jax", "versions": jax}, {"package": "xla", "versions": xla}]
        write(
            run / "timeline.json",
            {"schema": "aorta.timeline/1", "histories": histories, "order": packages},
        )
    common = ["step 1 loss 2.31", "step 2 loss 2.29", say("compiling module jit_step")]
    sides = {
        "good": [*common, "step 3 loss 2.27", "done"],
        "bad": [
            *common,
            say("Traceback (most recent call last):"),
            "FloatingPointError: loss is nan",
        ],
    }
    for side, name in (("good", "last-known-good"), ("bad", "first-known-bad")):
        at = culprit if side == "good" else culprit + 1
        key = next(
            r.point.config_key
            for r in records
            if r.point["jax"] == jax[vectors[at][0]] and r.point["xla"] == xla[vectors[at][1]]
        )
        folder = run / "trials" / key
        write(folder / "probe0-000" / "stdout.log", "\n".join(sides[side]) + "\n")
        (run / name).symlink_to(folder.relative_to(run))
    return private(run, "bisect", records)


def launch_dir(root: Path, hostile: str = "", ranks: int = 8) -> Path:
    say, run = Say(hostile), root / "logs"
    evidence_file = "rank_3.err"
    finding: dict[str, Any] = {
        "class": "hardware_fault", "confidence": 0.94, "root": {"rank": 3, "node": say("node-1"), "device": say("GPU 3")},
        "suspect_ranks": [3], "first_step": 0, "last_step": 412, "fingerprint": "9f2c11aa", "summary": say("uncorrectable ECC error on GPU 3"),
        "evidence": [{"file": evidence_file, "line": 9, "text": say("CUDA error: uncorrectable "
                                                                    "ECC error encountered")}],
        "cascade": [{"class": "collective_timeout", "ranks": [r for r in range(ranks) if r not in {3, 5}]}],
    }  # fmt: skip
    for number, (length, action) in enumerate(((190, "RESTART"), (64, "RESTART"), (71, "STOP"))):
        folder = run / f"cycle_{number}"
        begin = _BEGAN + timedelta(seconds=220 * number)
        decision = {
            "action": action,
            "reason": say("the same fault again without progress"),
            "rule": "no-progress",
            "advice": [{"kind": "exclude_node", "text": say("exclude node-1")}],
        }
        info = {
            "schema": "aorta.cycle/1", "job_id": say("llm-7b"), "cycle_id": f"llm-7b:{number}", "cycle": number,
            "started": begin.isoformat(), "ended": (begin + timedelta(seconds=length)).isoformat(), "nodes": [say("node-0"), say("node-1")],
            "ranks": [_rank(say, rank, ranks) for rank in range(ranks)], "decision": decision, "decided_by": "built-in",
            "decided_in_ms": 41, "finding": {**finding, "root": {**finding["root"], "rank": 3 if number else 5}},
        }  # fmt: skip
        write(folder / "cycle_info.json", info)
        log = [say(f"step {n} ok") for n in range(1, 9)] + [
            say("CUDA error: uncorrectable ECC error encountered"),
            "aborting",
        ]
        write(folder / evidence_file, "\n".join(log) + "\n")
    write(
        run / "case" / "finding.json",
        {"schema": "aorta.attribution/1", "finding": finding, "decision": decision},
    )
    write(run / "case" / "cycle_info.json", info)
    return run


def _rank(say: Say, rank: int, ranks: int) -> dict[str, Any]:
    ended = {3: (None, 6), 5: (1, None)}.get(rank, (1, None))
    stopped = rank == ranks - 1
    return {"rank": rank, "node": say(f"node-{rank * 2 // ranks}"), "exit_code": None if stopped else ended[0],
            "signal": 15 if stopped else ended[1], "stopped_by_agent": stopped}  # fmt: skip


def attribution_dir(root: Path, hostile: str = "") -> Path:
    say, run = Say(hostile), root / "attributed"
    finding = {
        "class": "hang", "confidence": 0.81, "root": {"rank": 2, "node": None, "device": None}, "suspect_ranks": [2],
        "first_step": 3, "last_step": 77, "fingerprint": "ab12", "summary": say("rank 2 never entered the all-reduce of step 77"),
        "evidence": [{"file": "rank_0.err", "line": 2, "text": say("Watchdog caught collective "
                                                                   "operation timeout")}],
        "cascade": [{"class": "collective_timeout", "ranks": [0, 1, 3]}],
    }  # fmt: skip
    decision = {
        "action": "RESTART",
        "reason": say("a hang may not come back"),
        "rule": "class",
        "advice": [],
    }
    document = {
        "schema": "aorta.attribution/1",
        "finding": finding,
        "decision": decision,
        "elapsed_ms": 12.0,
    }
    write(run / "attribution.json", document)
    return run


Make = Callable[[Path, str], Path]
MAKERS: Mapping[str, Make] = {
    "run": run_dir,
    "reduce": reduce_dir,
    "triage": triage_dir,
    "optimize": optimize_dir,
    "bisect": bisect_dir,
    "launch": launch_dir,
    "attribution": attribution_dir,
}


def _sha(package: str, number: int) -> str:
    return hashlib.sha1(f"{package} {number}".encode()).hexdigest()


def _pseudo(number: int, choices: Sequence[str]) -> str:
    return choices[(number * 7919 + number // 3) % len(choices)]


def _noise(number: int) -> float:
    """Between 0 and 1, the same for the same number."""
    return int(hashlib.sha256(str(number).encode()).hexdigest()[:6], 16) / 0xFFFFFF


def _ranges(kept: int, lines: int) -> str:
    return "17,118,203" if kept == 3 else f"1-{min(kept, lines)}"
