"""The page of a run while it goes on: the server whose page asks for itself every second, and the
page beside a verb's own run (`--watch`), from its first event to the end of the command.

It reads the directory anew, so it works on one that another host writes, before the run has begun
to write and after its process is gone.
"""

import json
import math
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from aorta.core.errors import AortaError, InfrastructureError
from aorta.engine import events
from aorta.engine.events import Event, Listener
from aorta.engine.rundir import RunDir
from aorta.report.building import page_of, reader_of
from aorta.report.html import content, document
from aorta.report.page import FactRows, Headline, Markup, Page, Tone, el
from aorta.report.run_reader import RunReader

_LOOK_EVERY = 0.5
_SHARE_OF_TIME = 0.1  # making pages may take at most this much of one core


class LivePage:
    """The page of a directory as it is now, made anew when somebody asks; `number` grows with every
    change.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number, self.fragment, self.state = 0, "", ""
        self._reader: RunReader | None = None
        self._not_before = 0.0

    def refresh(self, *, now: bool = False) -> None:
        """The page as it is, or was a moment ago unless it must be `now`."""
        began = time.monotonic()
        if not now and began < self._not_before:
            return
        page = self.page()
        fragment = content(page)
        spent = time.monotonic() - began
        self._not_before = began + spent + max(_LOOK_EVERY, spent / _SHARE_OF_TIME)
        if fragment != self.fragment:
            state = next((str(value) for name, value in page.facts.rows if name == "State"), "")
            self.number, self.fragment, self.state = self.number + 1, fragment, state

    def page(self) -> Page:
        """The page now; of a directory that cannot be read yet, the reason."""
        try:
            self._reader = self._reader or reader_of(self.path)
            return page_of(self._reader.open())
        except AortaError as wrong:
            return Page("watch", self.path.name, Headline(wrong.message, Tone.UNSURE), FactRows([]))


LOOPBACK = "127.0.0.1"
# Seconds a run may end later because a page is open that has asked in as many before.
_GOODBYE = 5.0
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'nonce-{nonce}'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class WatchServer:
    """Serves one run directory until it is closed."""

    def __init__(self, path: Path, host: str = LOOPBACK, port: int = 0) -> None:
        self.token = secrets.token_urlsafe(18)
        self.ended = False
        self._live = LivePage(path)
        # One at a time: the scrubber learns while it reads, and no older page replaces a newer one.
        self._reading = threading.Lock()
        self._asked_at = -math.inf
        self._seen_last = threading.Event()
        try:
            self._server = ThreadingHTTPServer((host, port), partial(_Handler, self))
        except OSError as wrong:
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

    def whole_page(self, live: Markup, script: Markup) -> str:
        with self._reading:
            return document(self._live.page(), script=script, live=live)

    def news(self, seen: int) -> dict[str, Any]:
        """For a viewer who has seen the page number `seen`: the page, where it has changed."""
        with self._reading:
            ended, live = self.ended, self._live
            live.refresh(now=ended)
            self._asked_at = time.monotonic()
            page = {"fragment": live.fragment} if live.number > seen else {}
            return {"number": live.number, "state": live.state, "ended": ended, **page}

    def sent(self, news: Mapping[str, Any]) -> None:
        """The viewer has it."""
        if news["ended"]:
            self._seen_last.set()

    def stop(self) -> None:
        """For another thread. Who looks gets the last page, and reads that it is the last."""
        self.ended = True
        if time.monotonic() - self._asked_at < _GOODBYE:
            self._seen_last.wait(_GOODBYE)
        self._server.shutdown()
        self.close()

    def close(self) -> None:
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def __init__(self, watch: WatchServer, *connection: Any) -> None:
        self._watch = watch
        super().__init__(*connection)

    def do_GET(self) -> None:
        place = urlsplit(self.path)
        if not self._may_read(place.query):
            self._refuse(HTTPStatus.FORBIDDEN)
        elif place.path == "/":
            self._page()
        elif place.path == "/news":
            self._news(place.query)
        else:
            self._refuse(HTTPStatus.NOT_FOUND)

    def log_message(self, *_: Any, **__: Any) -> None:
        """Requests carry the token, and a terminal that shows a run has no room for them."""

    def _may_read(self, query: str) -> bool:
        given = parse_qs(query).get("token", [""])[0]
        return secrets.compare_digest(given.encode(), self._watch.token.encode())

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
        text = self._watch.whole_page(live, script)
        policy = _POLICY.format(nonce=nonce)
        self._answer(HTTPStatus.OK, "text/html; charset=utf-8", text.encode(), policy)

    def _answer(self, status: HTTPStatus, kind: str, body: bytes, policy: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Content-Length", str(len(body)))
        if policy:
            self.send_header("Content-Security-Policy", policy)
        self.end_headers()
        self.wfile.write(body)

    def _news(self, query: str) -> None:
        seen = parse_qs(query).get("seen", ["0"])[0]
        news = self._watch.news(int(seen) if seen.isdecimal() else 0)
        self._answer(HTTPStatus.OK, "application/json", json.dumps(news).encode())
        self._watch.sent(news)


class WatchBeside:
    """Passes events on to the other views, which also print the address."""

    def __init__(self, views: Sequence[Listener], say: Callable[[str], None]) -> None:
        self._views = views
        self._say = say
        self._server: WatchServer | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, events.RunStarted) and self._server is None:
            self._server = WatchServer(run_of(event.run_dir))
            self._server.serve_aside()
            self._tell(f"watch it at {self._server.address}")
        for view in self._views:
            view(event)

    def close(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def _tell(self, words: str) -> None:
        if not self._views:
            self._say(words)
        for view in self._views:
            view(events.Note(words))


def run_of(path: Path) -> Path:
    """The run that a stage belongs to: the outermost run directory around it, such as RUN of
    `RUN/stages/NAME`, and of `RUN/.aorta/STAGE/NAME` in a solve.
    """
    around = [above for above in path.absolute().parents[:3] if RunDir(above).about()]
    return around[-1] if around else path
