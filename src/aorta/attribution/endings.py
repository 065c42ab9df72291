"""Was this the end of its rank? Many a traceback in a log was caught, logged and survived, and many an error was a helper's."""

from aorta.attribution.reading import pieces
from aorta.attribution.signs import Sign
from aorta.core.progress import steps_in

_LOOK_AROUND = 128 << 10
_LINES_OF_A_MESSAGE = 4
_MANY_STEPS = 20  # without a step before it, fewer may be another stream that was flushed late


def is_fatal(sign: Sign) -> bool:
    """Whether a rank may have ended with this exception: it did not go on, and said no more if it logged it itself."""
    return not went_on(sign) and (not sign.survived or is_last_word(sign))


def is_last_word(sign: Sign) -> bool:
    return len(_own_lines_after(sign)) <= _LINES_OF_A_MESSAGE


def went_on(sign: Sign) -> bool:
    """Whether the same rank came further, in the same log, after this: then it tells of another time."""
    before = steps_in(_text(sign, max(0, sign.offset - _LOOK_AROUND), sign.offset))
    after = steps_in("\n".join(_own_lines_after(sign)))
    if not before:
        return len(after) >= _MANY_STEPS
    return len(after) > 1 and max(after) > max(before)


def _own_lines_after(sign: Sign) -> list[str]:
    """What the same rank wrote to the same log in the moment after."""
    begin = sign.offset if sign.ends is None else sign.ends
    lines = _text(sign, begin, begin + _LOOK_AROUND).split("\n")[1:]
    if sign.source.rank is None and sign.rank is not None:
        marks = (f"[rank{sign.rank}]", f"{sign.rank}: ", f"{sign.rank}]:")
        lines = [line for line in lines if any(mark in line[:24] for mark in marks)]
    return [line for line in lines if line.strip()]


def _text(sign: Sign, begin: int, stop: int) -> str:
    parts = (piece.data[piece.start : piece.end] for piece in pieces(sign.source, begin, stop))
    return b"".join(parts).decode("utf-8", "replace")
