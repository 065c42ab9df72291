"""The launcher with the real attribution service, and with servers that speak the peer's wire."""

import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from support.launching import Site, environment, script, wait_until

IMPORTS_NOTHING_THERE = "import surely_not_installed"


@contextmanager
def attrsvc(folder: Path, root: Path, *more: str) -> Iterator[str]:
    said = folder / "attrsvc.err"
    with said.open("w") as err:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "aorta", "attrsvc", "--port", "0"),
                *("--allowed-root", str(root), "--db", str(folder / "svc.sqlite"), *more),
            ],
            env=environment(),
            stderr=err,
        )
    try:
        wait_until(lambda: "http://" in said.read_text() or process.poll() is not None)
        yield "http://" + said.read_text().split("http://")[1].split()[0]
    finally:
        process.terminate()
        process.wait()


def test_the_real_service_hears_every_agent_analyses_once_and_stops_the_job(site: Site) -> None:
    job = script(site.folder, IMPORTS_NOTHING_THERE)
    with attrsvc(site.folder, site.folder) as url:
        ends = site.run_nodes(2, "--ft-attrsvc-url", url, "--max-restarts", "2", str(job))
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            metrics = answer.read().decode()
    assert [end.code for end in ends] == [93, 93], ends
    assert "aorta_triggers_total 2" in metrics
    assert "aorta_analyses_total 1" in metrics
    assert site.cycle(0)["finding"]["class"] == "import_error"


def test_a_service_that_may_not_read_the_logs_is_sent_their_ends(site: Site) -> None:
    job = script(site.folder, IMPORTS_NOTHING_THERE)
    elsewhere = site.folder / "elsewhere"
    elsewhere.mkdir()
    secret = site.folder / "token"
    secret.write_text("s3cret-token")
    with attrsvc(site.folder, elsewhere, "--token-file", str(secret)) as url:
        how = ("--ft-attrsvc-url", url, "--max-restarts", "2", str(job))
        refused = site.run("--ft-attribution-dry-run", *how)
        end = site.run(*how, AORTA_ATTRSVC_TOKEN="s3cret-token")
    assert "HTTP 401" in refused.err
    assert end.code == 93, end
    assert "import_error" in end.err
    assert "s3cret" not in end.err + refused.err


def test_an_mcp_server_started_by_the_leader_stops_the_job(site: Site) -> None:
    job = script(site.folder, IMPORTS_NOTHING_THERE)
    how = ("--ft-attribution-enable-mcp", "--ft-attribution-decision-timeout", "60")
    end = site.run(*how, "--max-restarts", "2", str(job))
    assert end.code == 93, end
    info = site.cycle(0)
    assert (info["decided_by"], info["finding"]["class"]) == ("mcp", "import_error")


class Peer(BaseHTTPRequestHandler):
    """`POST /logs` and `GET /logs` and nothing else; decided at the third question."""

    told: list[dict[str, Any]]
    asked: int

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/logs":
            type(self).told.append(body)
        self._send(200 if self.path == "/logs" else 404, {"submitted": True})

    def do_GET(self) -> None:
        if not self.path.startswith("/logs?"):
            self._send(404, {"detail": "Not Found"})
            return
        type(self).asked += 1
        done = type(self).asked >= 2
        action = {"action": "STOP" if done else "UNKNOWN", "reason": "peer says", "source": "peer"}
        self._send(200, {"status": "completed" if done else "pending", "recommendation": action})

    def _send(self, code: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


def test_a_server_that_knows_only_the_peer_s_wire_is_spoken_to_in_it(site: Site) -> None:
    job = script(site.folder, "sys.exit(3)")
    Peer.told, Peer.asked = [], 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Peer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        end = site.run("--ft-attribution-http-url", url, "--max-restarts", "2", str(job))
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert end.code == 93, end
    assert "peer says" in end.err
    (told,) = Peer.told
    assert told["analysis_intent"] == "terminal"
    assert told["cycle_id"] == 0
    assert Path(told["log_path"]).name == "rank_0.err"
