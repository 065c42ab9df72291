"""docs/reference.md says what the models read."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import reference  # noqa: E402


def test_the_reference_is_what_the_models_say() -> None:
    assert (ROOT / "docs" / "reference.md").read_text("utf-8") == reference.text()
