"""Run directories of every verb, in the layout that scripts may rely on, with private things all
over them.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from support.planted import CORPUS

STAMP = "2026-11-15T05-35-08"
USER, HOST = "jdoe77", "hgx-node-12"
HF = next(planted.value for planted in CORPUS if planted.name == "hugging face")
WANDB = next(planted.value for planted in CORPUS if planted.name == "wandb")
PRIVATE_VALUES = (USER, HOST, HF, WANDB, "10.11.12.13", "/home/", "hunter2-abc", "acme-train-data")

LOG = (
    f"starting on {HOST}, user {USER}\n"
    f"{HOST}:4711:4800 [0] NCCL INFO Bootstrap\n"
    f'  File "/home/{USER}/proj/train.py", line 3, in main\n'
    "connect 10.11.12.13:29500\n"
    f"login with {HF}\n"
    "loss=nan at step 137\n"
)
ENV = {
    "schema_version": "1.0",
    "captured_at": "2026-11-15T05:35:08Z",
    "hostname": HOST,
    "env_vars": {
        "HF_TOKEN": HF,
        "WANDB_API_KEY": WANDB,
        "NCCL_DEBUG": "INFO",
        "PWD": f"/home/{USER}",
    },
}
ENVELOPE = {"aorta_version": "0.1.0"}


def reduce_dir(root: Path, ticket: str | None = "GPU-7") -> Path:
    run = root / "reduce" / (ticket or "out") / STAMP
    recipe = {
        "workload": "command",
        "ticket": ticket,
        "trials": 2,
        "workload_config": {
            "command": "sh repro.sh",
            "cwd": str(run / "shrunken"),
            "oracle": {"kind": "regex", "pattern": "loss=nan", "stream": "stdout"},
        },
        "cells": [{"name": "baseline-local", "mitigations": ["none"], "environment": "local"}],
    }
    trace = [
        {"candidate": 1, "accepted": True, "tail": LOG},
        {"candidate": 2, "accepted": False, "tail": LOG},
    ]
    _write(
        run,
        {
            "spec.yaml": {"command": f"python /home/{USER}/proj/train.py --token {HF}", "axes": []},
            "reduction_trace.jsonl": "".join(json.dumps(line) + "\n" for line in trace),
            "shrunken/run_repro.sh": f"#!/bin/sh\nexport WANDB_API_KEY={WANDB}\ncd {run}/shrunken "
            "&& exec sh repro.sh\n",
            "shrunken/repro.sh": "#!/bin/sh\necho loss=nan\n",
            "shrunken/aorta.yaml": {"command": "sh repro.sh", "cwd": str(run / "shrunken")},
            "shrunken/env.json": ENV,
            "shrunken/recipe.resolved.yaml": recipe,
            "shrunken/shapes.txt": "128x256\n64x64\n",
            f"logs/trial_0_{HOST}.log": LOG,
            "SHIP.md": f"# What is shared\n\nmade on {HOST}\n",
            "result.json": {
                "schema": "aorta.reduce/1",
                **ENVELOPE,
                "status": "reduced",
                "run_dir": str(run),
            },
            "report.html": f"<html><pre>{LOG}</pre></html>\n",
        },
    )
    (run / "shrunken/run_repro.sh").chmod(0o755)
    return _private(run, "reduce", ticket)


def triage_dir(root: Path, ticket: str | None = "GPU-7") -> Path:
    run = root / "triage_results" / (ticket or "_no_ticket_") / "command" / STAMP
    trial = {
        "schema_version": "0.1",
        "trial_id": "command_d0_m0_t0",
        "env": ENV,
        "config": {"password": "hunter2-abc"},
    }
    cell = {
        "name": "baseline-local",
        "resolved_env_vars": {"HF_TOKEN": HF},
        "extra_env": {"DATA": "s3://acme-train-data/x"},
        "trial_paths": [str(run / "cells/baseline-local/command/trial_0.json")],
    }
    _write(
        run,
        {
            "matrix.md": f"# Triage Matrix - command\n\nRecipe: /home/{USER}/recipe.yaml\n",
            "matrix.json": {
                "schema": "aorta.triage/1",
                **ENVELOPE,
                "ticket": ticket,
                "cells": [cell],
            },
            "recipe.resolved.yaml": {"workload": "command", "cells": [cell]},
            "host_env.json": ENV,
            "environments/local/env.json": ENV,
            "sidecars/mitigations.json": {"version": 1, "mitigations": {"x": {"API_KEY": WANDB}}},
            "cells/baseline-local/command/trial_0.json": trial,
            "cells/baseline-local/command/trial_0.out": LOG,
        },
    )
    return _private(run, "triage", None)


def bisect_dir(root: Path, ticket: str | None = "GPU-7") -> Path:
    run = root / "bisect-out"
    result = {
        "schema": "aorta.bisect/1",
        **ENVELOPE,
        "status": "found",
        "ticket": ticket,
        "culprits": [
            {
                "package": "xla",
                "good": "a" * 40,
                "bad": "b" * 40,
                "author": "Jane <jane@acme-labs.com>",
            }
        ],
        "output_dir": str(run),
        "reproduce": {
            "good": f"cd /home/{USER}/xla && make",
            "bad": f"cd /home/{USER}/xla && make",
        },
    }
    _write(
        run,
        {
            "result.json": result,
            "report.md": f"# Found\n\non {HOST}\n",
            "info.log": LOG,
            "debug.log": LOG + "password=hunter2-abc\n",
            "probes/0/out.log": LOG,
            "first-known-bad": "b" * 40 + "\n",
            "last-known-good": "a" * 40 + "\n",
        },
    )
    return _private(run, "bisect", None)


def launch_dir(root: Path, ticket: str | None = "GPU-7") -> Path:
    run = root / "logs"
    info = {
        "schema": "aorta.cycle/1",
        **ENVELOPE,
        "job_id": "job",
        "cycle_id": "job:0",
        "nodes": [HOST],
        "ranks": [{"rank": 0, "node": HOST, "exit_code": 1, "signal": None}],
        "decision": {"action": "STOP", "reason": f"missing file /home/{USER}/x.bin"},
    }
    _write(
        run,
        {
            "cycle_0/rank_0.out": LOG,
            "cycle_0/rank_0.err": LOG,
            "cycle_0/cycle_info.json": info,
            "case/aorta.yaml": {"command": f"python /home/{USER}/proj/train.py", "ticket": ticket},
            "case/finding.json": {"schema": "aorta.attribution/1", "finding": {"summary": LOG}},
            "case/env.json": ENV,
            "case/logs/rank_0.err": LOG,
            "case/cycle_info.json": info,
        },
    )
    (run / "current").symlink_to("cycle_0")
    return _private(run, "launch", ticket)


MAKERS: Mapping[str, Callable[..., Path]] = {
    "reduce": reduce_dir,
    "triage": triage_dir,
    "bisect": bisect_dir,
    "launch": launch_dir,
}


def _write(run: Path, files: Mapping[str, Any]) -> None:
    for name, content in files.items():
        path = run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else _document(path, content), "utf-8")


def _document(path: Path, content: Any) -> str:
    is_json = path.suffix == ".json"
    return json.dumps(content, indent=2) + "\n" if is_json else yaml.safe_dump(content)


def _private(run: Path, verb: str, ticket: str | None) -> Path:
    about = {
        "verb": verb,
        "ticket": ticket,
        "created": "2026-11-15T05:35:08Z",
        "aorta_version": "0.1.0",
    }
    (run / ".aorta").mkdir()
    (run / ".aorta" / "run.json").write_text(json.dumps(about), "utf-8")
    (run / ".aorta" / "journal.jsonl").write_text(f'{{"secret": "{HF}"}}\n', "utf-8")
    return run
