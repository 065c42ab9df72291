"""From a cause to the finding: how sure it is, who shares it, who followed, and the lines that show
it.
"""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import replace
from importlib import resources

from aorta.attribution.causes import find_cause, with_told_ends
from aorta.attribution.decision import MISTAKES, SURE, stops_at_first
from aorta.attribution.events import Event
from aorta.attribution.exceptions import OF_THE_PROGRAM
from aorta.attribution.external import is_outside
from aorta.attribution.facts import Facts, FoundCause, ReadCloser
from aorta.attribution.last_words import states_a_failure
from aorta.attribution.meaning import speaks_of
from aorta.attribution.nouns import Advice, Cascade, EvidenceLine, Finding, Root
from aorta.attribution.rank_end import RankEnd
from aorta.attribution.reading import ReadableLog, line_numbers
from aorta.attribution.registry import dialect_of
from aorta.attribution.taxonomy import Certainty, FailureClass, Role
from aorta.attribution.word_model import Guess, Said, WordModel, fitted_model, said_by
from aorta.core.failure import digest_of

# How often such findings were right at the first look at failures no rule had seen (`python -m
# benchmarks attribution`).
FITTED: dict[str, dict[str, float]] = tomllib.loads(
    resources.files("aorta.attribution").joinpath("confidence.toml").read_text(encoding="utf-8")
)
_DEMAND = re.compile(
    r"Tried to allocate (?P<wanted>[\d.]+ [KMGTP]?i?B).*? total capacity of (?P<total>[\d.]+ [KMGTP]?i?B)"
)
_FIRST_USE = re.compile(r"when calling `cu(?:blas|dnn)Create\(")
_BUILDING = re.compile(
    r":(?:from_pretrained|_?build_\w+|get_model|setup_model\w*|model_provider|init_model\w*|"
    r"_wrap_model|prepare_model|"
    r"_move_model_to_device|to_empty|_load_pretrained_model|initialize_model|load_model|"
    r"_configure_distributed_model|"
    r"init_\w+|profile_run|determine_num_available_blocks|_initialize_kv_caches?|"
    r"create_model)(?: > |$)"
)
_STEPPING = re.compile(
    r":(?:train_step|training_step|_training_step|train_one_epoch|backward|forward_backward_func|"
    r"_inner_training_loop|optimizer_step|"
    r"train_batch|train_epoch|run_step)(?: > |$)"
)
HOW_IT_SHOWS = {FailureClass.ABORT, FailureClass.ASSERTION, FailureClass.USER_EXCEPTION}
_SAYS_NOTHING = {*HOW_IT_SHOWS, FailureClass.UNKNOWN}
# What words alone never stop a job for: another node or another hour may not show it.
_NOT_ITS_OWN = ("passing", "device", "kernel", "credential", "peer")
_NOT_SPOKEN_AGAINST = 0.5
_SPEECH = re.compile(r"[a-z]{2,}")  # closing brackets say nothing
_LAST_FEW = 5  # lines after which nobody died of what stands before them
NAMES_FROM = 0.3  # what the word model gives a class that it names against a row
BANDS = (99, 97, 95, 90, 80, 70, 60, 50, 40, 30, 20, 0)  # per cent
OUTLIVED = 3.0  # seconds: on a busy host ranks come to the same line that far apart


def conclude(facts: Facts, words: WordModel | None = None) -> Finding:
    """The finding; `words` is the word model to ask instead of the one in the package, which is
    read when it is needed. One without words is not asked.
    """
    facts = replace(facts, failures=with_told_ends(facts))
    cause, rivals = find_cause(facts)
    surer = _surer(cause, rivals, facts)
    confidence = min(0.99, _share(cause) + surer)
    mistake = min(0.99, FITTED["stops"].get(_basis(cause)[1], 0.0) + surer)
    is_read = _says_little(cause) and (words is None or words.columns)
    spoken = _said(cause, facts) if is_read else None
    if spoken is not None and speaks_of_a_failure(spoken):
        guess = (words or fitted_model()).guess(spoken)
        stops = surer >= 0 and may_stop(spoken, cause.failure_class)
        mistake = met_again(guess) if stops else 0.0
        row = (cause.failure_class, ".".join(_basis(cause)), _share(cause))
        closer = read_closer(*row, guess, bool(spoken.kind), is_mistake=mistake >= SURE)
        cause = replace(cause, failure_class=closer.failure_class, closer=closer)
        most = SURE - 0.05 if cause.events and cause.events[0].survived else 0.99
        confidence = min(most, _share(cause) + min(0.0, surer))
    suspects = cause.ranks or ((cause.rank,) if cause.rank is not None else ())
    root = _root(cause, facts)
    return Finding(
        failure_class=cause.failure_class,
        confidence=round(confidence, 2),
        root=root,
        suspect_ranks=tuple(sorted(suspects)) or ((root.rank,) if root.rank is not None else ()),
        fingerprint=digest_of(f"{cause.failure_class} | {cause.signature}"),
        summary=_summary(cause),
        first_step=facts.progress.first,
        last_step=facts.progress.last,
        evidence=_evidence(cause, facts),
        cascade=_cascades(facts, set(suspects)),
        advice=_advice(cause),
        one_node_of=_one_node_of(suspects, cause, facts),
        some_ranks_of=_some_ranks_of(suspects, facts),
        before_first_step=_is_before_first_step(cause, facts),
        made_steps=facts.progress.made,
        mistake=mistake,
        basis=".".join(_basis(cause)),
    )


