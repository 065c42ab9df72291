"""Metric mode as a user runs it: real processes that print or write noisy numbers."""

import os
import signal
from pathlib import Path

import pytest
import yaml

from support.aorta_cli import Finished, aorta, start_aorta
from support.git_repositories import Repository, numbered
from support.nightly import World, day
from support.services.engines import DockerEngine
from support.services.registry import Registry
from support.waiting import wait_until

# z: the sum of eight random bytes, scaled to a mean of 0 and a standard deviation of 1.
# trial: which one it is of its state.
MEASURE = r"""awk '{{ n = $1 }} END {{
  "od -An -N8 -tu1 /dev/urandom" | getline
  for (i = 1; i <= 8; i++) s += $i
  z = (s - 1020) / 209
  match(ENVIRON["AORTA_TRIAL_DIR"], "[0-9]+-[0-9]+$")
  trial = substr(ENVIRON["AORTA_TRIAL_DIR"], RSTART) + 0
  printf "{{\"step_ms\": %s}}", {value} > (ENVIRON["AORTA_TRIAL_DIR"] "/metrics.json")
}}' number"""


def measuring(level: str, noise: float) -> list[str]:
    """A command whose `step_ms` is `level` (an expression of the commit's number n) with that much
    noise.
    """
    return ["--", "sh", "-c", MEASURE.format(value=f"{level} + {noise} * z")]


def bisect(
    repository: Repository,
    out: Path,
    *words: str | Path,
    jobs: int = 1,
    checks: bool = False,
) -> Finished:
    how = ("--output-prefix", out, "--json", f"--jobs={jobs}", "--metric-name=step_ms")
    return aorta("bisect", *how, *(() if checks else ("--no-checks",)), *words, cwd=repository.path)


def test_a_noisy_number_leads_to_the_commit_without_any_sample_given(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 12)
    words = measuring("(n < 7 ? 10 : 12)", 0.5)
    done = bisect(repository, tmp_path / "out", "--good", shas[0], *words, jobs=2, checks=True)
    result = done.json()
    assert result["status"] == "found", done.stderr
    assert result["culprits"][0]["bad"] == shas[7]
    assert result["confidence"] >= 0.95
    assert 9 < result["metric"]["good"]["mean"] < 11 < result["metric"]["bad"]["mean"] < 13
    assert "`step_ms` is" in (tmp_path / "out" / "report.md").read_text()


def test_stopped_it_goes_on_by_its_directory_alone(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 8)
    words = ("--good", shas[0], "--max-trials", "3", *measuring("(n < 5 ? 10 : 20)", 0.1))
    assert bisect(repository, tmp_path / "out", *words).exit_code == 4
    done = aorta("bisect", "--resume", tmp_path / "out", "--json", cwd=repository.path)
    assert done.exit_code == 0, done.stderr
    assert done.json()["culprits"][0]["bad"] == shas[5]
    assert done.json()["resumed_trials"] == 3


def test_ends_that_the_number_does_not_tell_apart_are_said_to_be_so_in_one_line(
    tmp_path: Path,
) -> None:
    repository, shas = numbered(tmp_path / "repo", 3)
    words = measuring("10 + trial % 5", 0.0)  # as noisy on both: no chance tells them apart
    done = bisect(repository, tmp_path / "out", "--good", shas[0], *words)
    result = done.json()
    assert done.exit_code == 3
    assert result["status"] == "inconsistent"
    assert result["culprits"] == []
    [warning] = [w for w in result["warnings"] if "does not tell the two ends apart" in w]
    assert "\n" not in warning
    assert result["builds"] == 2


def test_a_state_between_the_two_levels_is_neither_and_the_answer_is_the_range_around_it(
    tmp_path: Path,
) -> None:
    repository, shas = numbered(tmp_path / "repo", 20)
    words = measuring("(n < 8 ? 10 : n < 11 ? 12 : 14)", 0.05)
    result = bisect(repository, tmp_path / "out", "--good", shas[0], *words).json()
    assert result["status"] == "range"
    assert {culprit["bad"] for culprit in result["culprits"]} >= {shas[8], shas[11]}
    assert result["skipped"]
    assert all("at neither level" in entry["why"] for entry in result["skipped"])


