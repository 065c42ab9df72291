"""For every verb's real directory: what is packed and unpacked says the same, field by field, and
nothing private.
"""

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.aorta_cli import aorta
from support.real_runs import MAKERS, PRIVATE_VALUES, SPOKEN, packed_run

EACH_VERB = pytest.mark.parametrize("verb", MAKERS)
PLACEHOLDER = re.compile(r"<(?:SECRET|TEXT|EMAIL|PATH|IPV4|IPV6|MAC|HOST|USER):\d+>")
ANSWERS = {
    "run": ("result.json", ["trials", "*", "outcome"], ["rate"], ["signature"], ["counts"]),
    "reduce": ("result.json", ["status"], ["axes"], ["confirmed"], ["signature"], ["shipped_copy"]),
    "triage": ("matrix.json", ["cells", "*", "name"], ["cells", "*", "mitigations"], ["baseline_cell"]),
    "optimize": ("optimize.json", ["status"], ["recommended"], ["original"], ["candidates"]),
    "diverge": ("result.json", ["status"], ["first", "op"], ["first", "step"], ["first", "difference"], ["compared_ops"]),
    "bisect": ("result.json", ["status"], ["culprits", "*", "package"], ["culprits", "*", "bad"],
               ["culprits", "*", "good"], ["culprits", "*", "title"], ["good"], ["bad"], ["rates"]),
    "launch": ("case/finding.json", ["finding", "class"], ["decision", "action"], ["finding", "fingerprint"]),
}  # fmt: skip


def picked(document: Any, steps: list[str]) -> Any:
    if not steps:
        return document
    first, *rest = steps
    if first == "*":
        return [picked(item, rest) for item in document]
    return picked(document[first], rest)


def opened(bundle: Path, tmp_path: Path) -> Path:
    done = aorta("bundle", "unpack", bundle, tmp_path / "there", "--json")
    assert done.exit_code == 0, done.stderr
    return Path(done.json()["directory"])


@EACH_VERB
def test_packing_changes_no_answer_and_lets_nothing_private_out(verb: str, tmp_path: Path) -> None:
    run = MAKERS[verb]()
    there = opened(packed_run(verb).bundle, tmp_path)
    name, *answers = ANSWERS[verb]
    before, after = (json.loads((place / str(name)).read_bytes()) for place in (run, there))
    for steps in answers:
        assert picked(after, list(steps)) == picked(before, list(steps)), steps
    assert_only_replaced(before, after)
    texts = {path: path.read_bytes() for path in there.rglob("*") if path.is_file()}
    for value in (*PRIVATE_VALUES, f"/aorta-{verb}-"):
        assert [path for path, data in texts.items() if value.encode() in data] == [], value
        assert value not in "\n".join(map(str, (path.relative_to(there) for path in texts)))
    assert [
        kind.name for kind in SPOKEN if any(kind.value.encode() in data for data in texts.values())
    ] == []
    assert not [path for path in texts if ".aorta" in path.parts]


def assert_only_replaced(before: Any, after: Any) -> None:
    """Every field is there; a text differs only by placeholders and by paths that became
    relative.
    """
    if isinstance(before, dict):
        assert len(after) == len(before)
        for one, other in zip(before.values(), after.values(), strict=True):
            assert_only_replaced(one, other)
    elif isinstance(before, list):
        assert len(after) == len(before)
        for one, other in zip(before, after, strict=True):
            assert_only_replaced(one, other)
    elif isinstance(before, str):
        assert after == before or PLACEHOLDER.search(after) or "/" in before
    else:
        assert after == before


def test_a_bisect_bundle_names_its_culprit_in_words_and_holds_its_trials(tmp_path: Path) -> None:
    run = MAKERS["bisect"]()
    there = opened(packed_run("bisect").bundle, tmp_path)
    result = json.loads((run / "result.json").read_bytes())
    report = (there / "report.md").read_text()
    title = result["culprits"][0]["title"]
    assert report.startswith(
        f"# One change brings the failure: jax at {result['culprits'][0]['bad'][:12]}"
    )
    assert title.startswith("version 12.4.131.")
    assert title in report
    assert re.search(r"\| jax@[0-9a-f]{10} \|", report)
    logs = [path.relative_to(there) for path in there.glob("probes/**/stdout.log")]
    assert len(logs) == len(list(run.glob("trials/*/*/stdout.log")))


