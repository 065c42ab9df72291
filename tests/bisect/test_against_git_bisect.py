"""The same commit as `git bisect run`, on real histories of every shape, for at most three tests
more.
"""

import pytest
from benchmarks.git_bisect import SHAPES, synthetic


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(2))
def test_it_names_the_commit_that_git_bisect_names(shape: str, seed: int) -> None:
    compared = synthetic(shape, seed)
    assert compared.aorta == compared.git == compared.culprit
    assert compared.more <= 3
