"""Who may ask the service, what it keeps, and for how long."""

import json
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from benchmarks.faults.corpus import CORPUS

from support import fork_server
from support.aorta_cli import aorta, environ
from support.attribution_service import Service, running_service
from support.waiting import patience, wait_until

pytestmark = pytest.mark.xdist_group("attrsvc")

NOBODY = 65534
ASK = """
import encodings.idna, os, sys, urllib.error, urllib.request  # another user may not be let in to where they lie
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
url, *token = sys.argv[2:]
headers = {"Authorization": f"Bearer {token[0]}"} if token else {}
try:
    print(urllib.request.urlopen(urllib.request.Request(url, headers=headers)).status)
except urllib.error.HTTPError as refused:
    print(refused.code)
"""


def asked_by_another_user(url: str, *token: str) -> int:
    done = subprocess.run(
        [sys.executable, "-I", "-c", ASK, str(NOBODY), f"{url}/metrics", *token],
        capture_output=True, text=True, timeout=patience(), check=True,
    )  # fmt: skip
    return int(done.stdout)


def report(job: str, **more: object) -> dict[str, object]:
    log = str(CORPUS / "import_error")
    return {"job_id": job, "cycle_id": f"{job}:0", "agent": "a", "log_paths": [log], **more}


def token_file(service: Service, state: Path) -> Path:
    return state / "aorta" / "tokens" / f"{socket.gethostname().split('.')[0]}-{service.port}"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that anybody may read, as another program left it."""
    path = tmp_path_factory.mktemp("named") / "s.sqlite"
    path.touch(0o644)
    return path


@pytest.fixture(scope="module")
def named(database: Path) -> Iterator[Service]:
    with running_service(CORPUS, database) as service:
        yield service


def test_callers_need_the_token_that_was_made_and_this_users_find_it(
    tmp_path: Path, state: Path
) -> None:
    with running_service(CORPUS, tmp_path / "s.sqlite") as service:
        kept = token_file(service, state)
        wait_until(kept.exists, "a token")
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert asked_by_another_user(service.url) == 401
        assert asked_by_another_user(service.url, "a-guess-of-a-token") == 401
        assert asked_by_another_user(service.url, kept.read_text().strip()) == 200
        with service.client() as mine:
            assert mine.get("/metrics").status_code == 200
    assert not kept.exists()


def test_where_no_token_is_wanted_it_is_asked_of_nobody(tmp_path: Path) -> None:
    given = tmp_path / "token"
    given.write_text("correct horse battery\n")
    with running_service(CORPUS, tmp_path / "s.sqlite", "--no-token") as service:
        assert asked_by_another_user(service.url) == 200
    both = ("--no-token", "--token-file", given, "--allowed-root", tmp_path)
    assert aorta("attrsvc", *both).exit_code == 2


def test_who_asks_too_fast_is_told_to_wait_and_guesses_of_a_token_count(tmp_path: Path) -> None:
    given = tmp_path / "token"
    given.write_text("correct horse battery\n")
    options = ("--token-file", str(given), "--rate-limit", "2")
    with (
        running_service(CORPUS, tmp_path / "s.sqlite", *options) as service,
        service.client("wrong") as guesser,
        service.client("correct horse battery") as friend,
    ):
        guesses = [guesser.get("/metrics").status_code for _ in range(30)]
        wait_until(lambda: friend.get("/metrics").status_code == 200, "another turn")
        answers = [friend.get("/metrics") for _ in range(30)]
    assert set(guesses) == {401, 429}
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert refused[0].headers["retry-after"] == "1"


def test_the_database_is_this_users_alone(named: Service, database: Path) -> None:
    with named.client() as client:
        client.post("/v1/cycles", json=report("private"))
        modes = {stat.S_IMODE(file.stat().st_mode) for file in database.parent.glob("s.sqlite*")}
    assert modes == {0o600}


@pytest.mark.parametrize("signal", ["SIGKILL", "KILL", "9", 9, "Killed"])
def test_a_signal_is_told_by_its_number_or_its_name(named: Service, signal: object) -> None:
    job = f"signal-{signal}"
    failures = [{"rank": 0, "signal": signal}]
    with named.client() as client:
        told = client.post("/v1/cycles", json=report(job, failures=failures, log_paths=[]))
        assert told.status_code == 202, told.text
        answer = client.get(f"/v1/cycles/{job}/{job}:0/decision", params={"wait": 60}).json()
    assert answer["finding"]["class"] == "killed"
    assert "SIGKILL" in answer["finding"]["summary"]


@pytest.mark.parametrize("signal", ["SIGNONE", "", 65, 0, "0", 1.5, True])
def test_a_signal_that_is_none_is_refused(named: Service, signal: object) -> None:
    body = report("no-signal", failures=[{"rank": 0, "signal": signal}])
    with named.client() as client:
        refused = client.post("/v1/cycles", json=body)
    assert (refused.status_code, refused.json()["detail"][0]["loc"][-1]) == (422, "signal")


def test_a_refused_report_is_looked_at_once(named: Service) -> None:
    def triggers(client: httpx.Client) -> float:
        rows = client.get("/metrics").text.splitlines()
        return next(
            float(row.split()[-1]) for row in rows if row.startswith("aorta_triggers_total")
        )

    body = report("refused", log_paths=[str(CORPUS / "import_error"), "/etc/passwd"])
    with named.client() as client:
        before = triggers(client)
        assert client.post("/v1/cycles", json=body).status_code == 403
        not_json = client.post("/v1/cycles", content=b"{}")
        assert not_json.status_code == 422
        assert triggers(client) == before


def test_a_database_that_refuses_is_asked_once_for_each_report(tmp_path: Path) -> None:
    database = tmp_path / "s.sqlite"
    with running_service(CORPUS, database) as service, service.client() as client:
        with sqlite3.connect(database) as connection:
            connection.execute("DROP TABLE aorta_reports")
        connection.close()
        assert client.post("/v1/cycles", json=report("refused")).status_code == 503
        metrics = client.get("/metrics").text
    assert "aorta_triggers_total 1.0" in metrics


def test_a_service_told_to_stop_while_it_starts_stops(tmp_path: Path) -> None:
    for wait in (0.0, 0.05):
        with running_service(CORPUS, tmp_path / "s.sqlite"):
            time.sleep(wait)  # and is told to stop by whoever started it


def test_a_script_learns_from_one_document_where_the_service_listens(tmp_path: Path) -> None:
    words = ("attrsvc", "--json", "--port", "0", "--db", "s.sqlite", "--allowed-root", str(CORPUS))
    process = fork_server.start(
        *words, cwd=tmp_path, env=environ(), text=True, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        told = json.loads(process.stdout.readline())
        assert told["schema"] == "aorta.attrsvc/1"
        assert told["url"] == f"http://127.0.0.1:{told['port']}"
        token = Path(told["token_file"]).read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        where = f"{told['url']}/v1/cycles/j/j:0/decision"
        answer = httpx.get(where, headers=headers, timeout=patience())
        assert answer.json()["status"] == "pending"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "", "one document"
        assert process.wait(patience()) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_service_that_cannot_start_says_why_in_one_document(tmp_path: Path) -> None:
    words = ("--db", tmp_path / "none" / "s.sqlite", "--allowed-root", CORPUS)
    done = aorta("attrsvc", "--json", "--port", "0", *words)
    assert (done.exit_code, done.json()["schema"]) == (5, "aorta.error/1")
