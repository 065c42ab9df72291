"""Several writers share one log: in whatever order their lines come to stand, the answer is the
same.
"""

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aorta.attribution import Attribution, Evidence, LogTail, attribute

KILLED_UNDER_SRUN = """\
srun: error: n2: task 1: Killed
srun: launch/slurm: _step_signal: Terminating StepId=2.0
slurmstepd-n1: error: *** STEP 2.0 ON n1 CANCELLED AT 2026-11-15T20:33:58 ***
srun: error: n1: task 0: Killed
srun: Force Terminated StepId=2.0
"""
TORN_BY_SRUN = """\
Traceback (most recent call last):
  File "<string>", line 4, in <module>
ModuleNotFoundError: No module named 'no_such_module_here'
Traceback (most recent call last):
srun: error: n2: task 1: Exited with exit code 1
srun: launch/slurm: _step_signal: Terminating StepId=4.0
srun: error: n1: task 0: Exited with exit code 1
  File "<string>", line 4, in <module>
ModuleNotFoundError: No module named 'no_such_module_here'
"""


def read(text: str) -> Attribution:
    return attribute(Evidence(tails=(LogTail(text),)))


def test_who_ends_after_srun_began_to_end_the_step_was_ended_by_srun() -> None:
    finding = read(KILLED_UNDER_SRUN).finding
    assert (finding.failure_class, finding.root.rank, finding.root.node) == ("killed", 1, "n2")
    assert finding.suspect_ranks == (1,)


def test_a_line_of_srun_inside_a_traceback_is_not_its_exception() -> None:
    result = read(TORN_BY_SRUN)
    assert (result.finding.failure_class, result.decision.action) == ("import_error", "STOP")


def test_a_traceback_that_is_whole_says_more_than_one_that_was_torn() -> None:
    whole = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nImportError: no'
    )
    torn = "Traceback (most recent call last):\nSomething: of another writer"
    for text in (f"{whole}\n{torn}\n", f"{torn}\n{whole}\n"):
        assert read(text).finding.failure_class == "import_error", text


def test_an_exception_of_the_program_s_own_needs_no_usual_name() -> None:
    text = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nBoom: of its own\n'
    )
    assert read(text).finding.summary.endswith("Boom: of its own")


TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/srv/train.py", line 4, in <module>',
    "    main()",
)
STEP_ENDED = "slurmstepd-n1: error: *** STEP 4.0 ON n1 CANCELLED AT 2026-11-15T20:33:58 ***"


def srun(first: str, other: str, *, forced: bool = True) -> tuple[str, ...]:
    """What `srun --kill-on-bad-exit` writes when task 1 fails and task 0 ends after it."""
    return (
        f"srun: error: n2: task 1: {first}",
        "srun: launch/slurm: _step_signal: Terminating StepId=4.0",
        f"srun: error: n1: task 0: {other}",
        *(("srun: Force Terminated StepId=4.0",) if forced else ()),
    )


@dataclass(frozen=True)
class Story:
    name: str
    writers: tuple[tuple[str, ...], ...]  # the lines of each, in its own order
    failure_class: str
    action: str


def alike(lines: tuple[str, ...], end: str, failure_class: str, action: str = "STOP") -> Story:
    """Both tasks fail with the same words."""
    return Story(failure_class, (lines, lines, srun(end, end, forced=False)), failure_class, action)


def alone(how: str, failure_class: str) -> Story:
    """Task 1 dies without a word, task 0 is ended for it."""
    return Story(how, ((STEP_ENDED,), srun(how, "Killed")), failure_class, "RESTART")


STORIES = (
    alone("Killed", "killed"),
    alone("Segmentation fault (core dumped)", "segfault"),
    alone("Aborted (core dumped)", "abort"),
    alike((*TRACEBACK, "ModuleNotFoundError: No module named 'fused'"), "Exited with exit code 1", "import_error"),
    alike((*TRACEBACK, "FileNotFoundError: [Errno 2] No such file or directory: 'conf.yaml'"), "Exited with exit code 1", "missing_file"),
    alike(("usage: train.py [-h] [--lr LR]", "train.py: error: unrecognized arguments: --ls 3"), "Exited with exit code 2", "bad_arguments"),
    Story(
        "one task's own exception, the other ended for it",
        ((*TRACEBACK, "ZeroDivisionError: division by zero"), (STEP_ENDED,), srun("Exited with exit code 1", "Killed")),
        "user_exception", "RESTART",
    ),
    Story(
        "an exception on one task, politely ended the other",
        ((*TRACEBACK, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."), srun("Exited with exit code 1", "Terminated")),
        "device_oom", "RESTART",
    ),
)  # fmt: skip


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_in_whatever_order_the_lines_of_several_writers_stand_the_answer_is_the_same(
    story: Story, data: st.DataObject
) -> None:
    turns = [who for who, lines in enumerate(story.writers) for _ in lines]
    left = [iter(lines) for lines in story.writers]
    text = "".join(f"{next(left[who])}\n" for who in data.draw(st.permutations(turns)))
    result = read(text)
    assert (result.finding.failure_class, result.finding.root.rank, result.decision.action) == (
        story.failure_class, 1, story.action
    ), text  # fmt: skip
