"""A scheduler that does not answer: it may only restart, and running trials do not need it meanwhile."""

import math
import time

from aorta.core.errors import InfrastructureError

_SHORTEST_PAUSE = 2.0
_LONGEST_SILENCE = 300.0


class Silence:
    """How long nobody has answered, and when to ask again: a question that meets silence takes its time, and at least
    as much passes until the next."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._again_at = -math.inf

    @property
    def may_be_broken(self) -> bool:
        return time.monotonic() >= self._again_at

    def is_over(self) -> None:
        self._since = None

    def goes_on(self, asked_at: float, wrong: InfrastructureError) -> None:
        """Raises when it has lasted too long."""
        now = time.monotonic()
        self._since = asked_at if self._since is None else self._since
        if now - self._since > _LONGEST_SILENCE:
            raise wrong
        self._again_at = now + max(_SHORTEST_PAUSE, now - asked_at)
