"""A text loses by its structure: what is left of it is still what its ending says."""

import csv
import io
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta.reduce.structure import JsonTree, array_rows, pieces_of
from support.aorta_cli import aorta
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
    if isinstance(pieces, JsonTree):
        kept = data.draw(st.sets(st.integers(0, len(pieces.items) - 1)))
        json.loads(pieces.without_all_but(kept))


def test_an_element_goes_with_its_separator_wherever_it_stands() -> None:
    document = {"name": "x", "meta": {"a": 1, "b": [2, 3]}, "samples": [{"id": 4}, {"id": 5}]}
    pieces = pieces_of("a.json", json.dumps(document, indent=1).encode())
    number = pieces.items.index('    "id": 5')
    assert json.loads(pieces.without_all_but({number})) == {"samples": [{"id": 5}]}
    number = pieces.items.index("    3")
    assert json.loads(pieces.without_all_but({0, number})) == {"name": "x", "meta": {"b": [3]}}


JSON = """\
import json, sys
document = json.load(open(sys.argv[1]))
stack, found = [document], 0
while stack:
    node = stack.pop()
    if isinstance(node, dict):
        found += node.get("dtype") == "int4"
        stack += node.values()
    elif isinstance(node, list):
        stack += node
if found:
    raise TypeError("unknown dtype")
"""


def test_a_deep_key_is_all_that_is_left_of_a_document(tmp_path: Path) -> None:
    (tmp_path / "read.py").write_text(JSON)
    layers = [{"name": f"layer {n}", "shape": [n, 4], "dtype": "f32"} for n in range(300)]
    layers[211]["dtype"] = "int4"
    document = {"version": 3, "model": {"kind": "net", "layers": layers}, "tags": ["a", "b"]}
    (tmp_path / "model.json").write_text(json.dumps(document, indent=1))
    spec = write_spec(
        tmp_path,
        'exec python read.py "$F"\n',
        [{"name": "F", "kind": "file_subset", "initial": "model.json"}],
        oracle={"kind": "exit_code"},
        budget={},
    )
    report = reduce_spec(spec).json()
    left = json.loads((run_dir_of(report, tmp_path) / "shrunken" / "model.json").read_text())
    assert left == {"model": {"layers": [{"dtype": "int4"}]}}
    assert report["trials"] <= 40


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


def test_arrays_lose_rows_along_their_first_dimension(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    data = numpy.arange(60, dtype="<f4").reshape(10, 3, 2)
    numpy.save(tmp_path / "a.npy", data)
    rows = array_rows(sys.executable, tmp_path / "a.npy")
    assert rows is not None
    assert len(rows.items) == 10
    left = numpy.load(io.BytesIO(rows.without_all_but({2, 7})))
    assert (left == data[[2, 7]]).all()
    numpy.savez(tmp_path / "a.npz", x=data, y=numpy.arange(10), names=numpy.array(["a", "b"]))
    rows = array_rows(sys.executable, tmp_path / "a.npz")
    assert rows is not None
    found = numpy.load(io.BytesIO(rows.without_all_but({9})))
    assert found["x"].shape == (1, 3, 2)
    assert found["y"].tolist() == [9]
    assert found["names"].tolist() == ["a", "b"]


def test_a_word_that_was_given_where_another_is_usual_is_an_axis(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import argparse, os, sys\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--backend', default='slow')\n"
        "parser.add_argument('--name', default='x')\n"
        "given = parser.parse_args()\n"
        "if given.backend == 'fast' and os.environ.get('MY_MODE', 'plain') == 'fused':\n"
        "    sys.exit('the fused kernel reads past its end')\n"
    )
    done = aorta(
        "solve", "--stages", "reproduce,reduce", "--json", "-q",
        "--", "python", "train.py", "--backend", "fast", "--name", "mine",
        cwd=tmp_path, env={"MY_MODE": "fused"},
    )  # fmt: skip
    found = {axis["name"]: axis["final"] for axis in done.json()["reproducer"]["axes"]}
    name = "ARG_NAME" if "ARG_NAME" in found else "NAME"  # where a variable has that name already
    assert found == {"BACKEND": "fast", name: "x", "MY_MODE": "fused"}


def test_tensors_lose_elements_through_the_torch_of_the_trials_python(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"x": torch.arange(4), "y": torch.ones(4, 2)}, tmp_path / "columns.pt")
    rows = array_rows(sys.executable, tmp_path / "columns.pt")
    assert rows is not None
    assert len(rows.items) == 4
    left = torch.load(io.BytesIO(rows.without_all_but({1, 2})), weights_only=True)
    assert left["x"].tolist() == [1, 2]
    assert left["y"].shape == (2, 2)
    torch.save({"weight": torch.ones(4, 2), "bias": torch.ones(3)}, tmp_path / "checkpoint.pt")
    assert array_rows(sys.executable, tmp_path / "checkpoint.pt") is None
