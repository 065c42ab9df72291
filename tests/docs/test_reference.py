"""docs/reference.md says what the models read."""

from support.aorta_cli import ROOT
from tools import reference


def test_the_reference_is_what_the_models_say() -> None:
    assert (ROOT / "docs" / "reference.md").read_text("utf-8") == reference.text()
