"""Forms of evidence that the corpus does not hold: kernel and scheduler lines, error files, nodes,
chains, noise.
"""

import json
import re
from pathlib import Path

import pytest

from aorta.attribution import (
    Action,
    Attribution,
    Evidence,
    LogSource,
    LogTail,
    RankEnd,
    attribute,
)
from aorta.attribution.events import Pattern, patterns
from aorta.attribution.progress import steps_in

TRACEBACK = 'Traceback (most recent call last):\n  File "/srv/train.py", line 7, in main\n    x()\n'
LOST_PEER = TRACEBACK + "RuntimeError: Connection closed by peer [10.0.0.1]:4000\n"


def of_tails(*texts: str, failures: tuple[RankEnd, ...] = ()) -> Attribution:
    tails = tuple(LogTail(text, rank) for rank, text in enumerate(texts))
    return attribute(Evidence(tails=tails, failures=failures))


_LINE_BEFORE = {
    "argparse.own_error": "usage: pretrain.py [-h]\n",
    "click.error": "Usage: train [OPTIONS]\n",
}
_RAISED_IN = {
    "config.refused_at_setup": ("/srv/mesh.py", "create_device_mesh"),
    "config.refused_by_constructor": ("/srv/engine.py", "__init__"),
    "python.module_changed": ("/srv/train.py", "<module>"),
    "config.in_config_code": ("/srv/megatron/arguments.py", "validate_args"),
    "checkpoint.in_loading": ("/srv/engine.py", "load_checkpoint"),
    "checkpoint.unreadable_in_loading": ("/srv/engine.py", "load_checkpoint"),
    "data.in_loader": ("/srv/dataset.py", "__getitem__"),
    "python.launcher": ("/opt/venv/accelerate/commands/launch.py", "simple_launcher"),
    "config.environment": ("os.py", "__getitem__"),
    "checkpoint.unreadable": ("serialization.py", "load"),
    "data.child_lost": ("connection.py", "_recv"),
    "disk.write_failed": ("serialization.py", "__exit__"),
}
_SOURCE = {
    "config.key": 'hidden = config["hidden_size"]',
    "config.choice": "model = MODELS[args.model](cfg)",
    "config.compared": "assert cfg.warmup_steps < cfg.steps",
    "config.conversion": "rate = float(args.rate)",
    "config.unreadable": "config = json.load(file)",
    "config.environment_value": 'workers = int(os.environ["NUM_WORKERS"])',
    "checkpoint.key": 'model.load_state_dict(checkpoint["model_state_dict"])',
}


def test_every_pattern_passes_its_own_tests() -> None:
    for row in patterns():
        compiled = re.compile(row.regex)
        texts = [text if row.whole_message else text.partition("\n")[0] for text in row.hits]
        assert all(map(compiled.search, texts)), row.id
        assert not any(map(compiled.search, row.misses)), row.id
        assert (row.on == "exception") != bool(row.triggers), row.id
        # shorter literals would be found everywhere, and make the fast pass slow
        assert all(len(trigger) >= 4 for trigger in row.triggers), row.id
        assert not row.triggers or all(any(t in hit for t in row.triggers) for hit in row.hits)
        assert row.origin == "injected" or row.origin.startswith("documented: "), row.id


def test_every_hit_is_recognised_as_its_class_in_a_log() -> None:
    for row in patterns():
        result = of_tails(_log_with(row)).finding
        told = result.failure_class
        if row.on == "exit":
            assert told in {"killed", "segfault", "abort", "unknown"}, row.id
        elif row.role in {"root", "waiting"}:
            assert told == row.failure_class, row.id
        elif row.role == "cascade":
            seen = {told, *(cascade.failure_class for cascade in result.cascade)}
            assert told in {"network_loss", "unknown"} or row.failure_class in seen, row.id


def _log_with(row: Pattern) -> str:
    text = f"{_LINE_BEFORE.get(row.id, '')}{row.hits[0]}\n"
    if row.on != "exception":
        return text
    file, function = _RAISED_IN.get(row.id, ("/srv/train.py", "main"))
    shown = _SOURCE.get(row.id, "main()")
    return (
        f'Traceback (most recent call last):\n  File "{file}", line 7, in {function}\n    '
        f"{shown}\n{text}"
    )


def test_an_oom_kill_in_the_kernel_log_explains_a_kill(tmp_path: Path) -> None:
    kernel = tmp_path / "dmesg"
    kernel.write_text("[ 99.1] Out of memory: Killed process 4242 (python) total-vm:9000kB\n")
    failures = (RankEnd(0, exit_code=1), RankEnd(1, signal=9))
    tails = (LogTail(LOST_PEER, 0),)
    found = attribute(Evidence(tails=tails, failures=failures, kernel_logs=(LogSource(kernel),)))
    assert (found.finding.failure_class, found.finding.root.rank) == ("host_oom", 1)


def test_a_hardware_error_outweighs_what_the_program_says_and_names_node_and_device(
    tmp_path: Path,
) -> None:
    kernel = tmp_path / "dmesg"
    kernel.write_text("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n")
    tails = (LogTail(TRACEBACK + "RuntimeError: CUDA error: unspecified launch failure\n", 0),)
    found = attribute(Evidence(tails=tails, kernel_logs=(LogSource(kernel, node="n4"),)))
    assert found.decision.action is Action.RESTART
    assert (found.finding.root.node, found.finding.root.device) == ("n4", "PCI:0000:3b:00")
    assert found.decision.advice[0].text == "exclude node n4"


