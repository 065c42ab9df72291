"""The shortest range of steps that still reproduces: first it ends earlier, then it starts later."""

from collections.abc import Callable, Collection

from aorta.core.axis import Number, Point, StepsAxis, Window, as_window
from aorta.core.trial import Verdict
from aorta.search.numeric import NumericSearch


class WindowSearch:
    """Two searches for a length, one after the other: with the start held, then with the end held.

    `suspects` are the lengths that were rejected in an earlier search of the same axis, one for each of the two.
    """

    def __init__(
        self,
        base: Point,
        axis: StepsAxis,
        *,
        suspects: tuple[Number | None, Number | None] = (None, None),
    ) -> None:
        self._axis = axis
        self._suspects = suspects
        span = as_window(base[axis.name])
        self._parts = [
            self._part(base, span.length, lambda n: Window(span.start, int(n)), suspects[0])
        ]
        self._turn()

    def ask(self, n: int, pending: Collection[Point] = ()) -> list[Point]:
        return self._parts[-1].ask(n, pending)

    def tell(self, point: Point, verdict: Verdict) -> None:
        if self._parts[-1].covers(point):
            self._parts[-1].tell(point, verdict)
        self._turn()

    def _turn(self) -> None:
        """From the end to the start, once the end is settled."""
        if len(self._parts) == 1 and self._parts[0].done:
            base = self._parts[0].best
            span = as_window(base[self._axis.name])
            end = span.start + span.length
            self._parts.append(
                self._part(
                    base, span.length, lambda n: Window(end - int(n), int(n)), self._suspects[1]
                )
            )

    def wants(self, point: Point) -> bool:
        return self._parts[-1].covers(point) and self._parts[-1].wants(point)

    @property
    def done(self) -> bool:
        return len(self._parts) == 2 and self._parts[-1].done

    @property
    def best(self) -> Point:
        return self._parts[-1].best

    @property
    def monotone(self) -> bool | None:
        said = {part.monotone for part in self._parts}
        return False if False in said else None if None in said else True

    @property
    def largest_rejected(self) -> tuple[Number | None, Number | None]:
        first, last = self._parts[0], self._parts[-1]
        return first.largest_rejected, None if last is first else last.largest_rejected

    def proofs(self) -> list[Point]:
        """The rejected windows just shorter than the answer at its start; at its end the start has since moved."""
        return self._parts[-1].proofs()

    def doubts(self) -> list[Point]:
        return [point for part in self._parts for point in part.doubts()]

    @property
    def unresolved(self) -> int:
        return sum(part.unresolved for part in self._parts)

    def _part(
        self, base: Point, length: int, place: Callable[[Number], Window], suspect: Number | None
    ) -> NumericSearch:
        return NumericSearch(base, self._axis, length, place=place, suspect=suspect)
