"""One class name, one thing: whoever reads a name anywhere in the house knows which class it is."""

import ast
from collections import defaultdict

from support.aorta_cli import ROOT

PACKAGE = ROOT / "src/aorta"


def test_no_public_class_name_is_defined_twice() -> None:
    places = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert "TrialSpec" in places
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
