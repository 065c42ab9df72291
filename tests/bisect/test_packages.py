"""Several packages in one timeline: builds, pairs, partners, libraries, version strings that look
alike.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from support.aorta_cli import Finished, aorta
from support.git_repositories import Repository


def two_packages(tmp_path: Path, count: int = 12) -> tuple[list[Repository], list[list[str]]]:
    """`core` and `plugin`, each commit writing its number, in turn."""
    repositories = [Repository.create(tmp_path / name) for name in ("core", "plugin")]
    shas: list[list[str]] = []
    for which, repository in enumerate(repositories):
        repository.clock += 10 * which
        shas.append(repository.line([(f"{which}/{i}", {"number": f"{i}\n"}) for i in range(count)]))
    return repositories, shas


def run(
    tmp_path: Path, packages: list[dict[str, Any]], script: str, *, checks: bool = False
) -> Finished:
    spec = tmp_path / "bisect.yaml"
    spec.write_text(yaml.safe_dump({"packages": packages, "command": ["sh", "-c", script]}))
    how = ("--spec", spec, "--output-prefix", tmp_path / "out", "--json")
    return aorta("bisect", *how, *(() if checks else ("--no-checks",)), cwd=tmp_path)


def both(shas: list[list[str]], **more: Any) -> list[dict[str, Any]]:
    return [
        {"name": name, "path": name, "good": mine[0], "bad": mine[-1], **more}
        for name, mine in zip(("core", "plugin"), shas, strict=True)
    ]


READ = "a=$(cat $AORTA_BISECT_CORE/number); b=$(cat $AORTA_BISECT_PLUGIN/number);"


def test_the_package_and_its_commit_are_found_without_a_blame_phase(tmp_path: Path) -> None:
    _, shas = two_packages(tmp_path)
    result = run(tmp_path, both(shas), f"{READ} test $b -lt 7").json()
    [culprit] = result["culprits"]
    assert (culprit["package"], culprit["bad"]) == ("plugin", shas[1][7])
    assert result["builds"] <= 5 + 2
    differing = [name for name in result["good"] if result["good"][name] != result["bad"][name]]
    assert differing == ["plugin"]


def test_a_merge_of_one_of_several_packages_is_every_commit_that_it_brings(tmp_path: Path) -> None:
    (core, _), shas = two_packages(tmp_path)
    core.git("checkout", "--quiet", "-b", "branch", shas[0][-1])
    merged = [core.commit(f"b{n}", {f"b{n}": "b"}) for n in range(3)]
    core.git("checkout", "--quiet", "main")
    core.git("merge", "--quiet", "--no-ff", "--message=M", "branch")
    shas[0].append(core.head)
    result = run(tmp_path, both(shas), "test ! -e $AORTA_BISECT_CORE/b1").json()
    assert result["status"] == "range"
    assert {one["commit"] for one in result["culprits"]} == {*merged, core.head}
    assert result["bad"]["core"] == core.head


def test_a_build_runs_once_for_a_version_set_and_its_failure_is_gone_around(tmp_path: Path) -> None:
    _, shas = two_packages(tmp_path)
    log = tmp_path / "built"
    packages = both(shas)
    packages[0]["build"] = (
        f"n=$(cat number); echo $n $(cat $AORTA_BISECT_PLUGIN/number) >> {log}; test $n -ne 6; "
        "echo $n > made"
    )
    result = run(tmp_path, packages, f"{READ} test $(cat made) -lt 9", checks=True).json()
    assert result["culprits"][0]["bad"] == shas[0][9]
    built = log.read_text().splitlines()
    assert len(built) == len(set(built))
    assert result["tests"] > result["builds"]
    assert {entry["versions"]["core"] for entry in result["skipped"]} <= {shas[0][6]}


def test_two_commits_that_must_move_together_are_the_answer_as_a_pair(tmp_path: Path) -> None:
    _, shas = two_packages(tmp_path)
    api = (
        f"{READ} c=0; test $a -lt 6 || c=1; d=0; test $b -lt 8 || d=1; test $c = $d || exit "
        "125; test $c = 0"
    )
    result = run(tmp_path, both(shas), api, checks=True).json()
    assert result["status"] == "pair"
    assert {(c["package"], c["bad"]) for c in result["culprits"]} == {
        ("core", shas[0][6]),
        ("plugin", shas[1][8]),
    }


def test_the_partner_without_which_the_culprit_does_no_harm_is_named(tmp_path: Path) -> None:
    _, shas = two_packages(tmp_path)
    together = f"{READ} ! {{ test $a -ge 3 && test $b -ge 9; }}"
    result = run(tmp_path, both(shas), together, checks=True).json()
    assert result["culprits"][0]["bad"] == shas[1][9]
    assert result["partner"]["package"] == "core"
    assert result["partner"]["commit"] == shas[0][3]


def test_a_culprit_that_needs_no_partner_has_none(tmp_path: Path) -> None:
    _, shas = two_packages(tmp_path)
    result = run(tmp_path, both(shas), f"{READ} test $b -lt 9", checks=True).json()
    assert result["partner"] is None


def test_listed_versions_of_a_library_that_share_their_first_characters_are_told_apart(
    tmp_path: Path,
) -> None:
    _, shas = two_packages(tmp_path, 3)
    versions = [f"9.10.2.{n}" for n in range(21, 30)]
    packages: list[dict[str, Any]] = [
        {"name": "core", "path": "core", "good": shas[0][2], "bad": shas[0][2]},
        {
            "name": "cudnn",
            "versions": versions,
            "env": "CUDNN_VERSION",
            "build": f"echo $CUDNN_VERSION >> {tmp_path}/installed",
        },
    ]
    result = run(tmp_path, packages, 'test "${CUDNN_VERSION##*.}" -lt 26').json()
    assert result["culprits"][0]["good"] == "9.10.2.25"
    assert result["culprits"][0]["bad"] == "9.10.2.26"
    assert result["good"] == {"core": shas[0][2], "cudnn": "9.10.2.25"}
    installed = (tmp_path / "installed").read_text().split()
    assert len(installed) == len(set(installed)) == result["builds"]


def test_a_build_fix_is_cherry_picked_onto_every_state_it_applies_to(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "core")
    repository.commit("begin", {"number": "0", "makefile": "ok"})
    shas = [repository.commit(f"commit {i}", {"number": str(i)}) for i in range(1, 10)]
    repository.git("checkout", "--quiet", "-b", "fixes")
    fix = repository.commit("fix the build", {"fixed": "yes"})
    repository.git("checkout", "--quiet", "main")
    packages = [
        {
            "name": "core",
            "path": "core",
            "good": shas[0],
            "bad": shas[-1],
            "cherry_pick": [fix],
            "build": "test -e fixed",
        }
    ]
    objects = repository.git("count-objects")
    result = run(tmp_path, packages, "test $(cat number) -lt 6").json()
    assert result["status"] == "found"
    assert result["culprits"][0]["title"] == "commit 6"
    assert repository.git("count-objects") == objects  # what a cherry-pick makes stays outside


def test_a_commit_only_the_remote_has_is_fetched_and_its_token_stays_secret(tmp_path: Path) -> None:
    origin = Repository.create(tmp_path / "origin")
    shas = [origin.commit(f"commit {i}", {"number": str(i)}) for i in range(6)]
    clone = Repository.create(tmp_path / "core")
    clone.git("fetch", "--quiet", str(origin.path), shas[2])
    clone.git("checkout", "--quiet", shas[2])
    package = {"name": "core", "path": "core", "good": shas[0], "bad": shas[5]}
    missing = run(tmp_path, [package], "test $(cat number) -lt 4")
    assert missing.exit_code == 2
    secret = {**package, "remote": "https://user:hunter2@localhost:1/none.git"}
    refused = run(tmp_path, [secret], "test $(cat number) -lt 4")
    assert refused.exit_code == 5
    assert "hunter2" not in refused.stderr + refused.stdout
    found = run(tmp_path, [{**package, "remote": str(origin.path)}], "test $(cat number) -lt 4")
    assert found.json()["culprits"][0]["bad"] == shas[4]


def test_a_wrong_spec_is_refused_with_its_place(tmp_path: Path) -> None:
    cases = [
        ({"packages": [{"name": "a", "path": "a", "colour": 1}]}, "packages[0].colour"),
        ({"packages": [{"name": "a"}]}, "either path"),
        ({"packages": [{"name": "a", "path": "a"}, {"name": "a", "path": "b"}]}, "called a"),
        ({"containers": {"family": "jax", "passing": "x:1"}}, "either a container family"),
        ({"containers": {"family": "jax", "start_date": "soon"}}, "YYYY-MM-DD"),
        ({"containers": {"family": "jax", "bazel_cache": "relative"}}, "bazel cache"),
        ({"confidence": 1.5}, "confidence"),
    ]
    spec = tmp_path / "bisect.yaml"
    for content, words in cases:
        spec.write_text(json.dumps(content))
        done = aorta("bisect", "--spec", spec, "--", "true", cwd=tmp_path)
        assert done.exit_code == 2, content
        assert words in done.stderr
