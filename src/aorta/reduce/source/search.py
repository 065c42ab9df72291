"""Which candidate next? Ask/tell over the passes; the same verdicts lead to the same questions."""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from aorta.core.axis import Point, Value
from aorta.core.trial import Verdict
from aorta.reduce.source import passes
from aorta.reduce.source.calls import calls_inlined
from aorta.reduce.source.program import Pass, Program, TraceFacts, candidates, must_hold
from aorta.reduce.source.tree import count_lines

AXIS = "source"
MOST_CANDIDATES = 360
SHORT = 30  # lines: a script that a reader takes in at once
LONG = 80  # lines: more than can be made short statement by statement


_SMALL: tuple[Pass, ...] = (
    passes.without_effect,
    passes.unwrapped,
    calls_inlined,
    passes.configurations_as_seen,
    passes.results_left_out,
    passes.statements_left_out,
)
# Each is gone through once, while the program has more lines than are said here.
ROUNDS: tuple[tuple[int, tuple[Pass, ...]], ...] = (
    (0, (passes.never_executed, passes.in_one_process)),
    (LONG, (passes.from_inside,)),
    (0, (*_SMALL, passes.parts_left_out)),
    (SHORT, (passes.from_inside, passes.values_as_seen, *_SMALL)),
    (0, (*_SMALL, passes.parts_left_out, passes.modules_as_identity, passes.integers_smaller)),
)


@dataclass(frozen=True)
class Candidate:
    """A program as one text, and the user's files that lie beside it."""

    text: str
    beside: tuple[str, ...] = ()
    edit: str = ""

    @property
    def digest(self) -> str:
        whole = "\0".join([self.text, *self.beside])
        return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(eq=False)
class SourceSearch:
    """First the ways to make one file, then, from the first that fails, ever smaller ones.

    `facts_of` brings what the run of an accepted candidate showed, `content_of` the text of a small
    file; `holds_cause` says whether a text holds what a known fix changes: where the first one
    does, all must; `others` is what the other axes are at.
    """

    source: Iterator[Candidate]  # of what comes next
    facts_of: Callable[[Candidate], TraceFacts]
    content_of: Callable[[str], str | None]
    holds_cause: Callable[[str], bool]
    others: Mapping[str, Value]
    known: dict[str, Candidate] = field(default_factory=dict)  # by digest
    accepted: list[Candidate] = field(default_factory=list)
    _recorded: set[str] = field(default_factory=set)  # digests
    _refused: set[str] = field(default_factory=set)  # edits, in this round
    _round: int = 0
    # That is seen to fail.
    _first: Program = field(default_factory=lambda: Program("", TraceFacts()))
    _waiting: list[Candidate] = field(default_factory=list)
    _found: Candidate | None = None  # that fails too, while others are still waited for
    _is_over: bool = False

    def __post_init__(self) -> None:
        self._fill(1)

    # -- the contract of a search

    def ask(self, n: int, pending: Collection[Point] = ()) -> list[Point]:
        self._fill(n + len(pending))
        points = [self._point(candidate) for candidate in self._waiting]
        return [point for point in points if point not in pending][:n]

    def tell(self, point: Point, verdict: Verdict) -> None:
        digest = str(point[AXIS])
        self._recorded.add(digest)
        at = next((n for n, one in enumerate(self._waiting) if one.digest == digest), None)
        if at is None:
            return
        if verdict.reproduces:
            # What was asked before it saves more: it is taken if none of those fails.
            self._found, self._waiting = self._waiting[at], self._waiting[:at]
        else:
            self._refused.add(self._waiting.pop(at).edit)
        if self._found is not None and not self._waiting:
            self._adopt(self._found)
        self._fill(1)

    def wants(self, point: Point) -> bool:
        return any(self._point(candidate) == point for candidate in self._waiting)

    @property
    def done(self) -> bool:
        return not self._waiting

    @property
    def best(self) -> Point | None:
        return self._point(self.accepted[-1]) if self.accepted else None

    def _point(self, candidate: Candidate) -> Point:
        return Point.of({**self.others, AXIS: candidate.digest})

    # -- what comes next

    def _adopt(self, candidate: Candidate) -> None:
        if not self._first.facts.frames:
            self._first = must_hold(Program(candidate.text, self.facts_of(candidate)))
        self.accepted.append(candidate)
        self._found = None
        self.source = self._smaller(candidate)

    def _smaller(self, best: Candidate) -> Iterator[Candidate]:
        facts = self.facts_of(best)
        read = {*facts.opened, *(module.file for module in facts.modules)}
        needed = tuple(name for name in best.beside if name in read)
        if facts.modules and needed != best.beside:
            yield Candidate(best.text, needed, f"with {', '.join(needed)} alone")
        for name in best.beside:
            left = tuple(other for other in best.beside if other != name)
            content = self.content_of(name)
            texts = passes.files_as_texts(best.text, content) if content is not None else ()
            for number, text in enumerate(texts):
                yield Candidate(text, left, f"{name} as text {number}")
        over, steps = ROUNDS[self._round]
        if count_lines(best.text) > over:
            program = replace(self._first, text=best.text, facts=facts)
            for key, text in candidates(program, steps, self._refused):
                yield Candidate(text, best.beside, key)

    def _fill(self, count: int) -> None:
        """Look ahead until so many questions are wanted."""
        while len(self._waiting) < count and not self._is_over and self._found is None:
            candidate = next(self.source, None)
            if len(self._recorded) + len(self._waiting) >= MOST_CANDIDATES:
                self._is_over = True
            elif candidate is None:
                if self._waiting:
                    return
                self._round, self._refused = self._round + 1, set()
                self._is_over = not self.accepted or self._round >= len(ROUNDS)
                if not self._is_over:
                    self.source = self._smaller(self.accepted[-1])
            elif self._is_new(candidate):
                self.known[candidate.digest] = candidate
                self._waiting.append(candidate)

    def _is_new(self, candidate: Candidate) -> bool:
        refused = bool(candidate.edit) and candidate.edit in self._refused
        known = self._recorded.union(one.digest for one in self._waiting)
        if refused or candidate.digest in known:
            return False
        loses = self.accepted and self.holds_cause(self.accepted[0].text)
        return not (loses and not self.holds_cause(candidate.text))
