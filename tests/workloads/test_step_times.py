"""How long a step took, as people's logs tell it."""

import pytest

from aorta.workloads.results import printed_step_times


@pytest.mark.parametrize(
    ("line", "milliseconds"),
    [
        ("  3%|#         | 30/1000 [00:03<01:37, 10.0it/s]", 100.0),
        ("  3%|#         | 30/1000 [01:03<21:37,  2.5s/it]", 2500.0),
        ("step 30 loss 2.1 step time: 16.5 ms", 16.5),
        ("iter 30: loss 2.1, time 512.3ms, step_time_ms=61", 61.0),
        ("step=30 step_time=0.061", 61.0),
        (" iteration 30/ 1000 | elapsed time per iteration (ms): 512.3 | lm loss: 2", 512.3),
        ("epoch 1 batch 30 | 4 batches/s | loss 2", 250.0),
        ('{"step": 30, "step_time": 0.25, "loss": 1}', 250.0),
        ("30 steps done, 12 ms/step", 12.0),
        ("time per step: 3.5s", 3500.0),
    ],
)
def test_a_step_time_is_read_as_it_is_printed(line: str, milliseconds: float) -> None:
    assert printed_step_times(line) == [pytest.approx(milliseconds)]


def test_the_first_of_many_pays_for_warming_up_and_is_left_out() -> None:
    lines = "\n".join(f"step {n} step time: {900 if n == 0 else 10} ms" for n in range(5))
    assert printed_step_times(lines) == [10.0] * 4


@pytest.mark.parametrize(
    "text", ["", "loss 0.5", "timeout 30 s", "step 3", "2026-01-02 10:00:00 ready", "0.0it/s"]
)
def test_what_tells_no_step_time_gives_none(text: str) -> None:
    assert printed_step_times(text) == []
