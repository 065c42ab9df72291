"""The live view: as a browser sees it, and as somebody who should not see it does."""

import json
import re
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from aorta.runtimes.owner import Owner
from support.aorta_cli import COMMAND, aorta, environ, start_aorta
from support.live_pages import pictures
from support.report_runs import private, run_dir, trial, write
from support.services.chromium import Chromium, tab
from support.waiting import patience


@contextmanager
def watching(run: Path, *options: str) -> Iterator[str]:
    """`aorta watch` on a directory; its address."""
    process = start_aorta("watch", run, *options)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().decode().strip()
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=patience())


def fetch(address: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=patience()) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, ""


def a_running_run(root: Path, trials: int, owner: str = "") -> Path:
    """A run directory as its process leaves it while it works."""
    run = root / "half_nan"
    records = [trial(n, {}, "reproduced", "exit 1", 1.0, replica=n) for n in range(trials)]
    private(run, "run", records, workload="half_nan", state="")
    (run / ".aorta" / "lock").write_text(owner or Owner.of_this_process().label)
    return run


@pytest.mark.xdist_group("chromium")
def test_the_page_follows_the_journal_and_survives_the_death_of_the_run(
    tmp_path: Path, browser: Chromium
) -> None:
    sleeper = subprocess.Popen(("sleep", "600"))
    owner = _owner_of(sleeper.pid)
    run = a_running_run(tmp_path, 2, owner)
    with watching(run) as address, tab(browser, 1280) as page:
        page.open(address)
        page.until("document.querySelector('h1').textContent.includes('2 of 2 trials')")
        page.until("document.getElementById('live').textContent === 'live'")
        page.evaluate("document.querySelector('#page > details').open = true")
        a_running_run(tmp_path, 5, owner)
        page.until("document.querySelector('h1').textContent.includes('5 of 5 trials')")
        assert page.evaluate("document.querySelector('#page > details').open")
        sleeper.kill()
        sleeper.wait()
        page.until("document.body.textContent.includes('its process is gone without a result')")
        page.until("document.getElementById('live').className === 'ended'")
        assert page.evaluate("document.querySelector('h1').textContent.includes('5 of 5')")
        assert page.complaints == []
        asked = {re.sub(r":\d+|\?token=.*", "", request) for request in page.requests}
        assert asked == {"http://127.0.0.1/", "http://127.0.0.1/news"}


def _owner_of(pid: int) -> str:
    mine = Owner.of_this_process()
    started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return Owner(mine.host, mine.boot, mine.namespace, pid, started).label


@pytest.mark.xdist_group("chromium")
def test_a_page_that_loses_its_server_keeps_the_last_picture_and_says_so(
    tmp_path: Path, browser: Chromium
) -> None:
    run = a_running_run(tmp_path, 3)
    with tab(browser, 390) as page:
        with watching(run) as address:
            page.open(address)
            page.until("document.getElementById('live').textContent === 'live'")
        page.until("document.getElementById('live').className !== ''")
        assert "3 of 3 trials" in page.evaluate("document.querySelector('h1').textContent")


def test_the_page_of_a_solve_follows_what_its_stages_leave(tmp_path: Path) -> None:
    """Nothing but `solve.json` is written between two looks."""
    run = tmp_path / "solve"
    private(run, "solve", state="")
    (run / ".aorta" / "lock").write_text(Owner.of_this_process().label)
    with watching(run) as address:
        shown = pictures(address)
        assert "Still at work: nothing is over yet" in next(shown).html
        failure = {"class": "nan", "summary": "loss is nan"}
        write(run / "solve.json", {"status": "partial", "failure": failure})
        assert "So far: nan" in next(shown).html


def test_it_only_reads(tmp_path: Path) -> None:
    run = run_dir(tmp_path)
    before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in sorted(run.rglob("*"))}
    with watching(run) as address:
        assert fetch(address)[0] == 200
        request = urllib.request.Request(address, data=b"x", method="POST")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=patience())
        with refused.value:
            assert refused.value.code == 501
        assert fetch(address.replace("?", ".aorta/journal.jsonl?"))[0] == 404
        assert fetch(address.replace("?", "../../etc/passwd?"))[0] == 404
    assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in sorted(run.rglob("*"))} == before


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_only_who_has_the_token_that_it_printed_may_look(tmp_path: Path, host: str) -> None:
    with watching(run_dir(tmp_path), "--host", host) as address:
        plain, _, token = address.partition("?token=")
        assert len(token) >= 24
        here = plain.replace("0.0.0.0", "127.0.0.1")
        assert fetch(here)[0] == 403
        assert fetch(f"{here}news")[0] == 403
        assert fetch(f"{here}?token=wrong")[0] == 403
        assert fetch(f"{here}?token={token}")[0] == 200


def test_it_waits_for_a_directory_that_is_no_run_yet(tmp_path: Path) -> None:
    with watching(tmp_path) as address:
        assert "this is no run directory" in fetch(address)[1]
        run_dir(tmp_path).rename(tmp_path / "moved")
        for entry in (tmp_path / "moved").iterdir():
            entry.rename(tmp_path / entry.name)
        assert "half_nan fails in" in fetch(address)[1]


def test_a_taken_port_is_exit_5_and_one_line(tmp_path: Path) -> None:
    run = run_dir(tmp_path)
    with watching(run) as address:
        port = str(urlsplit(address).port)
        done = aorta("watch", run, "--port", port)
    assert done.exit_code == 5
    assert done.stderr.count("\n") == 1
    assert "choose another --port" in done.stderr


def test_no_such_directory_is_exit_2(tmp_path: Path) -> None:
    done = aorta("watch", tmp_path / "nowhere")
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1


@pytest.mark.xdist_group("chromium")
def test_watch_on_a_verb_says_where_and_shows_the_end(tmp_path: Path, browser: Chromium) -> None:
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
        assert process.stderr is not None
        assert process.stdout is not None
        said = ""
        while not (found := re.search(r"watch it at (\S+)", said)):
            said += process.stderr.readline().decode()
        with tab(browser, 1280) as page:
            page.open(found[1])
            page.until("document.getElementById('live').textContent === 'live'")
            go.touch()
            page.until("document.body.textContent.includes('2 of 2 trials')")
            page.until("document.getElementById('live').textContent.includes('has ended')")
        document = json.loads(process.stdout.read())
        assert process.wait(patience()) == 1
    assert document["rate"]["reproduced"] == 2


def test_the_watched_page_of_a_solve_is_the_solve_s_and_not_its_first_stage_s(
    tmp_path: Path,
) -> None:
    go = tmp_path / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.05; done; echo 'ValueError: bad row' >&2; exit 1"
    words = ("solve", "--watch", "--stages", "reproduce", "--", "bash", "-c", wait)
    process = start_aorta(*words, cwd=tmp_path)
    assert process.stderr is not None
    said = ""
    while not (found := re.search(r"watch it at (\S+)", said)):
        said += process.stderr.readline().decode()
    _, page = fetch(found[1])
    go.touch()
    process.communicate(timeout=patience())
    assert '<span class="verb">aorta solve</span>' in page


def test_watch_with_quiet_still_says_where(tmp_path: Path) -> None:
    done = aorta("run", "--watch", "-q", "--", "true", cwd=tmp_path)
    assert done.exit_code == 0
    assert re.fullmatch(r"watch it at http://127\.0\.0\.1:\d+/\?token=[\w-]+\n", done.stderr)
    assert [entry.name for entry in tmp_path.iterdir()] == ["results"]