def said(facts: Facts) -> Said:
    """What the cause says, whoever names it."""
    return _said(find_cause(replace(facts, failures=with_told_ends(facts)))[0], facts)


def _said(cause: FoundCause, facts: Facts) -> Said:
    """Where only the end of a rank is known, what its own logs say."""
    own = [log for log in facts.logs if cause.rank is not None and log.rank == cause.rank]
    return said_by(cause.events[0] if cause.events else None, own or facts.logs, cause.rank)


def speaks_of_a_failure(said: Said) -> bool:
    """Whether there is anything to be read: a message, or a statement among the last few lines.
    Types that blame the program say all.
    """
    if said.kind:
        return OF_THE_PROGRAM.match(said.kind) is None
    last = [line for line in said.around if _SPEECH.search(line)][-_LAST_FEW:]
    return bool(said.message) or any(map(states_a_failure, last))


def _says_little(cause: FoundCause) -> bool:
    """Whether no row is sure of it, or the row tells only how it showed."""
    sure = cause.certainty is Certainty.CERTAIN
    only_shows = cause.failure_class in HOW_IT_SHOWS and not sure
    return cause.certainty is Certainty.WEAK or cause.unexplained or only_shows


def read_closer(
    failure_class: FailureClass,
    basis: str,
    share: float,
    guess: Guess,
    raised: bool,
    *,
    is_mistake: bool,
) -> ReadCloser:
    """The class after its words were read, too. Two that agree are surer than one.

    Where both name a class, the row was right more often on failures of other collectors than the
    words had been fitted on; words name what rows know nothing of or have read as a sentence only,
    and, where they are surer, what a row tells no more of than how it showed.
    """
    knows_nothing = basis.endswith(".nothing") or basis.startswith("sentences.")
    unsure = guess.share < max(share, NAMES_FROM) and not is_mistake
    if guess.failure_class is failure_class:
        kind = "agreed"
    elif not knows_nothing and (failure_class not in _SAYS_NOTHING or unsure):
        kind = "doubted"
    else:
        kind = "words" if raised else "last_lines"
    named = failure_class if kind == "doubted" else guess.failure_class
    return ReadCloser(named, band_of(guess.share), kind)


def met_again(guess: Guess) -> float:
    """How often what reads so was met again after a restart: by the words' share for that, or by
    that of all classes of mistakes, where the first does not speak against it."""
    by_itself = FITTED["mistake"][band_of(guess.mistake)]
    if guess.mistake < _NOT_SPOKEN_AGAINST:
        return by_itself
    return max(by_itself, FITTED["mistakes"][band_of(guess.mistakes)])


def may_stop(said: Said, failure_class: FailureClass) -> bool:
    """Whether words alone may end a job: those of an exception, of nothing that comes and goes or
    is another's, and no row reads an accident in them.
    """
    accident = failure_class not in _SAYS_NOTHING and failure_class not in MISTAKES
    text = f"{said.message} {said.later}"
    of_others = any(speaks_of(text, word) for word in _NOT_ITS_OWN)
    return bool(said.kind) and not accident and not of_others


def band_of(share: float) -> str:
    """Where a share that the word model states stands in the table of what such shares were
    worth.
    """
    return f"p{next(low for low in BANDS if share >= low / 100):02d}"


