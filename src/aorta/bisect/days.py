"""The days of a container family between which it broke: back in growing steps, then bisection.

What earlier runs found out about an image is used again: by its digest, which the registry tells without a pull, since
a tag may be moved.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from aorta.bisect.building import Order
from aorta.bisect.cache import OutcomeCache
from aorta.bisect.dated import Family, family_of
from aorta.bisect.experiment import ContainersExperiment
from aorta.bisect.findings import Findings, exit_code
from aorta.bisect.hidden import Sides
from aorta.bisect.oci import is_gone
from aorta.bisect.place import command_inside, digest_in, is_at_hand
from aorta.bisect.presets import JAX_URL_TEMPLATE
from aorta.bisect.spec import ContainersSpec, day
from aorta.bisect.verb import Run
from aorta.core.point import Point
from aorta.core.trial import LOCAL, Environment, TrialSpec
from aorta.engine import events
from aorta.engine.events import Event, Listener
from aorta.engine.question import Answer
from aorta.engine.rundir import PRIVATE, fresh_dir, write_atomically
from aorta.search.bisection import Settings
from aorta.search.gallop import GallopBack, GallopVerdict
from aorta.search.interval import Interval
from aorta.search.remembered import Remembered

AXIS = "container"
STAGE = "containers"

_VERDICTS = {
    GallopVerdict.DOES_NOT_FAIL: ("did_not_reproduce", "the newest container does not fail"),
    GallopVerdict.UNTESTABLE: ("did_not_reproduce", "the newest container cannot be tested"),
    GallopVerdict.NEVER_GOOD: ("never_good", "every container that exists fails"),
    GallopVerdict.OPEN: ("partial", "stopped while looking for a container that passes"),
}


def family_in(containers: ContainersSpec) -> Family:
    return family_of(containers, containers.url_template or JAX_URL_TEMPLATE)


def between_days(
    run: Run, environment: Environment, containers: ContainersSpec, family: Family
) -> Sides | Findings:
    search = _search(run, containers, family)
    command = command_inside(run.command(), environment, None)
    experiment = ContainersExperiment(command, lambda name: family.images[name], AXIS)
    earlier = EarlierOutcomes(
        run.stages.stage_path(STAGE) / PRIVATE / "known.json",
        lambda name: digest_in(replace(environment, image=family.images[name])),
        run.cache_of_image,
    )
    remembered = Remembered(search, earlier.of)
    listeners: list[Listener] = [earlier.keep]
    if run.metric:
        run.metric.take_samples()
        listeners.append(run.metric.listen)
    images = DayImages(run.stages.stage_path(STAGE) / PRIVATE / "gone")
    answer = run.stages.drive(STAGE, remembered, experiment, images, listeners, run.metric)
    interval = search.bisection.answer if search.bisection else None
    if interval is None or run.stages.interrupted:
        findings = _unfinished(search, answer, family, interval)
        findings.cached = remembered.used
        return findings
    good, bad = _names(interval)
    run.say(f"the containers of {good} and {bad} differ ({interval.mass:.1%})")
    return Sides(
        family.images[good], family.images[bad], interval.mass, (good, bad), remembered.used
    )


def _search(run: Run, containers: ContainersSpec, family: Family) -> GallopBack:
    spec = run.request.spec
    skip = spec.skip_precondition_checks
    return GallopBack(
        AXIS,
        family.days,
        family.ordinals,
        first=float(day(containers.start_date).toordinal()) if containers.start_date else None,
        settings=Settings(
            confidence=spec.confidence, close_enough=_within(containers.threshold_days)
        ),
        known_bad=skip and containers.end_date is not None,
        known_good=skip and containers.start_date is not None,
    )


def _unfinished(
    search: GallopBack, answer: Answer, family: Family, interval: Interval | None
) -> Findings:
    """No two days: why not, or between which days it was when it was stopped."""
    status, words = _VERDICTS.get(search.verdict, ("partial", "stopped between two days"))
    if status == "partial":
        words += f": {answer.ending.detail}"
    elif search.verdict is GallopVerdict.UNTESTABLE and answer.records:
        words += f": {answer.records[-1].why}"
    findings = Findings(status=status, warnings=[words])
    if interval is not None:
        good, bad = _names(interval)
        findings.good, findings.bad = {AXIS: good}, {AXIS: bad}
        findings.containers = {"last_good": family.images[good], "first_bad": family.images[bad]}
        findings.confidence = round(interval.mass, 4)
    findings.tests = len(answer.records)
    findings.builds = len({record.point.config_key for record in answer.records})
    findings.exit_code = exit_code(status, [answer])
    return findings


def _within(days: int) -> Callable[[Interval], bool]:
    def close_enough(interval: Interval) -> bool:
        good, bad = _names(interval)
        return (day(bad) - day(good)).days <= days

    return close_enough


def _names(interval: Interval) -> tuple[str, str]:
    versions = interval.timeline.histories[0].versions
    return versions[interval.start], versions[interval.stop]


class DayImages:
    """The workshop of dated images: there is nothing to build. A day whose image is gone since the tags were listed is
    untestable; a registry that does not answer is no fault of the day, and ends the run.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def order(self, trial: TrialSpec) -> Order:
        image = str(trial.environment.image)
        if is_at_hand(trial.environment) or not is_gone(image):
            return Order(image, None, trial)
        words = f"the registry has {image} no more"
        argv = ("sh", "-c", 'echo "$0" >&2; exit 1', words)
        place = fresh_dir(self._root / str(trial.id))
        return Order(image, TrialSpec(argv, place, place, environment=LOCAL), trial)

    def built(self, key: str) -> None:
        """Nothing is."""

    def finished(self, trial_id: str) -> None:
        """Containers are the runtime's business."""


class EarlierOutcomes:
    """Cached outcomes of dated images, looked up when a day is first asked about.

    What was found then is kept in the run's own file: a resumed run must not take its own trials for those of
    another. A digest serves one day, so that days with one image count no trial twice.
    """

    def __init__(
        self,
        kept: Path,
        digest_of: Callable[[str], str | None],
        cache_of: Callable[[str], OutcomeCache],
    ) -> None:
        self._kept, self._digest_of, self._cache_of = kept, digest_of, cache_of
        self._days: dict[str, Mapping[str, object]] = {}
        if kept.exists():
            self._days = json.loads(kept.read_text(encoding="utf-8"))

    def of(self, point: Point) -> Sequence[bool]:
        name = str(point[AXIS])
        if name not in self._days:
            digest = self._digest_of(name)
            served = {about["digest"] for about in self._days.values()}
            known = self._cache_of(digest).known({}) if digest and digest not in served else []
            self._days[name] = {"digest": digest, "outcomes": known}
            write_atomically(self._kept, json.dumps(self._days))
        outcomes = self._days[name]["outcomes"]
        return outcomes if isinstance(outcomes, list) else []

    def keep(self, event: Event) -> None:
        if isinstance(event, events.TrialEnded) and not event.replayed:
            about = self._days.get(str(event.record.point[AXIS]), {})
            digest = event.record.image_digest or about.get("digest")
            if digest:
                self._cache_of(str(digest)).add({}, event.record.outcome)
