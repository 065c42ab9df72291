"""The page of a run while it goes on: what notices that a run directory has changed and makes its
page anew, the server that shows it, and the page beside a verb's own run (`--watch`), from its
first event to the end of the command.

It looks at the files themselves, so it works on a directory that another host writes, before the
run has begun to write and after its process is gone.
"""

import json
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from aorta.report.markup import Markup, el
from aorta.report.model import FactRows, Headline, Page, Tone
from aorta.report.run_reader import RunReader, state_of

_LOOK_EVERY = 0.5
_SHARE_OF_TIME = 0.1  # making pages may take at most this much of one core
_WATCHED = (
    ".aorta/journal.jsonl",
    ".aorta/run.json",
    ".aorta/lock",
    "result.json",
    "matrix.json",
    "optimize.json",
    "timeline.json",
    "reduction_trace.jsonl",
    "stages/*/.aorta/journal.jsonl",
    "cycle_*/cycle_info.json",
    "current/rank_*.out",
    "current/rank_*.err",
    "case",
)
Stamp = tuple[object, ...]


@dataclass(frozen=True)
class Moment:
    """The page at one time; `number` grows with every change."""

    number: int
    fragment: str
    state: str


class Following:
    """Looks in a thread of its own until it is closed; readers wait for the next moment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader: RunReader | None = None
        self._reading = threading.Lock()  # its scrubber learns while it reads
        self._refreshing = threading.Lock()  # an older picture never replaces a newer one
        self._changed = threading.Condition()
        self._closed = False
        self._stamp: Stamp | None = None
        self._moment = self._made(1)
        self._thread = threading.Thread(target=self._look, name="aorta-watch", daemon=True)
        self._thread.start()

    @property
    def moment(self) -> Moment:
        return self._moment

    @property
    def closed(self) -> bool:
        return self._closed

    def page(self) -> Page:
        """The page now; of a directory that cannot be read yet, the reason."""
        try:
            with self._reading:
                self._reader = self._reader or reader_of(self.path)
                return page_of(self._reader.open())
        except AortaError as wrong:
            return Page("watch", self.path.name, Headline(wrong.message, Tone.UNSURE), FactRows([]))

    def after(self, number: int, patience: float) -> Moment | None:
        """The moment after `number`, or None if there is none within `patience` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._moment.number > number or self._closed, patience)
            return self._moment if self._moment.number > number else None

    def refresh(self) -> None:
        """Look once more, now."""
        with self._refreshing:
            made = self._made(self._moment.number + 1)
            with self._changed:
                if made.fragment != self._moment.fragment:
                    self._moment = made
                self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(5)

    def _look(self) -> None:
        while not self._closed:
            began = time.monotonic()
            if self._stamp != self._stamp_now():
                self.refresh()
            spent = time.monotonic() - began
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closed, max(_LOOK_EVERY, spent / _SHARE_OF_TIME)
                )

    def _made(self, number: int) -> Moment:
        # Before reading: what changes meanwhile is seen next time.
        self._stamp = self._stamp_now()
        page = self.page()
        state = next((str(value) for name, value in page.facts.rows if name == "State"), "")
        return Moment(number, content(page), state)

    def _stamp_now(self) -> Stamp:
        """The files, and whether the process lives: a death writes nothing."""
        state = state_of(self.path, self._reader.verb) if self._reader else ""
        return (state, *_files_of(self.path))


def whole_page(following: Following, live: Markup, script: Markup) -> str:
    return document(following.page(), script=script, live=live)


def _files_of(path: Path) -> Stamp:
    found: list[object] = []
    for pattern in _WATCHED:
        for file in sorted(path.glob(pattern)):
            try:
                status = file.stat()
            except OSError:
                continue
            found.append((str(file), status.st_size, status.st_mtime_ns))
    return tuple(found)


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
        """For another thread. Viewers get the last picture, and are told that it is the last."""
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
    """The run that a stage belongs to: `RUN/stages/NAME` is part of RUN."""
    above = path.parent.parent
    return above if path.parent.name == "stages" and RunDir(above).about() else path
