"""The days of a container family between which it broke: back in growing steps, then bisection."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aorta.bisect.containers.build import shown_side
from aorta.bisect.containers.image import command_inside, plugin_words
from aorta.bisect.findings import Findings, counted, exit_code, good_and_bad_seen
from aorta.bisect.run import BisectRun
from aorta.bisect.spec import JAX_URL_TEMPLATE, ContainersSpec, day
from aorta.bisect.trials import ProbedCommand
from aorta.core.axis import Point
from aorta.core.errors import NoAnswerError, UsageError
from aorta.core.oracle import Deciding
from aorta.core.stats import counted as counted_words
from aorta.core.trial import LOCAL, Environment, Outcome, TrialSpec
from aorta.engine.events import Listener, Reason
from aorta.engine.question import Answer
from aorta.runtimes.image_registry import ImageRepository, list_tags, split_reference
from aorta.search.bisection import BisectionSettings, Candidates
from aorta.search.gallop import GallopBack, GallopVerdict

AXIS = "container"
STAGE = "containers"

_VERDICTS = {
    GallopVerdict.DOES_NOT_FAIL: ("did_not_reproduce", "the newest container does not fail"),
    GallopVerdict.UNTESTABLE: ("did_not_reproduce", "the newest container cannot be tested"),
    GallopVerdict.NEVER_GOOD: ("never_good", ""),
    GallopVerdict.OPEN: ("partial", "stopped while looking for a container that passes"),
}


Family = Mapping[str, str]
"""The images of a family by their day, oldest first."""


@dataclass(frozen=True)
class ContainerPair:
    """The containers on both sides of the break; one may be unknown where versions are given."""

    passing: str | None
    failing: str | None
    confidence: float | None = None
    names: tuple[str, str] | None = None
    seen: Mapping[str, Any] = field(default_factory=dict)  # the failures of both, and their rates

    @property
    def document(self) -> dict[str, str | None]:
        return {"last_good": self.passing, "first_bad": self.failing}


def between_days(
    run: BisectRun, environment: Environment, containers: ContainersSpec, family: Family
) -> ContainerPair | Findings:
    search = _search(run, containers, family)
    run.image_of = family.__getitem__
    command = command_inside(run.command(), environment)
    experiment = ContainersExperiment(command, family, plugin=containers.plugin)
    listeners: list[Listener] = []
    if run.metric:
        run.metric.take_samples()
        listeners.append(run.metric.listen)
    answer = run.drive(STAGE, search, experiment, listeners, run.metric)
    interval = search.bisection.answer if search.bisection else None
    if interval is None or run.interrupted:
        return _unfinished(run, environment, search, answer, family)
    good, bad = _good_and_bad_in(family, interval)
    run.say(f"the containers of {good} and {bad} differ ({interval.mass:.1%})")
    seen = good_and_bad_seen(search)
    return ContainerPair(family[good], family[bad], interval.mass, (good, bad), seen)


def shown_containers(
    run: BisectRun, environment: Environment, good: str | None, bad: str | None
) -> dict[str, str | None]:
    """The test in two images as they are."""
    containers = run.request.spec.containers or ContainersSpec()
    command = command_inside(run.command(), environment)
    sides = {"good": good, "bad": bad}
    return {side: image and shown_side(containers, image, command) for side, image in sides.items()}


def _search(run: BisectRun, containers: ContainersSpec, family: Family) -> GallopBack:
    spec = run.request.spec
    skip = spec.skip_precondition_checks
    days = containers.threshold_days

    def close_enough(found: Candidates) -> bool:
        good, bad = _good_and_bad_in(family, found)
        return (day(bad) - day(good)).days <= days

    return GallopBack(
        AXIS,
        list(family),
        [float(day(text).toordinal()) for text in family],
        first=float(day(containers.start_date).toordinal()) if containers.start_date else None,
        settings=BisectionSettings(
            confidence=spec.confidence,
            confirmations=spec.confirmations,
            # A day is as near as two containers can be: without a threshold, go on until sure.
            close_enough=close_enough if days > 1 else None,
        ),
        known_bad=skip and containers.end_date is not None,
        known_good=skip and containers.start_date is not None,
    )


def _unfinished(
    run: BisectRun, environment: Environment, search: GallopBack, answer: Answer, family: Family
) -> Findings:
    """No two days: why not, or between which days it was when it was stopped."""
    status, words = _VERDICTS.get(search.verdict, ("partial", "stopped between two days"))
    if answer.ending.reason is Reason.INFRASTRUCTURE:
        status = "partial"
    if search.verdict is GallopVerdict.NEVER_GOOD:
        words = _what_fails(search, answer)
    elif status == "partial":
        words += f": {answer.ending.detail}"
    elif search.verdict is GallopVerdict.UNTESTABLE and answer.records:
        words += f": {answer.records[-1].why}"
    interval = search.bisection.answer if search.bisection else None
    good, bad = _good_and_bad_in(family, interval) if interval else (None, search.names[-1])
    findings = Findings(
        status=status,
        warnings=[words],
        **counted([answer]),
        **good_and_bad_seen(search),
        reproduce=shown_containers(run, environment, good and family[good], family[bad]),
        exit_code=exit_code(status, [answer]),
    )
    if interval is None or good is None:
        return findings
    known = {"last_good": family[good], "first_bad": family[bad]}
    mass = round(interval.mass, 4)
    sides = replace(findings, good={AXIS: good}, bad={AXIS: bad})
    return replace(sides, containers=known, confidence=mass)


def _what_fails(search: GallopBack, answer: Answer) -> str:
    """Steps back grow: containers that pass may lie between those that were tried."""
    fails = {str(r.point[AXIS]) for r in answer.records if r.outcome is Outcome.REPRODUCED}
    named, total = ", ".join(sorted(fails)) or "none", len(search.names)
    if len(fails) == total:
        return f"each of the {total} containers fails: {named}"
    others = "the others may pass: --start-date names one to begin with"
    return f"of {total} containers these were seen to fail: {named}; {others}"


def _good_and_bad_in(family: Family, found: Candidates) -> tuple[str, str]:
    """The last good day and the first bad one; the first state is older than all of them."""
    days = list(family)
    return days[found.good[0] - 1], days[found.bad[0] - 1]


@dataclass(frozen=True)
class ContainersExperiment:
    """The same command in one image after the other."""

    test: ProbedCommand
    family: Family
    plugin: bool

    @property
    def oracle(self) -> Deciding:
        return self.test.oracle

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        image = self.family[str(point[AXIS])]
        if self.plugin:
            trial = self.test.trial(trial_dir, LOCAL)
            return replace(trial, argv=(*trial.argv, *plugin_words(image, trial_dir.absolute())))
        return self.test.trial(trial_dir, replace(self.test.environment, image=image))


_DATE = r"(?P<date>\d{4}-\d{2}-\d{2})"


def family_of(spec: ContainersSpec) -> Family:
    """Every image of the family up to the end date, as the registry lists them."""
    template = spec.url_template or JAX_URL_TEMPLATE
    reference = template.replace("{container}", spec.family or "")
    name, tag = split_reference(reference)
    pattern = re.compile(re.escape(tag).replace(re.escape("{date}"), _DATE) + r"\Z")
    found = (pattern.match(listed) for listed in list_tags(ImageRepository.of(name)))
    days = sorted({match["date"] for match in found if match and _is_day(match["date"])})
    until = spec.end_date
    if until and until not in days:
        raise _no_container(until, days, name)
    images = {
        text: reference.replace("{date}", text) for text in days if not until or text <= until
    }
    if len(images) < 2:
        limit = f" up to {until}" if until else ""
        raise NoAnswerError(
            f"the registry lists {counted_words(len(images), 'container')} like {tag}{limit}; "
            "two are needed",
            where=name,
        )
    return images


def _no_container(wanted: str, days: Sequence[str], where: str) -> UsageError:
    """The end fails, as is said of that very day: none beside it is taken for it."""
    around = [[text for text in days if text < wanted][-1:], [t for t in days if t > wanted][:1]]
    near = " and ".join(text for side in around for text in side)
    words = f"; the nearest are {near}" if near else ""
    return UsageError(f"--end-date: there is no container of {wanted}{words}", where=where)


def _is_day(text: str) -> bool:
    with suppress(ValueError):
        return bool(day(text))
    return False
