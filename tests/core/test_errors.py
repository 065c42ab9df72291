"""What a user reads and a script sees when something is wrong."""

import pytest

from aorta.core.errors import AortaError, Exit, InfrastructureError, ResumeError, UsageError


def test_exit_codes_are_those_that_scripts_rely_on() -> None:
    assert {code.name: code.value for code in Exit} == {
        "OK": 0,
        "FAILED": 1,
        "USAGE": 2,
        "NO_ANSWER": 3,
        "BUDGET": 4,
        "INFRASTRUCTURE": 5,
        "STOP": 93,
        "INTERRUPTED": 130,
        "TERMINATED": 143,
    }


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (AortaError, Exit.FAILED),
        (UsageError, Exit.USAGE),
        (ResumeError, Exit.USAGE),
        (InfrastructureError, Exit.INFRASTRUCTURE),
    ],
)
def test_an_error_is_one_line_that_begins_with_its_place(
    error: type[AortaError], code: Exit
) -> None:
    wrong = error("found\n  a list,   expected\ta number", where="recipe.yaml: axes.0")
    assert str(wrong) == "recipe.yaml: axes.0: found a list, expected a number"
    assert str(error("found nothing")) == "found nothing"
    assert wrong.exit_code is code