@pytest.mark.parametrize(
    ("line", "kind", "action"),
    [
        (("slurmstepd: error: *** JOB 4 ON n1 CANCELLED AT 2026-11-15T05:35:21 DUE TO PREEMPTION "
         "***"), "preempted", "RESTART"),
        (("slurmstepd: error: *** JOB 4 ON n1 CANCELLED AT 2026-11-15T05:35:21 DUE TO TIME LIMIT "
         "***"), "time_limit", "STOP"),
        ("slurmstepd: error: *** JOB 4 ON n1 CANCELLED AT 2026-11-15T05:35:21 ***", "cancelled", "STOP"),
    ],
)  # fmt: skip
def test_what_the_scheduler_says_outweighs_how_the_ranks_died(
    line: str, kind: str, action: str
) -> None:
    failures = (RankEnd(0, signal=15), RankEnd(1, signal=9))
    found = of_tails(line + "\n", failures=failures)
    assert (found.finding.failure_class, found.decision.action) == (kind, action)


def test_a_torch_error_file_tells_what_stderr_did_not(tmp_path: Path) -> None:
    report = tmp_path / "error.json"
    trace = TRACEBACK + "PermissionError: [Errno 13] Permission denied: '/data'\n"
    extra = {"py_callstack": trace, "timestamp": "1794723183"}
    report.write_text(json.dumps({"message": {"message": "PermissionError", "extraInfo": extra}}))
    failures = (RankEnd(0, exit_code=1, error_file=str(report)), RankEnd(1, signal=15))
    found = attribute(Evidence(failures=failures))
    assert (found.finding.failure_class, found.finding.root.rank) == ("permission_denied", 0)


def test_a_file_missing_on_one_of_two_nodes_blames_the_node() -> None:
    missing = TRACEBACK + "FileNotFoundError: [Errno 2] No such file or directory: '/data/x'\n"
    tails = (LogTail(missing, 0, "n0"), LogTail(LOST_PEER, 1, "n1"))
    found = attribute(Evidence(tails=tails))
    assert (found.decision.action, found.decision.rule) == (Action.RESTART, "one_node_only")
    alone = attribute(Evidence(tails=(tails[0], LogTail("", 1, "n1"))))
    assert alone.decision.action is Action.RESTART, "an empty log says nothing about its node"


def test_the_first_of_two_different_deaths_is_the_cause() -> None:
    failures = (RankEnd(0, exit_code=1, time=9.0), RankEnd(1, exit_code=1, time=2.0))
    late = TRACEBACK + "OSError: [Errno 28] No space left on device\n"
    early = TRACEBACK + "ValueError: bad bucket\n"
    found = of_tails(late, early, failures=failures)
    assert (found.finding.root.rank, found.finding.failure_class) == (1, "user_exception")


def test_an_error_the_program_survived_is_not_its_death() -> None:
    steps = "".join(f"step {number} loss 0.5\n" for number in range(1, 30))
    survived = TRACEBACK + "FileNotFoundError: [Errno 2] No such file or directory: 'cache'\n"
    text = steps + survived + "".join(f"step {number} loss 0.5\n" for number in range(30, 60))
    failures = (RankEnd(0, exit_code=1),)
    assert of_tails(text, failures=failures).decision.action is not Action.STOP
    ended = text + TRACEBACK + "ValueError: bad bucket\n"
    assert of_tails(ended, failures=failures).finding.failure_class == "user_exception"


def test_nccl_ranks_that_all_waited_blame_the_one_that_came_least_far() -> None:
    line = (
        "[rank{r}]:[E] Timeout at NCCL work: 7, last enqueued NCCL work: {n}, last completed "
        "NCCL work: 6.\n"
    )
    found = of_tails(*(line.format(r=rank, n=n) for rank, n in enumerate((9, 7, 9))))
    assert (found.finding.failure_class, found.finding.root.rank) == ("collective_timeout", 1)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("step 1 loss 3\nstep 2 loss 2\n", [1, 2]),
        (" iteration       10/     100 | consumed samples: 640 |\n iteration 20/ 100 |\n", [10, 20]),
        ("{'global_step': 5, 'loss': 1}\n{'global_step': 6, 'loss': 1}\n", [5, 6]),
        (("Training:  12%|█▏   | 120/1000 [00:12<01:00]\rTraining:  13%|█▏   | 130/1000 "
         "[00:13<01:00]"), [120, 130]),
        ("max_steps: 5000\nloaded checkpoint at iteration 400\nresuming from step 400\n", []),
        ("nothing\nto see\n", []),
    ],
)  # fmt: skip
def test_steps_are_read_in_the_dialects_people_log_them(text: str, steps: list[int]) -> None:
    assert steps_in(text) == steps


def test_crashes_in_different_places_are_different_bugs() -> None:
    def crash(function: str) -> str:
        text = (
            "Fatal Python error: Segmentation fault\n\nCurrent thread 0x01 (most recent call "
            "first):\n"
        )
        text += (
            f'  File "/srv/kernels.py", line 9 in {function}\n  File "/srv/train.py", line 3 '
            "in main\n"
        )
        return of_tails(text).finding.fingerprint

    assert crash("attention") != crash("optimizer")
    assert crash("attention") == crash("attention")


def test_the_fingerprint_does_not_depend_on_host_rank_step_or_path() -> None:
    def finding_of(rank: int, step: int, home: str, port: int) -> str:
        text = (
            f"[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   File "
            f'"{home}/train.py", line 7, in f\n'
        )
        text += (
            f"[rank{rank}]: RuntimeError: bucket {step} from node-{rank}:{port} has no gradients\n"
        )
        return attribute(Evidence(tails=(LogTail(text),))).finding.fingerprint

    assert finding_of(0, 10, "/home/a", 1234) == finding_of(7, 99, "/mnt/b/c", 4321)
