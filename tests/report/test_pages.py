"""What pages say: the one sentence of each answer, and what is missing when something is."""

import json
import os
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta.report.building import page_of
from aorta.report.charts import linear_scale, log_scale
from aorta.report.html import document
from aorta.report.page import Listing, Page, Tone, el
from aorta.runtimes.owner import Owner
from support.report_runs import (
    MAKERS,
    bisect_dir,
    private,
    reduce_dir,
    run_dir,
    triage_dir,
    trial,
    write,
)

SENTENCES = {
    "run": "half_nan: 8 of 31 trials reproduced the failure",
    "reduce": "reduced (10 of 10 reproduced): NUM_STEPS 5000 → 137, BATCH_SIZE 2048 → 16, "
    "SHAPES_FILE 240 → 3",
    "triage": "hsa_no_sdma-local makes it stop: 0 of 12 failed, against 9 of 12 of the baseline; "
    "luck would do this with probability 0.0004",
    "optimize": "Together, hsa_no_sdma and xnack make it stop: 0 of 24 fresh trials failed: "
    "the rate is below 12 % (95 % sure)",
    "bisect": "One change brings the failure: jax at 62887481156a (probability 98.1%)",
    "launch": "Rank 3 on node-1 began it: hardware fault (probability 94 %): stop",
    "attribution": "Rank 2 began it: hang (probability 81 %): restart",
}


def page(run: Path) -> Page:
    return page_of(run)


@pytest.mark.parametrize("verb", MAKERS)
def test_a_page_begins_with_its_answer_and_its_probability(verb: str, tmp_path: Path) -> None:
    assert page(MAKERS[verb](tmp_path, "")).answer.sentence == SENTENCES[verb]


@pytest.mark.parametrize("verb", MAKERS)
def test_every_document_may_be_missing_empty_or_of_another_shape(verb: str, tmp_path: Path) -> None:
    run = MAKERS[verb](tmp_path, "")
    documents = [p for p in run.rglob("*.json*") if ".aorta" not in p.parts]
    for spoiled in (
        "[]",
        "{}",
        '{"axes": 3, "cells": [1], "culprits": {}, "finding": [], "ranks": "x"}',
        "{",
    ):
        for file in documents:
            schema = {"schema": MAKERS_SCHEMA.get(verb, "")} if spoiled.endswith("}") else {}
            file.write_text(json.dumps({**json.loads(spoiled), **schema}) if schema else spoiled)
        private(run, {"optimize": "triage", "attribution": "launch"}.get(verb, verb))
        text = document(page(run))
        assert "<h1>" in text


MAKERS_SCHEMA = {"launch": "aorta.cycle/1", "attribution": "aorta.attribution/1"}


def test_a_reduction_never_shows_the_lines_it_took_away(tmp_path: Path) -> None:
    """The original file beside the run is not read: what was removed is what nobody wanted to
    share.
    """
    run = reduce_dir(tmp_path)
    text = document(page(run))
    assert "tower.wide 128x4096" in text
    assert "… 16 lines gone …" in text
    assert "3 of 240 kept, 237 gone" in text


def test_a_candidate_that_was_not_decided_is_not_said_to_fail_no_more(tmp_path: Path) -> None:
    run = reduce_dir(tmp_path)
    lines = [json.loads(line) for line in (run / "reduction_trace.jsonl").read_text().splitlines()]
    one, other = [line for line in lines if not line["accepted"]][:2]
    one["verdict"], other["verdict"] = "could not tell", "reproduces"
    (run / "reduction_trace.jsonl").write_text("".join(f"{json.dumps(x)}\n" for x in lines))
    picture = page(run).picture
    assert picture is not None
    said = [meaning.partition(":")[0] for _, meaning in picture.legend]
    assert said == ["accepted", "rejected", "overtaken", "not decided"]


def test_a_bisection_without_its_timeline_shows_the_rest(tmp_path: Path) -> None:
    found = page(bisect_dir(tmp_path, timeline=False))
    assert found.picture is None
    assert found.answer.sentence == SENTENCES["bisect"]


def test_what_the_logs_of_the_two_ends_say_otherwise_is_marked(tmp_path: Path) -> None:
    sections = page(bisect_dir(tmp_path)).sections
    (listing,) = next(s for s in sections if s.title == "What its log says otherwise").blocks
    assert isinstance(listing, Listing)
    assert [(line.text, line.mark) for line in listing.lines] == [
        ("  step 1 loss 2.31", ""),
        ("  step 2 loss 2.29", ""),
        ("  compiling module jit_step", ""),
        ("- step 3 loss 2.27", "removed"),
        ("- done", "removed"),
        ("+ Traceback (most recent call last):", "added"),
        ("+ FloatingPointError: loss is nan", "added"),
    ]


