"""A run, a matrix and a reduction of one command never disagree on what is the same failure. The
whole corpus goes through them in `python -m benchmarks identity`. Nor do they where nothing runs.
"""

import os
from pathlib import Path

import pytest
from benchmarks.identity import (
    matrix_of,
    reduced,
    rows_of,
    rule_on_noise,
    rule_on_slips,
    run_on_noise,
)
from benchmarks.identity_cases import NOISY_FROM, ROWS, SLIPS_BELOW, cases

from support.aorta_cli import Finished, aorta
from support.git_repositories import numbered
from support.reductions import numeric, write_spec

NOISY = {case.name: case for case in cases("noisy")}
SLIPS = {case.name: case for case in cases("slips")}
VARIED = ["gradient_of_random_layer", "two_ranks_without_prefix", "torch_oom", "recursion"]
ANY = {"kind": "exit_code"}
SLIPPING = ["infinity_to_too_little", "behind_a_wrapper", "two_asserts_on_a_device"]


def test_the_corpus_is_as_large_as_it_says_and_half_of_it_came_after_the_code() -> None:
    for kind, least in ((NOISY, 60), (SLIPS, 40)):
        later = sum(case.batch != "first" for case in kind.values())
        assert len(kind) >= least
        assert 2 * later >= len(kind) - 1


def test_over_the_corpus_the_same_is_the_same_and_the_different_is_not() -> None:
    wrong = [case.name for case in NOISY.values() if len(set(rule_on_noise(case))) > 1]
    wrong += [case.name for case in SLIPS.values() if len(set(rule_on_slips(case))) > 1]
    # Words that differ in one failure each may be accidents; two that never varied tell.
    assert wrong == ["nccl_kinds"]


@pytest.mark.parametrize("name", VARIED)
def test_what_a_run_counts_a_matrix_and_a_reduction_count(name: str, tmp_path: Path) -> None:
    case = NOISY[name]
    seen, trials = run_on_noise(case, tmp_path / "run")
    assert seen == trials
    cells = matrix_of(case, tmp_path / "triage", ROWS // 2)
    assert [(cell["failed_count"], cell["other_count"]) for cell in cells.values()] == [
        (trials, 0),
        (trials, 0),
    ]
    assert rows_of(reduced(case, tmp_path / "reduce")) == NOISY_FROM


@pytest.mark.parametrize("name", SLIPPING)
def test_what_a_matrix_calls_another_failure_a_reduction_does_not_slip_to(
    name: str, tmp_path: Path
) -> None:
    case = SLIPS[name]
    cells = matrix_of(case, tmp_path / "triage", SLIPS_BELOW // 2)
    assert cells["fewer"]["other_count"] == cells["fewer"]["trials"]
    assert rows_of(reduced(case, tmp_path / "reduce")) == SLIPS_BELOW


def _matrix(mode: str) -> tuple[str, ...]:
    axes = ("--mitigation-axis", "none,omp_one_thread", "--environment-axis", "local")
    return (
        "triage",
        "run",
        "--strict",
        "--mode",
        mode,
        *axes,
        "--trials",
        "2",
        "--output-dir",
        "o",
    )


_ENDS = ("--good", "HEAD~2", "--bad", "HEAD", "--no-checks")
# The words before a command, and those that go on with what they began.
VERBS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "run": (("run", "--results-dir", "o"), ("run", "--resume", "o/command")),
    "triage": (_matrix("matrix"), ("triage", "run", "--output-dir", "o", "--resume")),
    "optimize": (
        _matrix("optimize"),
        ("triage", "run", "--output-dir", "o", "--resume"),
    ),
    "reduce": (("reduce", "--output", "o", "--spec"), ("reduce", "--output", "o", "--resume")),
    "bisect": (("bisect", "--output-prefix", "o/1", *_ENDS), ("bisect", "--resume", "o/1")),
    "solve": (("solve", "--output", "o"), ()),
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_says_alike_that_nothing_could_be_run_and_tries_again(
    verb: str, tmp_path: Path
) -> None:
    repository, _ = numbered(tmp_path / "repo", 4)
    begin, go_on = VERBS[verb]
    programs = tmp_path / "bin"
    programs.mkdir()
    env = {"PATH": f"{programs}:{os.environ['PATH']}"}

    def begun(*command: str) -> Finished:
        given: tuple[str | Path, ...] = ("--", *command)
        if verb == "reduce":
            workload, axes = {"command": [*command]}, [numeric("N", 9, 1)]
            given = (write_spec(tmp_path, "", axes, workload=workload, oracle=ANY, budget={}),)
        return aorta(*begin, *given, cwd=repository.path, env=env)

    refused = begun("late")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1), refused
    assert "'late' cannot be started: there is no such program" in refused.stderr
    assert not (repository.path / "o").exists()
    if verb in {"triage", "optimize"}:
        tried = aorta(*begin, "--dry-run", "--", "late", cwd=repository.path, env=env)
        assert tried.exit_code == 2, tried
    done = begun("bash", "-c", "late")
    assert done.exit_code == 5, done
    assert "no trial could tell: bash: line 1: late: command not found" in done.stderr
    if go_on:
        (programs / "late").write_text("#!/bin/sh\necho the loss is nan >&2\nexit 1\n")
        (programs / "late").chmod(0o755)
        again = aorta(*go_on, cwd=repository.path, env=env)
        assert again.exit_code not in {2, 5}, again
        assert "no trial could tell" not in again.stdout + again.stderr
