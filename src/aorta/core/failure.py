"""What failed, as one value, and the one rule whether two failures are the same.

`failure_of(end)` makes of a trial's end a `Failure`; `same_failure(a, b)` compares two and says
why. What decides, in this order: how it ended, where that is a hang or a want of memory; the
exceptions (type, chain, frames without line numbers, the program's own before a library's), where
there are any, with a message that is not plainly another one; else the words, as templates. An exit
code alone never makes two failures the same if their words share nothing.

    one = failure_of(end_of_first_trial)     # train.py:step > KeyError: no shard 'left' in queue
    two = failure_of(end_of_second_trial)    # train.py:step > KeyError: no shard 'right' in queue
    same_failure(one, two)     # same=True, why="same exception and frames"

    learned(one, two)          # ... KeyError: no shard <*> in queue

No other module compares failures.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from aorta.core.raised import (
    BUILT_IN,
    RECURSION,
    Cause,
    Raised,
    causes_in,
    lines_outside_tracebacks,
)
from aorta.core.templates import (
    ANYTHING,
    common,
    covers,
    is_error,
    said_in,
    says_the_same,
    template,
    words_in,
    words_of,
)
from aorta.core.trial import Ended, TrialEnd

PATTERN, WORKLOAD, ORACLE = "pattern", "workload", "oracle"  # who named a failure
_NAMERS = frozenset({PATTERN, WORKLOAD, ORACLE})

# Raised at an accidental place: the next request for memory, or a call after the device's error.
_OUT_OF_MEMORY = frozenset({"device_oom", "host_oom"})
_DEVICE_ASSERT = "device_assert"
_CLASSES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "device_oom",
        re.compile(
            r"(?:CUDA|HIP|XPU|MPS) (?:error: )?(?:backend )?out of memory|RESOURCE_EXHAUSTED: .*"
            r"(?:alloc|memory)|hipErrorOutOfMemory|cudaErrorMemoryAllocation|"
            r"CUDA_ERROR_OUT_OF_MEMORY"
        ),
    ),
    (
        "host_oom",
        re.compile(
            r"\b(?:_Array)?MemoryError(?:: Unable to allocate .*)?$|\[Errno 12\] |std::bad_alloc|"
            r"DefaultCPUAllocator: (?:can't allocate|not enough) memory"
        ),
    ),
    (_DEVICE_ASSERT, re.compile(r"device-side assert(?: triggered)?|hipErrorAssert")),
    ("illegal_access", re.compile(r"illegal memory access|Memory access fault by GPU")),
)
_DEVICE_ASSERTION = re.compile(r"Assertion [`'].+[`'] failed")
# What the interpreter quotes in these are names in the code, which no accident changes.
_QUOTE_CODE = frozenset(
    {"AttributeError", "ImportError", "ModuleNotFoundError", "NameError", "TypeError"}
)


@dataclass(frozen=True)
class Failure:
    """What failed. `causes` are its exceptions, `words` templates of its lines where there are none
    or where every exception was survived; `seen` is of how many failures of one configuration it
    was learned what varies.
    """

    ended: Ended = field(default_factory=Ended)
    causes: tuple[Cause, ...] = ()
    words: tuple[str, ...] = ()
    failure_class: str | None = None
    seen: int = 1
    # told by a registered workload or a pattern, and not by how the process ended
    told_by: str = ""
    harmless: frozenset[str] = frozenset()  # lines that tell nothing of it: clean runs say them
    said: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @property
    def text(self) -> str:
        """In one line, for people: `exit 1 | train.py:step > KeyError: no shard <*> in queue`."""
        status = self.told_by or self.ended.text
        said = self.causes[0].first.text if self.causes else self.headline
        return f"{status} | {said}" if said else status

    @property
    def headline(self) -> str:
        """The word that tells most: the last that speaks of an error, else the last."""
        errors = [line for line in self.words if is_error(line)]
        return (errors or [*self.words] or [""])[-1]

    @property
    def is_silent(self) -> bool:
        """Whether nothing but how it ended tells it from another failure."""
        ended = self.ended
        named = ended.hang or ended.oom_killed or ended.signal is not None or self.told_by
        return not (self.causes or self.words or self.failure_class or named)

    def without(self, harmless: Collection[str]) -> "Failure":
        """Without lines that clean runs say too, here and in what it is compared with."""
        if self.causes and not self.words:
            return self
        words = tuple(line for line in self.words if line not in harmless)
        return replace(self, words=words, harmless=self.harmless | frozenset(harmless))

    def in_any_version(self) -> "Failure":
        """For versions of one program, whose lines are written anew: by its functions alone."""
        causes = [
            replace(cause, chain=tuple(replace(one, statement="") for one in cause.chain))
            for cause in self.causes
        ]
        return replace(self, causes=tuple(causes))

    def to_json(self) -> dict[str, Any]:
        first = self.causes[0].first if self.causes else None
        return {
            "type": first.type if first else None,
            "frames": list(first.frames) if first else [],
            "message": first.message if first else self.headline,
            "ended": _to_json(self.ended),
            "class": self.failure_class,
            "causes": [
                {"writer": cause.writer, "chain": [_to_json(one) for one in cause.chain]}
                for cause in self.causes
            ],
            "words": list(self.words),
            "harmless": sorted(self.harmless),
            "seen": self.seen,
            "told_by": self.told_by or ("exit" if self.is_silent else "output"),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Failure":
        """What `to_json` wrote; the keys of the contract are enough."""
        ended = content.get("ended") or {}
        causes = tuple(
            Cause(tuple(map(_raised_from_json, cause["chain"])), str(cause.get("writer") or ""))
            for cause in content.get("causes") or ()
        )
        kind, message = content.get("type"), str(content.get("message") or "")
        if not causes and kind:
            causes = (Cause((Raised(str(kind), message, tuple(content.get("frames") or ())),)),)
        words = content.get("words")
        if words is None:
            words = [message] if message and not causes else []
        return cls(
            Ended(**{key: ended[key] for key in Ended.__dataclass_fields__ if key in ended}),
            causes,
            tuple(map(str, words)),
            content.get("class"),
            int(content.get("seen") or 1),
            told_by if (told_by := str(content.get("told_by") or "")) in _NAMERS else "",
            frozenset(content.get("harmless") or ()),
        )


def _to_json(part: Ended | Raised) -> dict[str, Any]:
    return {key: list(v) if isinstance(v, tuple) else v for key, v in vars(part).items()}


def _raised_from_json(content: Mapping[str, Any]) -> Raised:
    names = ("type", "message", "within", "statement")
    kind, message, within, statement = (str(content.get(name) or "") for name in names)
    return Raised(kind, message, tuple(map(str, content.get("frames") or ())), within, statement)


def failure_to_json(failure: Failure | None) -> dict[str, Any] | None:
    return None if failure is None else failure.to_json()


def failure_from_json(content: object) -> Failure | None:
    """The failure of a record; None where it has none."""
    return Failure.from_json(content) if isinstance(content, Mapping) else None


_TAKEN_OUT = re.compile(r"<[A-Z]+\d*:[1-9]\d*>")  # what a scrubber leaves in the place of a secret


def failure_from_elsewhere(content: object) -> Failure | None:
    """Of a record that was perhaps scrubbed: where something was taken out, anything may stand."""
    with_slots, taken_out = _TAKEN_OUT.subn(ANYTHING, json.dumps(content))
    found = failure_from_json(json.loads(with_slots))
    if found is None:
        return None
    return replace(found.in_any_version() if taken_out else found, seen=max(2, found.seen))


def wordings(before: str, after: str) -> dict[str, str]:
    """What a failure may hold of an output, and of the same output with other words in it."""
    ours, theirs = _held_of(before), _held_of(after)
    return dict(zip(ours, theirs, strict=True)) if len(ours) == len(theirs) else {}


def _held_of(output: str) -> list[str]:
    raised = chain.from_iterable(cause.chain for cause in causes_in(output))
    fields = ((r.type, r.message, r.within, r.statement, *r.frames) for r in raised)
    return [*chain.from_iterable(fields), *said_in(lines_outside_tracebacks(output))]


def reworded(text: str, instead: Mapping[str, str]) -> str:
    """A text of a failure in the words of `wordings`; where it was learned to vary it still may."""
    if text in instead or ANYTHING not in text:
        return instead.get(text, text)
    fitting = (common(text, now) for one, now in instead.items() if covers(text, one))
    return next(filter(None, fitting), text)


def digest_of(text: str) -> str:
    """A short name for a failure that is known by its text alone."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def named_failure(told_by: str, words: str) -> Failure:
    """One that a registered workload or a pattern names in words of its own."""
    line = template(words)
    return Failure(words=(line,) if line else (), told_by=told_by)