def _root(cause: FoundCause, facts: Facts) -> Root:
    """Who began it. Where its lines do not say who wrote them, the first of whom the launcher says
    that he failed by himself.
    """
    end = next((end for end in facts.failures if end.rank == cause.rank), None)
    if cause.rank is None:
        end = _first_to_fail(cause, facts)
    rank = cause.rank if end is None else end.rank
    node = cause.node or (facts.nodes.get(rank) if rank is not None else None)
    if end is None:
        return Root(rank, node, cause.device)
    return Root(rank, node or end.node, cause.device or end.device)


def _first_to_fail(cause: FoundCause, facts: Facts) -> RankEnd | None:
    if not cause.events or is_outside(cause.events[0]):
        return None
    line = cause.events[0]
    if line.source.rank is not None or line.stream:
        return None
    fits = [
        end
        for end in facts.reading.ends
        if end.failed
        and not end.ended_by_launcher
        and (end.fits_an_exception if line.is_exception else end.fits(line.failure_class))
    ]
    return fits[0] if fits else None


def _basis(cause: FoundCause) -> tuple[str, str]:
    """The dialect of the line it rests on, or `ends` where only an end is known; and how sure that
    is.
    """
    if cause.closer is not None:
        return cause.closer.band, cause.closer.kind
    if cause.unexplained:
        return "ends", "nothing"
    dialect = dialect_of(cause.events[0].pattern) if cause.events else "ends"
    return dialect or "own", cause.certainty.value


def _is_before_first_step(cause: FoundCause, facts: Facts) -> bool:
    """Whether it is seen that no step had been made: by a count at zero, by what was being built,
    or by a demand that can never be met.
    """
    if facts.progress.made or not cause.events:
        return False
    event = cause.events[0]
    if facts.progress.at_zero or _FIRST_USE.search(event.text):
        return True
    demand = _DEMAND.search(event.text)
    ended = any(failure.rank == cause.rank for failure in facts.failures)
    if demand is not None and ended and _bytes(demand["wanted"]) > _bytes(demand["total"]):
        return True  # where its end is not known, the log may be torn, and its steps with it
    return bool(_BUILDING.search(event.stack)) and not _STEPPING.search(event.stack)


def _bytes(told: str) -> float:
    number, unit = told.split()
    return float(number) * 1024.0 ** "BKMGTP".index(unit[0])


def _share(cause: FoundCause) -> float:
    """How often such findings were right."""
    dialect, kind = _basis(cause)
    fitted = FITTED[fitted_as(kind, cause.failure_class)]
    return fitted[dialect] if dialect in fitted else fitted["overall"]


def _surer(cause: FoundCause, rivals: int, facts: Facts) -> float:
    """What is added where an exit code stands beside it, and taken away where other causes do or
    the program went on.
    """
    if cause.unexplained:
        return 0.0
    has_end = bool(cause.events) and any(f.rank == cause.rank for f in facts.failures)
    survived = bool(cause.events) and cause.events[0].survived
    return 0.03 * has_end - 0.1 * bool(rivals) - 0.1 * survived


def fitted_as(kind: str, failure_class: FailureClass) -> str:
    """Where its share stands in the table: likely rows are right far more often where they name a
    mistake than where an accident.
    """
    return "likely_mistake" if kind == "likely" and stops_at_first(failure_class) else kind


def _summary(cause: FoundCause) -> str:
    who = "" if cause.rank is None or cause.words.startswith("rank ") else f"rank {cause.rank}: "
    return f"{who}{cause.failure_class}: {cause.words}"[:300]


def _evidence(cause: FoundCause, facts: Facts) -> tuple[EvidenceLine, ...]:
    followers = [s for s in facts.reading.events if s.role in {Role.CASCADE, Role.WAITING}]
    chosen: dict[tuple[str, int], Event] = {}
    for event in [*cause.events[:4], *followers[:3]]:
        chosen.setdefault((event.source.name, event.offset), event)
    offsets: dict[ReadableLog, set[int]] = {}
    for event in chosen.values():
        offsets.setdefault(event.source, set()).add(event.offset)
    numbers = {source: line_numbers(source, own) for source, own in offsets.items()}
    return tuple(
        EvidenceLine(event.source.name, numbers[event.source][event.offset], event.text)
        for event in chosen.values()
    )


