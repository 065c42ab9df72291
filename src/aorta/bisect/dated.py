"""Families of dated containers: which days exist, and what each is called."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from aorta.bisect.oci import Repository, list_tags, split_reference
from aorta.bisect.spec import ContainersSpec, day
from aorta.core.errors import NoAnswerError

_DATE = r"(?P<date>\d{4}-\d{2}-\d{2})"


@dataclass(frozen=True)
class Family:
    """The images of a family by their day, oldest first."""

    images: Mapping[str, str]

    @property
    def days(self) -> list[str]:
        return list(self.images)

    @property
    def ordinals(self) -> list[float]:
        return [float(date.fromisoformat(text).toordinal()) for text in self.images]


def family_of(spec: ContainersSpec, template: str) -> Family:
    """Every image of the family up to the end date, as the registry lists them."""
    reference = template.replace("{container}", spec.family or "")
    name, tag = split_reference(reference)
    pattern = re.compile(re.escape(tag).replace(re.escape("{date}"), _DATE) + r"\Z")
    found = (pattern.match(listed) for listed in list_tags(Repository.of(name)))
    days = sorted({match["date"] for match in found if match and _is_day(match["date"])})
    until = spec.end_date or "9999-12-31"
    images = {text: reference.replace("{date}", text) for text in days if text <= until}
    if len(images) < 2:
        raise NoAnswerError(
            f"the registry lists {len(images)} containers like {tag} up to {until}; two are needed",
            where=name,
        )
    return Family(images)


def _is_day(text: str) -> bool:
    try:
        day(text)
    except ValueError:
        return False
    return True