def failure_of(end: TrialEnd) -> Failure:
    """What failed, by how the trial ended and by what it wrote."""
    ended, texts = end.ended, (end.stderr.tail, end.stdout.tail)
    causes = next((c for c in map(causes_in, texts) if any(not one.wraps for one in c)), ())
    said = [said_in(lines_outside_tracebacks(text)) for text in texts]
    words: tuple[str, ...] = ()
    if all(cause.survived for cause in causes):
        words = words_of(*said)
    if not causes:
        wrapping = next((found for found in map(causes_in, texts) if found), ())
        # A command that says no error is told by the line that called it and by how it ended.
        speaks = any(map(is_error, words)) or not all(one.first.statement for one in wrapping)
        causes = () if words and speaks else wrapping
    lines, kind = frozenset((*said[0], *said[1])), _class_of(ended, causes, words)
    if kind == _DEVICE_ASSERT:
        words = tuple(sorted({m[0] for line in lines if (m := _DEVICE_ASSERTION.search(line))}))
    return Failure(ended, causes, words, kind, said=lines)


def _class_of(ended: Ended, causes: Sequence[Cause], words: Sequence[str]) -> str | None:
    """The class where the words leave no doubt; attribution names more."""
    if ended.oom_killed:
        return "host_oom"
    spoken = [raised.text for cause in causes for raised in cause.chain] or words
    for name, pattern in _CLASSES:
        if any(pattern.search(line) for line in spoken):
            return name
    return None


