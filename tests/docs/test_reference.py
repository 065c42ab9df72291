"""docs/reference.md says what the models read."""

from tools import reference

from support.aorta_cli import ROOT


def test_the_reference_is_what_the_models_say() -> None:
    assert (ROOT / "docs" / "reference.md").read_text("utf-8") == reference.text()
