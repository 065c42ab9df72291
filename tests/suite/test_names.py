"""One class name, one thing: whoever reads a name anywhere in the house knows which class it is."""

import re
from collections import defaultdict

from support.aorta_cli import ROOT

PACKAGE = ROOT / "src/aorta"
CLASS = re.compile(r"^ *class ([A-Za-z]\w*)[(:\[]", re.MULTILINE)


def test_no_public_class_name_is_defined_twice() -> None:
    places = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in CLASS.findall(path.read_text(encoding="utf-8")):
            places[name].append(str(path.relative_to(PACKAGE)))
    assert "TrialSpec" in places
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
