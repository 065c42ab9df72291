"""Was this the end of its rank? Many a traceback in a log was caught, logged and survived, and many an error was a helper's."""

from aorta.attribution.events import Event
from aorta.attribution.progress import steps_in
from aorta.attribution.reading import lines_after, pieces

_LOOK_AROUND = 64 << 10
_LINES_OF_A_MESSAGE = 4
_MANY_STEPS = 20  # without a step before it, fewer may be another stream that was flushed late


def is_fatal(event: Event) -> bool:
    """Whether a rank may have ended with this exception: it did not go on, and said no more if it logged it itself."""
    return not went_on(event) and (not event.survived or is_last_word(event))


def is_last_word(event: Event) -> bool:
    return len(_own_lines_after(event)) <= _LINES_OF_A_MESSAGE


def went_on(event: Event) -> bool:
    """Whether the same rank came further, in the same log, after this: then it tells of another time."""
    before = steps_in(_text(event, max(0, event.offset - _LOOK_AROUND), event.offset))
    after = steps_in("\n".join(_own_lines_after(event)))
    if not before:
        return len(after) >= _MANY_STEPS
    return len(after) > 1 and max(after) > max(before)


def _own_lines_after(event: Event) -> list[str]:
    """What the same rank wrote to the same log in the moment after."""
    begin = event.offset if event.ends is None else event.ends
    data = _bytes(event, begin, begin + _LOOK_AROUND)
    data = data[data.find(b"\n") + 1 :] if b"\n" in data else b""
    lines: list[str] = []
    is_own = True
    for line in lines_after(data, 0, event.source):
        if line.who != (None, ""):
            is_own = line.who == event.who
        if is_own and line.text.strip():
            lines.append(line.text)
    return lines


def _text(event: Event, begin: int, stop: int) -> str:
    return _bytes(event, begin, stop).decode("utf-8", "replace")


def _bytes(event: Event, begin: int, stop: int) -> bytes:
    return b"".join(
        piece.data[piece.start : piece.end] for piece in pieces(event.source, begin, stop)
    )
