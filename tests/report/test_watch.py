"""`--watch`: the page beside a run, as a browser that stays open sees it."""

import json
import re
import subprocess
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from support.aorta_cli import COMMAND, aorta, environ, start_aorta
from support.services.chromium import Chromium, Tab, tab
from support.waiting import patience, wait_until

RELOADS = '<meta http-equiv="refresh"'


def told_place(process: "subprocess.Popen[bytes]") -> str:
    assert process.stderr is not None
    said = ""
    while not (found := re.search(r"watch it at (\S+)", said)):
        said += process.stderr.readline().decode()
    return found[1]


def shows(page: Tab, words: str) -> bool:
    """False while the page is being loaded again: there is no body, or another one than before."""
    try:
        return bool(page.evaluate(f"document.body?.textContent.includes('{words}')"))
    except AssertionError:
        return False


@pytest.mark.xdist_group("chromium")
def test_a_page_that_stays_open_follows_the_run_to_its_end(
    tmp_path: Path, browser: Chromium
) -> None:
    go = tmp_path / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.05; done; exit 1"
    words = ("run", "--watch", "--trials", "2", "--json", "--", "bash", "-c", wait)
    with subprocess.Popen(
        (*COMMAND, *words),
        cwd=tmp_path,
        env=environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        address = told_place(process)
        page_file = Path(unquote(urlsplit(address).path))
        wait_until(page_file.exists)
        assert RELOADS in page_file.read_text()
        with tab(browser, 1280) as page:
            page.open(address)
            wait_until(lambda: shows(page, "running"))
            go.touch()
            wait_until(lambda: shows(page, "2 of 2 trials"))
            assert page.complaints == []
        assert process.stdout is not None
        document = json.loads(process.stdout.read())
        assert process.wait(patience()) == 1
    assert document["rate"]["reproduced"] == 2
    assert RELOADS not in page_file.read_text(), "what is over is loaded once"


def test_the_watched_page_of_a_solve_is_the_solve_s_and_not_its_first_stage_s(
    tmp_path: Path,
) -> None:
    go = tmp_path / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.05; done; echo 'ValueError: bad row' >&2; exit 1"
    words = ("solve", "--watch", "--stages", "reproduce", "--", "bash", "-c", wait)
    process = start_aorta(*words, cwd=tmp_path)
    page = Path(unquote(urlsplit(told_place(process)).path))
    wait_until(page.exists)
    text = page.read_text()
    go.touch()
    process.communicate(timeout=patience())
    assert '<span class="verb">aorta solve</span>' in text
    assert RELOADS in text
    assert "ValueError: bad row" in page.read_text()
    assert RELOADS not in page.read_text()


def test_a_page_that_cannot_be_written_stops_no_run(tmp_path: Path) -> None:
    results = tmp_path / "results" / "command"
    (results / "report.html").mkdir(parents=True)
    done = aorta("run", "--watch", "--output", results, "--", "false", cwd=tmp_path)
    assert done.exit_code == 1, done.stderr


def test_watch_with_quiet_still_says_where(tmp_path: Path) -> None:
    done = aorta("run", "--watch", "-q", "--", "true", cwd=tmp_path)
    assert done.exit_code == 0
    said = re.fullmatch(r"watch it at file://(\S+)\n", done.stderr)
    assert said is not None
    assert "1 trial" in Path(said[1]).read_text()