def test_samples_may_be_given_and_a_bigger_number_may_be_the_better_one(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 9)
    samples = ["--passing-metric=14", "--passing-metric=14.1", "--failing-metric=10"]
    words = measuring("(n < 6 ? 14 : 10)", 0.1)
    result = bisect(repository, tmp_path / "out", "--good", shas[0], *samples, *words).json()
    assert result["status"] == "found"
    assert result["culprits"][0]["bad"] == shas[6]
    refused = bisect(repository, tmp_path / "no", "--good", shas[0], samples[0], *words)
    assert refused.exit_code == 2
    assert "samples of both sides" in refused.stderr


def test_a_commit_without_the_number_is_skipped_around(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 16)
    words = measuring("(n < 12 ? 10 : 14)", 0.1)
    words[-1] = f"test $(cat number) -eq 8 || {{ {words[-1]}; }}"
    result = bisect(repository, tmp_path / "out", "--good", shas[0], *words).json()
    assert result["culprits"][0]["bad"] == shas[12]
    assert {entry["versions"]["repo"] for entry in result["skipped"]} <= {shas[8]}


def test_a_number_in_the_output_is_read_by_a_pattern_of_the_spec(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 12)
    script = "n=$(cat number); echo loss=$((n < 7 ? 3 : 5)).$((n % 3))"
    spec = tmp_path / "bisect.yaml"
    packages = [{"name": "repo", "path": str(repository.path), "good": shas[0], "bad": shas[-1]}]
    oracle = {"kind": "metric", "pattern": "loss=([0-9.]+)"}
    content = {"packages": packages, "oracle": oracle, "command": ["sh", "-c", script]}
    spec.write_text(yaml.safe_dump(content))
    words = ("--spec", spec, "--json", "--no-checks", "--output-prefix", tmp_path / "out")
    result = aorta("bisect", *words).json()
    assert result["culprits"][0]["bad"] == shas[7]


def test_killed_and_resumed_no_measurement_is_made_twice(
    tmp_path: Path,
) -> None:
    repository, shas = numbered(tmp_path / "repo", 17)
    log = tmp_path / "ran"
    words = measuring("(n < 9 ? 10 : 14)", 0.1)
    words[-1] = f"echo >> {log}; test $(wc -l < {log}) -ne 6 || sleep 600; {words[-1]}"
    words = ["--no-checks", *words]
    options: list[str | Path] = ["--good", shas[0], "--metric-name=step_ms", *words]
    running = start_aorta(
        "bisect", "--output-prefix", tmp_path / "out", *options, cwd=repository.path
    )
    wait_until(lambda: log.exists() and len(log.read_text()) >= 6, "the sixth measurement")
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    resumed = ["--resume", tmp_path / "out", "--json", *options]
    result = aorta("bisect", *resumed, cwd=repository.path).json()
    assert result["culprits"][0]["bad"] == shas[9]
    assert result["resumed_trials"] == 5


@pytest.mark.xdist_group("docker")
def test_a_number_leads_from_dated_containers_to_the_commit(
    docker_engine: DockerEngine, oci_registry: Registry, world: World, tmp_path: Path
) -> None:
    days = [day(2), day(3)]
    template = world.publish(oci_registry, "nightly/metric", days, first_bad=day(3))
    script = (
        "t=10.$(head -c1 /dev/urandom | od -An -tu1 | tr -d ' '); grep -q no /installed || t=1$t;"
        """ printf '{"step_ms": %s}' $t > /triage-tool-output/metrics.json"""
    )
    spec = tmp_path / "bisect.yaml"
    spec.write_text(yaml.safe_dump({"packages": world.few()}))
    where = ["--container=jax", f"--container-url-template={template}", f"--spec={spec}"]
    command = [
        "--metric-name=step_ms",
        "--no-checks",
        "--json",
        "--",
        "sh",
        "-c",
        script,
    ]
    environ = docker_engine.environ
    refused = aorta("bisect", *where, *command, cwd=tmp_path, env=environ)
    assert refused.exit_code == 2
    assert "--passing-metric" in refused.stderr
    assert list(tmp_path.iterdir()) == [spec]
    samples = ["--passing-metric=10.5", "--passing-metric=10.2", "--failing-metric=110.4"]
    done = aorta("bisect", *where, *samples, *command, cwd=tmp_path, env=environ, timeout=300)
    result = done.json()
    assert result["status"] == "found", done.stderr
    assert result["culprits"][0]["bad"] == world.culprit
    assert result["containers"]["first_bad"].endswith(day(3))
    assert docker_engine.containers() == []
