"""What is a symptom in the output of a run that ended well, and what is none."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from aorta.core.trial import StreamEnd, TrialEnd
from aorta.solve.stages.reproduce import not_a_number_in, slowness_in

SLOW_FROM_20 = [0.1 if step < 20 else 0.4 for step in range(32)]


def ended(place: Path, lines: Sequence[str]) -> TrialEnd:
    text = "\n".join(lines)
    out, err = place / "stdout.log", place / "stderr.log"
    out.write_text(text)
    err.touch()
    stdout = StreamEnd(out, len(text), len(text), tail=text[-200:])
    return TrialEnd("t", stdout, StreamEnd(err), exit_code=0)


@pytest.mark.parametrize(
    ("line", "limit"),
    [
        (lambda value: f"step 3 | step_time: {value} | loss 0.5", "above"),
        (lambda value: f"iter time {value}s", "above"),
        (lambda value: f"loss 0.1 {20 / value:g} tokens/s", "below"),
        (lambda value: f"throughput={20 / value:g}", "below"),
    ],
)
def test_steps_that_got_slow_are_a_symptom_of_late_steps_against_early_ones(
    line: Callable[[float], str], limit: str, tmp_path: Path
) -> None:
    oracle, _ = slowness_in(ended(tmp_path, [line(value) for value in SLOW_FROM_20]))
    assert oracle["relative"] is True
    assert limit in oracle


def test_an_exact_doubling_with_some_noise_is_seen(tmp_path: Path) -> None:
    noisy = random.Random(3)
    values = [(1 if step < 25 else 2) * noisy.uniform(0.093, 0.107) for step in range(40)]
    _, words = slowness_in(ended(tmp_path, [f"step_time {value:.4f}" for value in values]))
    assert words.startswith("it got slower: 0.1")


@pytest.mark.parametrize(
    "values",
    [
        [0.1] * 40,
        [0.4] * 20 + [0.1] * 20,  # it got faster
        [0.1, 0.1, 0.5, 0.1] * 10,  # now and then a slow one, such as with a checkpoint
        [2.0] + [0.1] * 39,  # the first one warms up
        [0.1, 0.1, 0.4, 0.4],  # too few to tell
    ],
)
def test_steps_of_a_healthy_run_are_no_symptom(values: Sequence[float], tmp_path: Path) -> None:
    assert slowness_in(ended(tmp_path, [f"step_time {value}" for value in values])) == ({}, "")


@pytest.mark.parametrize("bars", [("load", "train"), ("train", "eval")])
def test_a_slower_bar_of_other_work_is_no_symptom(bars: tuple[str, str], tmp_path: Path) -> None:
    first, second = bars
    lines = [f"{first}: {n}/20 [00:01, 50.1it/s]" for n in range(20)]
    lines += [f"{second}: {n}/20 [00:09, 5.1it/s]" for n in range(20)]
    assert slowness_in(ended(tmp_path, lines)) == ({}, "")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("step 1 loss 0.5\nstep 2 loss nan\n", ("stdout", "step 2 loss nan")),
        ("grad norm -inf\n", ("stdout", "grad norm -inf")),
        ("saved to banana.inf.txt\ninfo: done\n", ("", "")),
    ],
)
def test_a_number_that_is_none_is_a_symptom_and_a_word_with_it_is_none(
    text: str, found: tuple[str, str]
) -> None:
    streams = (StreamEnd(Path("none"), tail=text), StreamEnd(Path("none")))
    assert not_a_number_in(TrialEnd("t", *streams, exit_code=0)) == found