def _cascades(facts: Facts, suspects: set[int]) -> tuple[Cascade, ...]:
    followers: dict[FailureClass, set[int]] = {}
    for event in facts.reading.events:
        if (
            event.role in {Role.CASCADE, Role.WAITING}
            and event.rank is not None
            and event.rank not in suspects
        ):
            followers.setdefault(event.failure_class, set()).add(event.rank)
    for failure in facts.failures:
        told = any(failure.rank in ranks for ranks in followers.values())
        if failure.was_asked_to_stop and failure.rank not in suspects and not told:
            followers.setdefault(FailureClass.KILLED, set()).add(failure.rank)
    return tuple(Cascade(kind, tuple(sorted(ranks))) for kind, ranks in followers.items())


def _advice(cause: FoundCause) -> tuple[Advice, ...]:
    own = (event for event in cause.events if event.failure_class is cause.failure_class)
    told = next((event.advice for event in own if event.advice), None)
    return (Advice(*told),) if told else ()


def _one_node_of(suspects: Iterable[int | None], cause: FoundCause, facts: Facts) -> int | None:
    """How many nodes there are, if one alone shows the failure and another came past it or was
    never heard.
    """
    nodes = set(facts.nodes.values())
    guilty_ranks = {rank for rank in suspects if rank is not None}
    guilty = {facts.nodes[rank] for rank in guilty_ranks if rank in facts.nodes}
    if not guilty_ranks:
        return _one_place_of(cause, facts)
    if len(guilty) != 1 or len(nodes) < 2:
        return None
    elsewhere = {facts.nodes.get(rank) for rank in _elsewhere(guilty_ranks, facts)}
    return len(nodes) if elsewhere - guilty - {None} else None


def _one_place_of(cause: FoundCause, facts: Facts) -> int | None:
    """The same where no rank is known: by the hosts or pods whose lines show the failure, and whose
    lines show that they came past it.
    """
    shown = [
        e
        for e in facts.reading.events
        if e.failure_class is cause.failure_class and e.role is Role.ROOT
    ]
    guilty = {event.node for event in shown if event.node}
    followers = {
        e.node for e in facts.reading.events if e.role in {Role.CASCADE, Role.WAITING} and e.node
    }
    others = followers - guilty
    return len(guilty | others) if len(guilty) == 1 and others else None


def _some_ranks_of(suspects: Iterable[int | None], facts: Facts) -> int | None:
    """How many ranks there are, if some show the failure and no other can be counted as showing it
    too.
    """
    guilty = {rank for rank in suspects if rank is not None}
    known = {failure.rank for failure in facts.failures} | set(facts.ranks)
    others = (set(range(max(known, default=0) + 1)) | known) - guilty
    if not guilty or not others:
        return None
    return len(guilty | others) if others <= _elsewhere(guilty, facts) else None


def _elsewhere(guilty: set[int], facts: Facts) -> set[int]:
    """Ranks that came past what stopped these, or of which nothing is known that would say
    otherwise.

    A rank that its launcher ended in the same moment is not among them: it had no time to show the
    same.
    """
    followers = {s.rank for s in facts.reading.events if s.role in {Role.CASCADE, Role.WAITING}}
    ended = {failure.rank: failure for failure in facts.failures}
    unheard = {
        other
        for other in range(max([*guilty, *facts.ranks]) + 1)
        if facts.heard is not None
        and other not in facts.heard
        and not (_is_silent(other, facts, ended) and _had_no_time(ended.get(other), guilty, ended))
    }
    finished = {other for other, failure in ended.items() if failure.exit_code == 0}
    past = followers | facts.progress.ranks | unheard | finished | _outlived(guilty, facts)
    return {other for other in past if other is not None}


def _is_silent(rank: int, facts: Facts, ended: dict[int, RankEnd]) -> bool:
    """Whether it wrote nothing, or nobody but its launcher tells of it."""
    return rank in facts.empty or (rank in ended and ended[rank].ended_by_launcher)


def _had_no_time(end: RankEnd | None, guilty: set[int], ended: dict[int, RankEnd]) -> bool:
    """Whether its launcher ended it in the moment the others failed, or it failed with them in
    silence.
    """
    if end is None or not end.failed:
        return False
    times = [ended[rank].time for rank in guilty if rank in ended]
    first = min((time for time in times if time is not None), default=None)
    return end.time is None or first is None or end.time - first <= OUTLIVED


def _outlived(guilty: set[int], facts: Facts) -> set[int]:
    """Ranks that lived on so long after these had died that they must have come past it."""
    times = {f.rank: f.time for f in facts.failures if f.time is not None}
    died = max((times[rank] for rank in guilty if rank in times), default=None)
    if died is None:
        return set()
    return {rank for rank, moment in times.items() if moment - died > OUTLIVED}
