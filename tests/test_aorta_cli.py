"""The runner that every black-box test rests on."""

import pytest

from aorta.version import __version__
from support.aorta_cli import Finished, aorta, start_aorta
from support.waiting import patience


def test_the_runner_brings_back_what_the_command_line_said() -> None:
    done = aorta("--version")
    assert (done.exit_code, done.stdout, done.stderr) == (0, f"aorta {__version__}\n", "")


def test_the_runner_reports_a_wrong_command_line_as_its_exit_code() -> None:
    done = aorta("no-such-verb", "--json")
    assert done.exit_code == 2
    assert done.json()["error"]["kind"] == "usage"


def test_a_second_document_on_stdout_is_refused() -> None:
    with pytest.raises(AssertionError, match="not exactly one line"):
        Finished((), 0, "{}\n{}\n", "").json()


def test_a_started_command_line_has_its_own_session() -> None:
    with start_aorta("--version") as process:
        stdout, _ = process.communicate(timeout=patience())
    assert stdout == f"aorta {__version__}\n".encode()