@dataclass(frozen=True)
class Sameness:
    """Whether two failures are the same, and why, for people."""

    same: bool
    why: str

    def __bool__(self) -> bool:
        return self.same


def same_failure(
    known: Failure | Mapping[str, Any], other: Failure | Mapping[str, Any]
) -> Sameness:
    """Whether `other` is `known`; either may be JSON. What was learned to vary may be anything."""
    known = known if isinstance(known, Failure) else Failure.from_json(known)
    other = other if isinstance(other, Failure) else Failure.from_json(other)
    if other.seen > known.seen:
        known, other = other, known
    if known.ended.hang or other.ended.hang:
        both = known.ended.hang and other.ended.hang
        return Sameness(both, "both hang" if both else "one hangs, the other does not")
    if (known.told_by == WORKLOAD) != (other.told_by == WORKLOAD):
        named, seen = (known, other) if known.told_by == WORKLOAD else (other, known)
        if named.words:  # the process that ran it alone says them too
            said = all(_is_said(line, seen, named.seen) for line in named.words)
            return Sameness(said, f"{'the same' if said else 'other'} words of the workload")
    classes = {known.failure_class, other.failure_class}
    if classes & _OUT_OF_MEMORY:
        if len(classes) == 1:
            return Sameness(True, f"both are {known.failure_class}")
        return Sameness(False, f"{known.text} and {other.text}")
    if None not in classes and len(classes) > 1:
        return Sameness(False, f"{known.failure_class} and {other.failure_class}")
    if classes == {_DEVICE_ASSERT}:
        # A device reports it at a later call; what was asserted is in its words.
        if known.words and other.words and not set(known.words) & set(other.words):
            return Sameness(False, f"on the device {known.words[0]}, and {other.words[0]}")
        return Sameness(True, "both are an assertion that failed on a device")
    if known.causes and other.causes:
        return _same_causes(known, other)
    if known.causes or other.causes:
        return Sameness(False, f"{known.text} and {other.text}: one is an exception")
    return _same_words(known, other)


# -- exceptions ------------------------------------------------------------------------------------


def _same_causes(known: Failure, other: Failure) -> Sameness:
    """One must have every exception of the other; of several ranks, one in both is enough."""
    pairs = [
        (mine, theirs, _same_chain(mine, theirs, known.seen))
        for mine in known.causes
        for theirs in other.causes
    ]
    same = [(mine, theirs, found) for mine, theirs, found in pairs if found]
    if not same:
        return pairs[0][2]
    whole = len({mine for mine, _, _ in same}) == len(known.causes)
    whole = whole or len({theirs for _, theirs, _ in same}) == len(other.causes)
    of_ranks = any(cause.writer for cause in (*known.causes, *other.causes))
    if not whole and not of_ranks:
        return Sameness(False, "each has an exception that the other has not")
    if known.words and other.words and not _same_words(known, other):
        return Sameness(False, "the same exception, and other words beside it")
    return same[0][2]


def _same_chain(mine: Cause, theirs: Cause, seen: int) -> Sameness:
    """The shorter chain must stand in the longer one, in its order."""
    if len(mine.chain) <= len(theirs.chain):
        short, long = mine.chain, theirs.chain
    else:
        short, long = theirs.chain, mine.chain
    found, at = Sameness(False, ""), 0
    for raised in short:
        answers = [_same_raised(raised, one, seen) for one in long[at:]]
        hit = next((i for i, answer in enumerate(answers) if answer), None)
        if hit is None:
            return found if found and at == len(long) else (answers or [found])[0]
        found, at = answers[hit], at + hit + 1
    return found


