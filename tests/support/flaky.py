"""Commands that fail now and then, in a row of failures and passes that is the same in every run of
a test.
"""

from pathlib import Path


def next_fails(counter: Path, row: str) -> str:
    """For a shell: true where the next letter of `row`, which repeats itself, is an F. True chance
    would sometimes look steady.
    """
    return (
        f"{{ echo >> {counter}; k=$(wc -l < {counter});"
        f" [ $(printf %s {row} | cut -c$(( (k - 1) % {len(row)} + 1 ))) = F ]; }}"
    )
