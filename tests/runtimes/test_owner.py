"""An owner is called dead only when that is certain."""

import os
import subprocess
from dataclasses import replace

import pytest

from aorta.runtimes.owner import Owner


def owner_of(pid: int) -> Owner:
    me = Owner.of_this_process()
    stat = subprocess.run(("cut", "-d ", "-f22", f"/proc/{pid}/stat"), capture_output=True)
    return replace(me, pid=pid, started=stat.stdout.decode().strip())


def test_a_label_brings_back_its_owner() -> None:
    me = Owner.of_this_process()
    assert Owner.from_label(me.label) == me


@pytest.mark.parametrize("label", ["", "somebody", "a/b/c/d/e", "a/b/c/1/2/3"])
def test_a_label_of_another_make_has_no_owner(label: str) -> None:
    assert Owner.from_label(label) is None


def test_a_living_process_is_not_gone() -> None:
    assert not Owner.of_this_process().is_gone()


def test_an_ended_process_is_gone_even_while_its_parent_has_not_waited_for_it() -> None:
    with subprocess.Popen(("sleep", "600")) as process:
        owner = owner_of(process.pid)
        assert not owner.is_gone()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert owner.is_gone()


def test_a_process_id_used_again_is_another_owner() -> None:
    assert replace(Owner.of_this_process(), started="1").is_gone()


def test_an_owner_from_before_the_last_boot_is_gone() -> None:
    assert replace(Owner.of_this_process(), boot="earlier").is_gone()


@pytest.mark.parametrize("change", [{"host": "elsewhere"}, {"namespace": "1"}])
def test_an_owner_that_cannot_be_seen_from_here_may_live(change: dict[str, str]) -> None:
    invisible = replace(Owner.of_this_process(), pid=2**22 + 1, **change)
    assert not invisible.is_gone()
