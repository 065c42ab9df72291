"""A command line and a call from Python ask the same: every option is a field of the verb's
request, of the type it has there.
"""

from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from aorta.cli.app import app
from aorta.core.documents import validated_arguments

_EXECUTOR = (
    "--jobs 2 --executor local --gpus-per-trial 1 --nodes 2 --time-limit 1h --cold --timeout 5"
)
_ORACLE = "--oracle regex --pattern NaN --stream stderr --with-failure"
_RESUME = "--resume ."
_LAYERS = "--environment image:x --mitigations a,b --mitigations-file m.json --extra-env A=1"
LINES = {
    "run": f"run --workload w --trials 3 --steps 2 {_LAYERS} {_ORACLE} {_EXECUTOR} {_RESUME} "
           "--results-dir r -- a b",
    "reduce": (
        "reduce --spec s --workload w --output o --scrub p --bare --max-trials 1 "
        "--max-wall-clock 4h "
        f"{_LAYERS} {_EXECUTOR} {_RESUME} --dry-run --source -- a b"
    ),
    "triage": (
        "triage run --recipe r --mode optimize --workload w --mitigation-axis a,b "
        "--environment-axis local "
        "--trials 3 --steps 3 --ticket t --baseline-cell c "
        "--confound-threshold 1.2 "
        f"--mitigations-file m {_ORACLE} {_EXECUTOR} --output-dir o {_RESUME} -- a b"
    ),
    "bisect": (
        "bisect --good a --bad b --good-env f --bad-env g --index-url u --extra-index-url v "
        "--find-links d --no-index "
        "--pre --spec s --find-fix --first-parent "
        "--confidence 0.9 "
        "--container jax --container-runtime docker --container-url-template t --start-date d "
        "--end-date e "
        "--threshold-days 2 --passing-container x --failing-container y --passing-versions jax:1 "
        "--failing-versions jax:2 --skip-precondition-checks --same-failure --any-failure "
        "--bazel-cache c --shm-size 1g "
        f"-v a:b --metric-name m --passing-metric 1 --failing-metric 2 {_ORACLE} {_EXECUTOR} "
        "--build-timeout 1m "
        "--max-trials 3 --max-time 1h --extra-env A=1 --output-prefix o "
        "--no-checks "
        f"{_RESUME} -- a -v c:d"
    ),
    "diverge": (
        "diverge --bad-set A=1 --good-set A=2 --good-mitigations a,b --good rev --good-device cpu "
        "--good-dtype float64 "
        f"--between-ranks --steps 1:2 --mitigations-file m --seed 1 --output o {_EXECUTOR} "
        f"{_RESUME} -- a b"
    ),
    "solve": (
        "solve --spec s --environment e --good g --index-url u --find-links d --no-index --budget "
        "1h --max-trials 3 --allow-binary "
        f"--stages reproduce,reduce --output o --ticket t --mitigations-file m {_ORACLE} "
        f"{_EXECUTOR} {_RESUME} -- a b"
    ),
    "bundle": (
        "bundle there --output o --ticket t --scrub p --policy y "
        "--no-check --whole-logs --allow-binary"
    ),
    "attribute": (
        f"attribute {__file__} --failures {__file__} --history . --kernel-log {__file__} "
        "--flight-recorder . "
        f"--max-no-progress-cycles 2"
    ),
}  # fmt: skip
NOT_ON_A_COMMAND_LINE = {
    "run": {"cwd", "stop_at_failure", "max_wall_clock", "retries", "run_dir", "seen"},
    "reduce": {"fixed_by", "run_dir", "seen", "ticket"},
    "triage": {"max_wall_clock", "run_dir", "seen"},
    "bisect": {"summary"},
    "diverge": {"cwd", "max_wall_clock", "name", "run_dir"},
    "solve": {"directory", "source"},
    "bundle": {"timeout"},
    "attribute": set(),
}


def _module(verb: str) -> str:
    return "aorta.attribution" if verb == "attribute" else f"aorta.{verb}.request"


def request_of(verb: str) -> type[Any]:
    kind: type[Any] = getattr(import_module(_module(verb)), f"{verb.capitalize()}Request")
    return kind


class Asked(Exception):  # noqa: N818
    """Carries the request away before it is answered."""


def request_from(verb: str, line: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    @dataclass(frozen=True, kw_only=True)
    class Recorded(request_of(verb)):  # type: ignore[misc]
        def __post_init__(self) -> None:
            raise Asked(self)

    with monkeypatch.context() as patched:
        patched.setattr(f"{_module(verb)}.{verb.capitalize()}Request", Recorded)
        with pytest.raises(Asked) as asked:
            app.main(line.split(), standalone_mode=False)
    return asked.value.args[0]


@pytest.mark.parametrize("verb", LINES)
def test_every_option_of_a_verb_is_a_field_of_its_request_and_of_its_type(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = dict(vars(request_from(verb, LINES[verb], monkeypatch)))
    kind = request_of(verb)
    assert vars(validated_arguments(kind, asked, where=verb)) == asked
    plain = {each.name for each in fields(kind) if asked[each.name] == each.default}
    assert plain == NOT_ON_A_COMMAND_LINE[verb]


def test_a_directory_alone_is_a_run_to_look_at_and_not_a_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = request_from("diverge", f"diverge {tmp_path}", monkeypatch)
    assert (asked.run_dir, asked.command) == (tmp_path, ())
    assert request_from("solve", f"solve {tmp_path}", monkeypatch).source == tmp_path


def test_what_is_turned_off_is_on_without_the_word(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = request_from("bisect", "bisect --good a -- true", monkeypatch)
    assert (asked.checks, asked.command) == (True, ("true",))