def test_a_cell_that_fails_less_often_is_not_said_to_make_it_stop(tmp_path: Path) -> None:
    run = triage_dir(tmp_path)
    matrix = json.loads((run / "matrix.json").read_text())
    for cell in matrix["cells"]:
        if cell["call"] == "works":
            cell.update(failed_count=2, passed_count=10)
    write(run / "matrix.json", matrix)
    answer = page(run).answer
    assert answer.sentence.startswith("hsa_no_sdma-local makes it rarer: 2 of 12 failed, against 9")
    assert answer.more == "Also proved to help: hsa_no_sdma-image:rocm-6.4 (rarer). "


def test_a_matrix_that_is_still_filling_shows_what_it_has(tmp_path: Path) -> None:
    run = triage_dir(tmp_path)
    (run / "matrix.json").unlink()
    records = [trial(n, {"cell": f"c{n % 3}"}, "clean", "", 1.0, replica=n) for n in range(7)]
    private(run, "triage", records, state="")
    (run / ".aorta" / "lock").write_text(Owner.of_this_process().label)
    found = page(run)
    assert found.answer.tone is Tone.RUNNING
    assert found.picture is not None
    assert "c2 in failure rate: 0 of 2 failed" in found.picture.says


def test_a_run_whose_process_is_gone_is_not_called_running(tmp_path: Path) -> None:
    run = run_dir(tmp_path)
    private(run, "run", [], state="")
    gone = Owner.of_this_process().label.rsplit("/", 2)[0] + f"/{os.getpid()}/1"
    (run / ".aorta" / "lock").write_text(gone)
    assert dict(page(run).facts)["State"] == "its process is gone without a result"


def test_a_lock_of_another_host_means_running(tmp_path: Path) -> None:
    """The directory is shared; whether that process lives cannot be seen from here."""
    run = run_dir(tmp_path)
    private(run, "run", [trial(0, {}, "clean", "", 1.0)], state="")
    (run / ".aorta" / "lock").write_text("another-host/boot/4026/77/12345")
    assert page(run).answer.tone is not Tone.FAILED
    assert dict(page(run).facts)["State"] == "running"


def test_a_value_keeps_its_placeholder_over_the_whole_page(tmp_path: Path) -> None:
    run = tmp_path / "x"
    records = [
        trial(n, {}, "reproduced", f"cannot open /home/alice77/data/{n % 2}.bin", 1.0, replica=n)
        for n in range(4)
    ]
    write(run / "result.json", {"schema": "aorta.run/1", "workload": "w"})
    private(run, "run", records)
    text = document(page_of(run, shared=True))
    assert "alice77" not in text
    assert text.count("&lt;PATH:1&gt;") == text.count("&lt;PATH:2&gt;") > 0


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append(tag)

    def handle_data(self, data: str) -> None:
        self.words += data


def test_the_time_of_a_run_is_that_of_all_its_questions(tmp_path: Path) -> None:
    """The search took six seconds, its confirmation two: each counts from nothing."""
    run = run_dir(tmp_path)
    took = (2.0, 6.0, 1.0, 2.0)
    records = [
        replace(trial(n, {}, "reproduced", "exit 1", 1.0, replica=n), elapsed=elapsed)
        for n, elapsed in enumerate(took)
    ]
    private(run, "run", records, workload="half_nan")
    facts = dict(page_of(run).facts)
    assert facts["Trials"] == "4 in 8.0s"


@given(st.text(), st.text())
def test_no_text_opens_an_element_or_leaves_an_attribute(inside: str, attribute: str) -> None:
    parsed = _Elements()
    parsed.feed(el("p", inside, title=attribute))
    parsed.close()
    assert parsed.opened == ["p"]
    assert all(c in parsed.words for c in inside if c.isalnum())


POSITIVE = st.floats(1e-6, 1e9)


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=30))
def test_scales_keep_order_and_stay_in_the_picture(values: list[float]) -> None:
    for scale in (log_scale(values, 200, 10), linear_scale(values, 200, 10)):
        places = [scale(value) for value in sorted(values)]
        assert all(10 - 1e-6 <= place <= 200 + 1e-6 for place in places)
        assert places == sorted(places, reverse=True)
        assert 1 <= len(scale.ticks()) <= 12