def _same_raised(a: Raised, b: Raised, seen: int) -> Sameness:
    learned = seen > 1
    if not (covers(a.type, b.type) or covers(b.type, a.type)):
        return Sameness(False, f"{a.type} and {b.type}")
    near = _frames_alike(a, b)
    if near is None:
        return Sameness(False, f"raised in {_place(a)} and in {_place(b)}")
    elsewhere = "" not in {a.statement, b.statement} and a.statement != b.statement
    quotes_code = a.type in _QUOTE_CODE and BUILT_IN in {a.within, b.within}
    is_exact = quotes_code or a.type == "CalledProcessError"  # it says how a command ended
    if is_exact and a.message != b.message and not (learned and covers(a.message, b.message)):
        return Sameness(False, f"{a.type} with other words: {a.message!r} and {b.message!r}")
    if a.message == b.message or says_the_same(a.message, b.message, seen=seen):
        if elsewhere:
            return Sameness(False, f"two lines of {_place(a)} raised it")
        return Sameness(True, "same exception and frames")
    if (learned and a.message == ANYTHING) or (b.message == ANYTHING and learned):
        return Sameness(True, "same exception and frames; the message varies")
    alike = common(a.message, b.message) is not None and a.within == b.within
    # A library raises for many reasons from one place: words that did not vary are the reason.
    same_reason = (a.statement != "" and not a.within) or not learned
    if alike and near and not elsewhere and same_reason and a.frames:
        return Sameness(True, "same exception and frames; a part of the message varies")
    return Sameness(False, f"{a.type} with other words: {a.message!r} and {b.message!r}")


def _place(raised: Raised) -> str:
    return raised.frames[-1] if raised.frames else "no known place"


def _frames_alike(a: Raised, b: Raised) -> bool | None:
    """True where all frames that both show are the same, False where the two innermost are, None
    where not even those. A helper that raises for many causes is told by who called it; a stack
    runs out wherever the next call stands, among those that recur.
    """
    if a.type == b.type == RECURSION:
        return True if set(a.frames) & set(b.frames) or not (a.frames and b.frames) else None
    shown = min(len(a.frames), len(b.frames))
    pairs = list(zip(a.frames[::-1][:shown], b.frames[::-1][:shown], strict=True))
    alike = [covers(one, other) or covers(other, one) for one, other in pairs]
    if not all(alike[:2]):
        return None
    return all(alike[:3])


# -- words -----------------------------------------------------------------------------------------


def _same_words(known: Failure, other: Failure) -> Sameness:
    named = {known.told_by, other.told_by} - {""}
    if not known.ended.is_like(other.ended) or len(named) > 1:
        return Sameness(False, f"{known.text} and {other.text}")
    known, other = known.without(other.harmless), other.without(known.harmless)
    mine = [line for line in known.words if not _is_said(line, other, known.seen)]
    said = (*known.words, *known.said)
    theirs = [
        line
        for line in other.words
        if not any(says_the_same(one, line, seen=known.seen) for one in said)
    ]
    if not known.words and not other.words:
        return Sameness(True, "both end so and say nothing")
    if known.words and not mine:
        return Sameness(True, "same end and same words")
    errors = [line for line in known.words if is_error(line)]
    unsaid = errors and all(line in mine for line in errors)
    if other.words and not theirs and known.words and not unsaid:
        return Sameness(True, "same end and same last words")
    by_signal = known.ended.signal is not None and known.ended.signal == other.ended.signal
    if by_signal and not any(map(is_error, (*mine, *theirs))):
        return Sameness(True, f"both died by {known.ended.text}")
    return Sameness(False, f"other words: {known.headline!r} and {other.headline!r}")


def _is_said(line: str, other: Failure, seen: int) -> bool:
    return any(says_the_same(line, one, seen=seen) for one in (*other.words, *other.said))


# -- learning: what differs between two failures of one configuration is an accident ---------------


def learned(one: Failure, two: Failure) -> Failure | None:
    """What two failures of one configuration share, with slots for the rest; None if too little."""
    if (one.told_by == WORKLOAD) != (two.told_by == WORKLOAD):
        return one if same_failure(one, two) else None  # a process's words are its own
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
    frames, same_place = a.frames, _frames_alike(a, b) is not None
    message = common(a.message, b.message)
    if not same_place:
        # raised in many places with the same words
        frames = tuple(frame for frame in a.frames if frame in b.frames)
        if not says_the_same(a.message, b.message) or not words_in(a.message):
            return None
    if message is None:
        own = a.statement and a.statement == b.statement and a.within in {"", BUILT_IN}
        if not (same_place and own):
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
