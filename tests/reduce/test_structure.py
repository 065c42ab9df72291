"""A text loses by its structure: what is left of it is still what its ending says."""

import csv
import io
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from aorta.reduce.structure import pieces_of
from support.reductions import reduce_spec, run_dir_of, write_spec

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=30,
)


@given(value=VALUES, indent=st.sampled_from([None, 2]), data=st.data())
def test_json_without_some_elements_is_json(
    value: object, indent: int | None, data: st.DataObject
) -> None:
    content = json.dumps(value, indent=indent).encode()
    pieces = pieces_of("a.json", content)
    assert pieces.without_all_but(range(len(pieces.items))) == content
    kept = data.draw(st.sets(st.integers(0, len(pieces.items)), min_size=1))
    if pieces.stays[0] and any(number < len(pieces.items) for number in kept):
        json.loads(pieces.without_all_but(kept))


@given(
    rows=st.lists(st.dictionaries(st.sampled_from("abcd"), st.integers()), min_size=2),
    data=st.data(),
)
def test_yaml_without_some_entries_is_yaml(rows: list[object], data: st.DataObject) -> None:
    text = yaml.safe_dump({"version": 3, "rows": rows}, default_flow_style=False)
    pieces = pieces_of("a.yaml", text.encode())
    whole = pieces.without_all_but(range(len(pieces.items)))
    assert whole.decode() == text
    kept = data.draw(st.sets(st.integers(0, len(pieces.items) - 1), min_size=1))
    yaml.safe_load(pieces.without_all_but(kept))


def test_the_longest_list_of_a_document_is_what_shrinks() -> None:
    document = {"name": "x", "meta": {"a": 1}, "samples": [{"id": n} for n in range(9)]}
    pieces = pieces_of("a.json", json.dumps(document, indent=1).encode())
    assert len(pieces.items) == 9
    left = json.loads(pieces.without_all_but({4}))
    assert left == {**document, "samples": [{"id": 4}]}


def test_rows_with_line_ends_in_quotes_are_one_and_the_header_stays() -> None:
    out = io.StringIO()
    rows = [["id", "text"], ["1", "a\nb"], ["2", "c"], ["3", 'd"\n"e']]
    csv.writer(out).writerows(rows)
    pieces = pieces_of("a.csv", out.getvalue().encode())
    assert len(pieces.items) == 3
    left = pieces.without_all_but({0, 2}).decode()
    assert list(csv.reader(io.StringIO(left, newline=""))) == [rows[0], rows[1], rows[3]]
    plain = pieces_of("a.csv", b"1,2\n3,4\n")
    assert len(plain.items) == 2


CSV = """\
import csv, sys
with open(sys.argv[1], newline="") as file:
    rows = list(csv.DictReader(file))
seen = [row["price"] for row in rows]
if "1e999" in seen and "-inf" in seen:
    raise OverflowError("two prices that cancel out")
"""


@pytest.mark.parametrize("bad", [(17, 4210), (2500, 2501)])
def test_two_bad_rows_of_five_thousand_are_found_in_sixty_trials(
    tmp_path: Path, bad: tuple[int, int]
) -> None:
    (tmp_path / "read.py").write_text(CSV)
    lines = ["id,name,price"] + [f"{n},name {n},{n * 3.5}" for n in range(5000)]
    lines[bad[0] + 1] = f"{bad[0]},x,1e999"
    lines[bad[1] + 1] = f"{bad[1]},y,-inf"
    (tmp_path / "prices.csv").write_text("\n".join(lines) + "\n")
    spec = write_spec(
        tmp_path,
        'exec python read.py "$F"\n',
        [{"name": "F", "kind": "file_subset", "initial": "prices.csv"}],
        oracle={"kind": "exit_code"},
        budget={},
    )
    report = reduce_spec(spec).json()
    assert report["status"] == "reduced"
    assert report["axes"][0]["final"] == 2
    assert report["trials"] <= 60
    left = (run_dir_of(report, tmp_path) / "shrunken" / "prices.csv").read_text()
    assert left.splitlines()[0] == "id,name,price"
