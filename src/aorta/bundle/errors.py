"""Why a bundle was not made, or is not trusted."""

from collections.abc import Sequence

from aorta.core.errors import AortaError


class BundleError(AortaError):
    """The archive is not one that `aorta bundle` wrote, or it was changed since."""

    kind = "bundle"


class RefusedError(AortaError):
    """Files that may not be packed as they are: one line each in `problems`."""

    kind = "refused"

    def __init__(self, problems: Sequence[str], *, where: str) -> None:
        self.problems = tuple(problems)
        count = f"{len(self.problems)} problems" if len(self.problems) > 1 else "1 problem"
        super().__init__(
            f"nothing was packed ({count}): {'; '.join(self.problems[:5])}", where=where
        )
