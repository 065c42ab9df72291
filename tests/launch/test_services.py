"""The launcher with the real attribution service, and with servers that speak the peer's wire."""

import base64
import json
import sqlite3
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from aorta.attribution.client import JsonClient, token_for
from aorta.launch.http_source import HttpSource
from aorta.launch.records import Action, CycleEvidence, CycleStart, FailedCycle
from support.attribution_service import running_service
from support.launching import RESTARTS_AND_WAITS, Site, answer, script
from support.waiting import eventually, wait_until

IMPORTS_NOTHING_THERE = "import surely_not_installed"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service") / "svc.sqlite"


@pytest.fixture(scope="module")
def service(database: Path) -> Iterator[str]:
    """One that may read the logs of all jobs here."""
    with running_service(database.parents[1], database) as running:
        yield running.url


def opened(url: str) -> Any:
    """With the token that the service made, which this user's callers find."""
    headers = {"Authorization": f"Bearer {token_for(url)}"}
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers))


def counted(url: str) -> list[float]:
    """Reports and analyses so far."""
    with opened(f"{url}/metrics") as answer:
        rows = dict(row.rsplit(" ", 1) for row in answer.read().decode().splitlines())
    return [float(rows[f"aorta_{what}_total"]) for what in ("triggers", "analyses")]


def jobs_in(database: Path) -> set[str]:
    with sqlite3.connect(database) as connection:
        return {job for (job,) in connection.execute("SELECT job_id FROM aorta_cycles")}


def test_the_real_service_hears_every_agent_analyses_once_and_stops_the_job(
    site: Site, service: str
) -> None:
    """In one cycle, or in two where an agent stopped its rank before that could have failed."""
    job = script(site.folder, IMPORTS_NOTHING_THERE)
    before = counted(service)
    ends = site.run_nodes(2, "--ft-attrsvc-url", service, "--max-restarts", "2", str(job))
    assert [end.code for end in ends] == [93, 93], ends
    cycles = len(site.cycles())
    assert cycles in {1, 2}
    made = [now - then for now, then in zip(counted(service), before, strict=True)]
    assert made == [2 * cycles, cycles]
    assert site.cycle(cycles - 1)["finding"]["class"] == "import_error"


def test_a_service_that_may_not_read_the_logs_is_sent_their_ends(site: Site) -> None:
    job = script(site.folder, IMPORTS_NOTHING_THERE)
    elsewhere = site.folder / "elsewhere"
    elsewhere.mkdir()
    secret = site.folder / "token"
    secret.write_text("s3cret-token")
    asks = ("--token-file", str(secret))
    with running_service(elsewhere, site.folder / "svc.sqlite", *asks) as running:
        how = ("--ft-attrsvc-url", running.url, "--max-restarts", "2", str(job))
        refused = site.run("--ft-attribution-dry-run", *how)
        end = site.run(*how, AORTA_ATTRSVC_TOKEN="s3cret-token")
    assert "HTTP 401" in refused.err
    assert end.code == 93, end
    assert "import_error" in end.err
    assert "s3cret" not in end.err + refused.err


def test_what_the_mcp_server_would_answer_stops_the_job(site: Site) -> None:
    job = script(site.folder, IMPORTS_NOTHING_THERE)
    wait = ("--ft-attribution-decision-timeout", "60")
    end = site.run("--ft-attribution-enable-mcp", *wait, "--max-restarts", "2", str(job))
    assert end.code == 93, end
    info = site.cycle(0)
    assert (info["decided_by"], info["finding"]["class"]) == ("mcp", "import_error")


def test_a_stop_of_one_submission_never_reaches_another_of_the_same_name(
    site: Site, service: str, database: Path
) -> None:
    """Outside Slurm every job without a name of its own is called `none`."""
    fails = script(site.folder, IMPORTS_NOTHING_THERE)
    where = ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{site.port}")
    same = ("--nnodes", "1", *where, "--rdzv-id", "none", "--max-restarts", "1")
    before = jobs_in(database)
    first = site.run(*same, "--ft-attrsvc-url", service, str(fails))
    dies = script(site.folder, "os.kill(os.getpid(), 9)", "dies.py")
    second = site.run(*same, "--ft-attrsvc-url", service, str(dies))
    assert (first.code, second.code) == (93, 1)
    assert "surely_not_installed" not in second.err
    # A busy service writes the last report down after the job has ended.
    assert eventually(lambda: len(jobs_in(database) - before) == 2)
    assert all(name.startswith("none-") for name in jobs_in(database) - before)


