"""What could not be started is no evidence, whoever says so."""

from pathlib import Path

import pytest

from aorta.core.failure import Failure
from aorta.core.oracle import ExitCodeOracle, classify
from aorta.core.trial import Ended, Outcome, StreamEnd, TrialEnd

TRACEBACK = (
    'Traceback (most recent call last):\n  File "t.py", line 3, in step\n    x()\nValueError: no\n'
)


def outcome(stderr: str, code: int, expected: Failure | None = None) -> Outcome:
    nothing = StreamEnd(Path("none"))
    end = TrialEnd("t", nothing, StreamEnd(Path("none"), tail=stderr), exit_code=code)
    return classify(ExitCodeOracle(), end, expected).outcome


@pytest.mark.parametrize(
    ("stderr", "code"),
    [
        ("bash: line 1: nosuchcommand: command not found\n", 127),
        ("/bin/sh: 1: nosuchcommand: not found\n", 127),
        ("env: 'python3.9': No such file or directory\n", 127),
        ("bash: ./t.py: /usr/bin/py: bad interpreter: No such file or directory\n", 126),
        ("./train: error while loading shared libraries: libx.so: cannot open shared\n", 127),
        ("run_repro.sh: set HF_TOKEN first\n", 127),
        ("/x/shrunken/run_repro.sh: python is missing\n", 1),
        ("python: can't open file '/w/train.py': [Errno 2] No such file or directory\n", 2),
        ("/usr/bin/python3: No module named train\n", 1),
        ("docker: Error response from daemon: No such image\n", 125),
        ("make: nosuch: No such file or directory\nmake: *** [Makefile:2: all] Error 127\n", 2),
        ("slurmstepd: error: execve(): nosuch: No such file or directory\n", 2),
        ("ssh: connect to host n7 port 22: Connection refused\n", 255),
        (
            "FATAL:   could not open image /i/t.sif: lstat /i/t.sif: no such file or directory\n",
            255,
        ),
        ("enroot-start: [ERROR] No such file or directory: /i/t.sqsh\n", 1),
        ("slurmstepd: error: pyxis: container start failed with error code: 1\n", 1),
        ("error: Failed to spawn: `train.py`\n  Caused by: No such file (os error 2)\n", 2),
        ("EnvironmentLocationNotFound: Not a conda environment: /opt/conda/envs/t\n", 1),
    ],
)
def test_what_was_never_started_is_an_error(stderr: str, code: int) -> None:
    assert outcome(stderr, code) is Outcome.ERROR


@pytest.mark.parametrize(
    ("stderr", "code"),
    [
        ("t.sh: line 3: rows.txt: No such file or directory\nthe loss went up\n", 1),
        ("bash: line 1: nvidia-smi: command not found\n" + TRACEBACK, 1),
        (TRACEBACK, 127),
        ("license file not found, and training failed\n", 1),
    ],
)
def test_a_program_that_ran_and_failed_is_evidence(stderr: str, code: int) -> None:
    assert outcome(stderr, code) is Outcome.REPRODUCED


def test_127_counts_where_the_failure_that_is_meant_ended_so_and_nothing_says_not_found() -> None:
    assert outcome("queue is torn\n", 127) is Outcome.REPRODUCED
    assert outcome("", 127, Failure(Ended(127))) is Outcome.REPRODUCED
    assert outcome("", 127, Failure(Ended(1))) is Outcome.ERROR
    assert outcome("t: command not found\n", 127, Failure(Ended(127))) is Outcome.ERROR