def test_a_reproducer_is_rehearsed_from_where_it_is_unpacked_and_ship_md_carries_that_figure(
    tmp_path: Path,
) -> None:
    run = MAKERS["reduce"]()
    done = aorta("bundle", run, "--output", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.stderr
    assert done.json()["checked"] == {"reproduced": 1, "of": 1, "why": ""}
    bundle = Path(done.json()["path"])
    with tarfile.open(bundle) as archive:
        [ship] = [entry for entry in archive.getmembers() if entry.name.endswith("/SHIP.md")]
        file = archive.extractfile(ship)
        assert file is not None
        assert b"the reproducer failed the same way 1 of 1 times" in file.read()
    again = aorta("bundle", "verify", bundle, "--run", "--json", cwd=tmp_path)
    assert again.exit_code == 0, again.stderr
    assert again.json()["run"]["reproduced"] == 1
    opened = aorta("bundle", "unpack", bundle, tmp_path / "there", "--json").json()
    recipe = Path(opened["directory"]) / "shrunken" / "recipe.resolved.yaml"
    config = yaml.safe_load(recipe.read_text("utf-8"))["workload_config"]
    assert config["oracle"]["kind"] == "exit_code"
    assert config["oracle"]["failure"]["type"] == "RuntimeError"
    there = aorta("triage", "run", "--recipe", recipe, "--output-dir", tmp_path / "t", "--json")
    assert there.exit_code == 0, there.stderr


def test_a_copy_that_scrubbing_breaks_is_seen_before_it_is_written_and_ship_md_says_so_alone(
    tmp_path: Path,
) -> None:
    run = MAKERS["reduce"]()
    assert "failed the same way 1 of 1 times" in (run / "SHIP.md").read_text()
    words = ("--output", tmp_path / "out", "--scrub", "RuntimeError", "--review", "--json")
    done = aorta("bundle", run, *words, stdin="y\n")
    assert done.exit_code == 3
    said = "the reproducer did **not** fail the same way"
    assert said in done.stderr.split("files for")[0]
    there = opened(Path(done.json()["path"]), tmp_path)
    ship = (there / "SHIP.md").read_text()
    assert said in ship
    assert "`keep:`" in ship
    assert "failed the same way" not in ship
    assert done.json()["checked"]["reproduced"] == 0
    verified = aorta("bundle", "verify", done.json()["path"], "--run")
    assert verified.exit_code == 3
    assert "did not fail like the original" in verified.stdout


@pytest.mark.parametrize("verb", ["run", "triage", "optimize"])
def test_the_output_that_a_trial_record_names_is_packed_with_it(verb: str, tmp_path: Path) -> None:
    there = opened(packed_run(verb).bundle, tmp_path)
    records = [json.loads(path.read_bytes()) for path in there.rglob("trial_*.json")]
    logs = [record["process"][name] for record in records for name in ("stdout", "stderr")]
    assert logs
    assert [log for log in logs if not (there / "trials" / log.split("/trials/")[1]).exists()] == []


def test_a_word_taken_out_of_the_message_and_its_line_leaves_the_same_failure(
    tmp_path: Path,
) -> None:
    words = ("--output", tmp_path / "out", "--scrub", "loss", "--json")
    done = aorta("bundle", MAKERS["reduce"](), *words)
    assert done.exit_code == 0, done.stderr
    shipped = (
        opened(Path(done.json()["path"]), tmp_path) / "shrunken/workload/train.py"
    ).read_text()
    assert re.search(r'RuntimeError\("TEXT_\d+ is nan at step 137"\)', shipped)


def test_a_bundle_without_a_reproducer_has_nothing_to_run(tmp_path: Path) -> None:
    done = aorta("bundle", MAKERS["run"](), "--output", tmp_path, "--ticket", "T", "--json")
    assert done.json()["checked"] is None
    assert aorta("bundle", "verify", done.json()["path"], "--run").exit_code == 3