class Backend(BaseHTTPRequestHandler):
    """A server that a test gives its behaviour: `answers(method, path, headers, body)` -> (status,
    content).
    """

    answers: Callable[[str, str, Mapping[str, str], Any], tuple[int, object]]

    def do_POST(self) -> None:
        self._answer("POST", json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def do_GET(self) -> None:
        self._answer("GET", None)

    def _answer(self, method: str, sent: Any) -> None:
        code, content = type(self).answers(method, self.path, dict(self.headers), sent)
        body = json.dumps(content).encode()
        self.send_response(code)
        if code == 307:
            self.send_header("Location", str(content))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@contextmanager
def backend(
    answers: Callable[[str, str, Mapping[str, str], Any], tuple[int, object]],
) -> Iterator[str]:
    handler = type("Handler", (Backend,), {"answers": staticmethod(answers)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Peer:
    """Knows `POST /logs` and `GET /logs` and nothing else; `GET` answers when it is done."""

    slow_refusal: float = 0.0  # seconds until it says that it does not know our wire
    analysis: float = 0.0
    told: list[dict[str, Any]] = field(default_factory=list)

    def answer(
        self, method: str, path: str, headers: Mapping[str, str], sent: Any
    ) -> tuple[int, object]:
        del headers
        if not path.startswith("/logs"):
            time.sleep(self.slow_refusal)
            return 404, {"detail": "Not Found"}
        if method == "POST":
            self.told.append(sent)
            return 200, {"submitted": True}
        if not self.told:
            return 404, {"error_code": "not_found"}
        time.sleep(self.analysis)
        action = {"action": "STOP", "reason": "peer says", "source": "peer"}
        return 200, {"status": "completed", "recommendation": action}


def test_a_server_that_knows_only_the_peer_s_wire_is_spoken_to_in_it(site: Site) -> None:
    job = script(site.folder, "sys.exit(3)")
    peer = Peer(analysis=1.0)
    with backend(peer.answer) as url:
        end = site.run("--ft-attribution-http-url", url, "--max-restarts", "2", str(job))
    assert end.code == 93, end
    assert "peer says" in end.err
    (told,) = peer.told
    assert told["analysis_intent"] == "terminal"
    assert told["cycle_id"] == 0
    assert Path(told["log_path"]).name == "rank_0.err"


@pytest.mark.parametrize("read_after", [0.0, 0.1, 0.3])
def test_a_stop_on_the_peer_s_wire_is_heard_whoever_learns_the_wire_first(
    tmp_path: Path, read_after: float
) -> None:
    """The trigger and the leader's question run side by side; each may be the first to be told
    404.
    """
    log = tmp_path / "rank_0.err"
    log.touch()
    evidence = CycleEvidence("a", "here", 0, (0,), log_paths=(str(log),))
    failed = FailedCycle(CycleStart("job", 0, ("here",)), (evidence,))
    with backend(Peer(slow_refusal=0.2).answer) as url:
        source = HttpSource(JsonClient(url), "http", 30.0)
        telling = threading.Thread(target=source.trigger, args=(failed,))
        telling.start()
        time.sleep(read_after)
        verdict = source.read(failed)
        telling.join()
    assert verdict is not None
    assert verdict.action is Action.STOP


def test_a_leader_that_asks_before_anybody_has_told_does_not_hold_up_the_telling(
    tmp_path: Path,
) -> None:
    log = tmp_path / "rank_0.err"
    log.touch()
    evidence = CycleEvidence("a", "here", 0, (0,), log_paths=(str(log),))
    failed = FailedCycle(CycleStart("job", 0, ("here",)), (evidence,))
    asked, told = threading.Event(), threading.Event()

    def service(method: str, path: str, *_: object) -> tuple[int, object]:
        """Decides when it is told; until then a question waits as long as it may."""
        if method == "POST":
            told.set()
            return 202, {}
        asked.set()
        told.wait(float(path.partition("wait=")[2]))
        return 200, answer("STOP") if told.is_set() else {"status": "pending"}

    with backend(service) as url:
        source = HttpSource(JsonClient(url), "http", 30.0)

        def tell() -> None:
            asked.wait()
            source.trigger(failed)

        telling = threading.Thread(target=tell, daemon=True)
        telling.start()
        verdict = source.read(failed)
        telling.join()
    assert verdict is not None
    assert verdict.action is Action.STOP


def test_a_stop_that_the_peer_finds_after_the_leader_s_wait_is_logged(site: Site) -> None:
    job = script(site.folder, RESTARTS_AND_WAITS)
    with backend(Peer(analysis=3.0).answer) as url:
        agent = site.start(
            *("--ft-attribution-http-url", url, "--ft-attribution-decision-timeout", "0.5"),
            *("--max-restarts", "2", str(job)),
        )
        wait_until(lambda: "late STOP" in agent.err(), "a late STOP")
        (site.folder / "go").touch()
        end = agent.wait()
    assert end.code == 0, end
    assert "timed out" not in end.err


def test_a_password_in_an_address_is_used_and_never_shown(site: Site) -> None:
    job = script(site.folder, "sys.exit(3)")
    seen: list[str | None] = []

    def answers(
        method: str, path: str, headers: Mapping[str, str], sent: Any
    ) -> tuple[int, object]:
        del path, sent
        seen.append(headers.get("Authorization"))
        return (202, {}) if method == "POST" else (200, answer("STOP", "heard"))

    with backend(answers) as url:
        secret = url.replace("http://", "http://operator:hunter2%21@")
        end = site.run("--ft-attribution-http-url", secret, "--max-restarts", "2", str(job))
        refused = site.run("--ft-attribution-http-url", "ftp://operator:hunter2@x", str(job))
    assert end.code == 93, end
    assert set(seen) == {"Basic " + base64.b64encode(b"operator:hunter2!").decode()}
    assert refused.code == 2
    said = [end.err, refused.err, *(p.read_text() for p in site.logs.glob("**/*.json"))]
    assert not any("hunter2" in text for text in said)


def test_a_token_reaches_neither_a_worker_nor_whom_a_redirect_names(site: Site) -> None:
    job = script(site.folder, "print(sorted(os.environ.values())); sys.exit(3)")
    strangers: list[object] = []

    def stranger(*asked: object) -> tuple[int, object]:
        strangers.append(asked)
        return 200, answer("STOP", "a stranger says")

    with backend(stranger) as elsewhere, backend(lambda *_: (307, elsewhere)) as url:
        end = site.run(
            *("--ft-attrsvc-url", url, "--max-restarts", "0", str(job)),
            AORTA_ATTRSVC_TOKEN="s3cret-token",
        )
    assert end.code == 1, end
    assert strangers == []
    assert "HTTP 307" in end.err
    assert "s3cret" not in end.out + end.err
