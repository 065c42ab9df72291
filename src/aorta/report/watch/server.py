"""The read-only server of a live page: `/` is the page, `/events` tells its changes as server-sent events.

On the loopback by default. Every request must carry a token, which is part of the address: a loopback port is open to every user of
the machine, and to web pages elsewhere through a name that they point at us.
"""

import json
import secrets
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from aorta.core.errors import InfrastructureError
from aorta.report.markup import Markup, el
from aorta.report.watch.following import Following, whole_page

LOOPBACK = "127.0.0.1"
_HEARTBEAT = 10.0
_GOODBYE = 2.0  # seconds a run may end later because somebody looks
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'nonce-{nonce}'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class WatchServer:
    """Serves one run directory until it is closed."""

    def __init__(self, path: Path, host: str = LOOPBACK, port: int = 0) -> None:
        self.token = secrets.token_urlsafe(18)
        self.following = Following(path)
        try:
            self._server = _Server((host, port), self)
        except OSError as wrong:
            self.following.close()
            raise InfrastructureError(
                f"cannot listen on {host}:{port}: {wrong.strerror}; choose another --port"
            ) from None
        self.host, self.port = host, self._server.server_address[1]

    @property
    def address(self) -> str:
        """What to open; anyone who has it may look."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{shown}:{self.port}/?token={self.token}"

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.2)

    def serve_aside(self) -> None:
        """In a thread, while the caller goes on."""
        threading.Thread(target=self.serve, name="aorta-watch-server", daemon=True).start()

    def stop(self) -> None:
        """For another thread than the serving one. Viewers get the last picture, and are told that it is the last."""
        self.following.refresh()
        self.following.close()
        self._server.wait_for_viewers(_GOODBYE)
        self._server.shutdown()
        self.close()

    def close(self) -> None:
        self.following.close()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], watch: WatchServer) -> None:
        self.watch = watch
        self._viewers = 0
        self._gone = threading.Condition()
        super().__init__(address, _Handler)

    def count_viewer(self, change: int) -> None:
        with self._gone:
            self._viewers += change
            self._gone.notify_all()

    def wait_for_viewers(self, patience: float) -> None:
        with self._gone:
            self._gone.wait_for(lambda: self._viewers == 0, patience)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        place = urlsplit(self.path)
        if not self._may_read(place.query):
            self._refuse(HTTPStatus.FORBIDDEN)
        elif place.path == "/":
            self._page()
        elif place.path == "/events":
            self._events()
        else:
            self._refuse(HTTPStatus.NOT_FOUND)

    def log_message(self, *_: Any, **__: Any) -> None:
        """Requests carry the token, and a terminal that shows a run has no room for them."""

    def version_string(self) -> str:
        return "aorta"

    def _may_read(self, query: str) -> bool:
        given = parse_qs(query).get("token", [""])[0]
        return secrets.compare_digest(given.encode(), self.server.watch.token.encode())

    def _refuse(self, status: HTTPStatus) -> None:
        self._answer(status, "text/plain; charset=utf-8", f"{status.phrase}\n".encode())

    def _page(self) -> None:
        nonce = secrets.token_urlsafe(12)
        code = files(__package__).joinpath("live.js").read_text("utf-8")
        script = el("script", Markup(code), nonce=nonce)
        live = Markup(
            f"{el('p', 'live', id='live', role='status')}"
            f"{el('p', id='said', class_='unseen', aria_live='polite')}"
        )
        text = whole_page(self.server.watch.following, live, script)
        policy = _POLICY.format(nonce=nonce)
        self._answer(HTTPStatus.OK, "text/html; charset=utf-8", text.encode(), policy)

    def _answer(self, status: HTTPStatus, kind: str, body: bytes, policy: str = "") -> None:
        self.send_response(status)
        self._usual_headers(kind)
        self.send_header("Content-Length", str(len(body)))
        if policy:
            self.send_header("Content-Security-Policy", policy)
        self.end_headers()
        self.wfile.write(body)

    def _usual_headers(self, kind: str) -> None:
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")

    def _events(self) -> None:
        self.close_connection = True
        self.send_response(HTTPStatus.OK)
        self._usual_headers("text/event-stream; charset=utf-8")
        self.end_headers()
        self.server.count_viewer(1)
        try:
            self._tell()
        except OSError:
            return  # the viewer has gone
        finally:
            self.server.count_viewer(-1)

    def _tell(self) -> None:
        following, seen = self.server.watch.following, 0
        while True:
            moment = following.after(seen, _HEARTBEAT)
            if moment is not None:
                seen = moment.number
                data = json.dumps({"fragment": moment.fragment, "state": moment.state})
                self.wfile.write(f"event: page\ndata: {data}\n\n".encode())
            elif following.closed:
                self.wfile.write(b"event: bye\ndata: -\n\n")
                return
            else:
                self.wfile.write(b": still here\n\n")
