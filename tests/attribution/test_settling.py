"""When the reports of a cycle have settled."""

import asyncio

import pytest

pytestmark = pytest.mark.xdist_group("attrsvc")


def test_agents_that_were_counted_are_waited_for_and_uncounted_ones_until_it_is_quiet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from aorta.attribution.service import analyses

    monkeypatch.setattr(analyses, "SETTLE_AT_MOST", 600.0)

    async def settled_while_one_is_missing(expected: int | None) -> bool:
        cycle = analyses._Cycle()
        cycle.hear("first", expected)
        settling = asyncio.create_task(cycle.all_reported())
        await asyncio.wait({settling}, timeout=3 * analyses.SETTLE if expected else None)
        before = settling.done()
        cycle.hear("second", expected)
        await settling
        return before

    assert asyncio.run(settled_while_one_is_missing(None))
    assert not asyncio.run(settled_while_one_is_missing(2))
