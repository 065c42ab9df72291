"""What two failures of one configuration have in common: what differs in them is an accident.

one, two           # ... KeyError: no shard left in queue, ... KeyError: no shard right in queue
learned(one, two)  # ... KeyError: no shard <*> in queue
"""

from collections.abc import Sequence
from dataclasses import replace

from aorta.core.failure import Failure, frames_alike, same_failure
from aorta.core.raised import Cause, Raised
from aorta.core.templates import ANYTHING, common, says_the_same, words_in
from aorta.core.trial import Ended


def learned(one: Failure, two: Failure) -> Failure | None:
    """What two failures of one configuration have in common, with a slot for what varies; None if
    that is too little for one failure.
    """
    if same_failure(one, two) or (one.causes and two.causes):
        return _learned_causes(one, two) if one.causes and two.causes else _learned_words(one, two)
    return None if one.causes or two.causes else _learned_words(one, two)


def _learned_causes(one: Failure, two: Failure) -> Failure | None:
    pairs = [
        (mine, chain)
        for mine in one.causes
        for theirs in two.causes
        if (chain := _learned_chain(mine, theirs))
    ]
    if not pairs:
        return _seen_again(one, two) if same_failure(one, two) else None
    if not same_failure(one, two) and len(one.causes) == len(two.causes) != len(pairs):
        return None
    causes = tuple(dict.fromkeys(Cause(chain, mine.writer) for mine, chain in pairs))
    return replace(_seen_again(one, two), causes=causes)


def _seen_again(one: Failure, two: Failure) -> Failure:
    same_end = one.ended.is_like(two.ended)
    words = tuple(line for line in one.words if line in two.words)
    seen = one.seen + two.seen
    return replace(one, ended=one.ended if same_end else Ended(), words=words, seen=seen)


def _learned_chain(mine: Cause, theirs: Cause) -> tuple[Raised, ...]:
    merged = []
    for raised in mine.chain:
        found = next((m for one in theirs.chain if (m := _learned_raised(raised, one))), None)
        if found is not None:
            merged.append(found)
    return tuple(merged)


def _learned_raised(a: Raised, b: Raised) -> Raised | None:
    if a.type != b.type:
        return None
    frames, same_place = a.frames, frames_alike(a.frames, b.frames) is not None
    message = common(a.message, b.message)
    if not same_place:
        # raised in many places with the same words
        frames = tuple(frame for frame in a.frames if frame in b.frames)
        if not says_the_same(a.message, b.message) or not words_in(a.message):
            return None
    if message is None:
        if not same_place or not a.statement or a.statement != b.statement:
            return None
        message = ANYTHING
    statement = a.statement if a.statement == b.statement else ""
    within = a.within if a.within == b.within else ""
    return Raised(a.type, message, frames, within, statement)


def _learned_words(one: Failure, two: Failure) -> Failure | None:
    if not one.ended.is_like(two.ended):
        return None
    shared = [line for mine in one.words if (line := _best(mine, two.words))]
    if not shared and (one.words or two.words) and not same_failure(one, two):
        return None
    words = tuple(dict.fromkeys(shared))
    return replace(one, words=words, seen=one.seen + two.seen, said=one.said & two.said)


def _best(line: str, others: Sequence[str]) -> str | None:
    """What the line has in common with the one that is most like it."""
    alike = [merged for other in others if (merged := common(line, other)) and words_in(merged)]
    return max(alike, key=lambda merged: len(words_in(merged)), default=None)
