"""What is a symptom in the output of a run that ended well, and what is none."""

from pathlib import Path

import pytest

from aorta.core.trial import StreamEnd, TrialEnd
from aorta.solve.stages.reproduce import not_a_number_in


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
