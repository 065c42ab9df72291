"""A real headless Chromium, driven over the DevTools protocol through a pipe: no port, no download,
no library.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from support.services import health
from support.waiting import patience

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip


class Chromium:
    """One browser process with a profile of its own; pages are opened in it one after the other."""

    def __init__(self) -> None:
        self.what = "chromium"
        self._start()
        health.watch(self)

    def _start(self) -> None:
        self._profile = tempfile.mkdtemp(prefix="aorta-chromium-")
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # Chromium speaks on descriptors 3 and 4, whatever numbers the pipes have here.
        command = f'exec chromium "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ("bash", "-c", command, "chromium", *_FLAGS, f"--user-data-dir={self._profile}"),
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        os.set_blocking(self._read, False)
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + patience()
        while time.monotonic() < deadline:
            arrived = self._messages()
            self.events += [message for message in arrived if "id" not in message]
            for answer in arrived:
                if answer.get("id") == self._number:
                    assert "error" not in answer, answer
                    result: dict[str, Any] = answer["result"]
                    return result
        raise AssertionError(f"no answer to {method}")

    def wait_for(self, method: str, session: str) -> dict[str, Any]:
        """The next event of this kind that has not been asked for."""
        deadline = time.monotonic() + patience()
        while time.monotonic() < deadline:
            for event in self.events:
                if event.get("method") == method and event.get("sessionId") == session:
                    self.events.remove(event)
                    return event
            self.events.extend(self._messages())
        raise AssertionError(f"{method} did not happen")

    def pump(self, seconds: float) -> None:
        """Take in what happens meanwhile."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.events.extend(self._messages())

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def start_again(self) -> None:
        self._clear()
        self._start()

    def close(self) -> None:
        health.forget(self)
        self._clear()

    def _clear(self) -> None:
        for descriptor in (self._write, self._read):
            os.close(descriptor)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)

    def _messages(self) -> list[dict[str, Any]]:
        try:
            data = os.read(self._read, 1 << 20)
            assert data, "the browser has ended"
            self._buffer += data
        except BlockingIOError:
            time.sleep(0.01)
        *whole, self._buffer = self._buffer.split(b"\0")
        return [json.loads(message) for message in whole]


class Tab:
    """One page at one width, with everything that it said and asked for since it was opened."""

    def __init__(
        self, browser: Chromium, width: int, height: int, *, dark: bool, media: str
    ) -> None:
        self._browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._target = target
        attached = browser.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session: str = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")
        self.show_at(width, height, dark=dark, media=media)

    def show_at(
        self, width: int, height: int = 900, *, dark: bool = False, media: str = ""
    ) -> None:
        """The same page on another screen, or paper."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 720}
        self._call("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def open(self, address: str) -> "Tab":
        self._browser.events = [
            e for e in self._browser.events if e.get("sessionId") != self._session
        ]
        self._call("Page.navigate", url=address)
        self._browser.wait_for("Page.loadEventFired", self._session)
        self._browser.pump(0.15)
        return self

    def evaluate(self, expression: str) -> Any:
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str) -> Any:
        """Wait until the expression is true in the page."""
        deadline = time.monotonic() + patience()
        while time.monotonic() < deadline:
            if value := self.evaluate(expression):
                return value
            self._browser.pump(0.1)
        raise AssertionError(f"never became true: {expression}")

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and exceptions."""
        kinds = {"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"}
        return [json.dumps(event["params"]) for event in self._mine() if event["method"] in kinds]

    @property
    def requests(self) -> list[str]:
        """Everything it asked for, the page itself among it; data inside the page is no request."""
        asked = [e for e in self._mine() if e["method"] == "Network.requestWillBeSent"]
        addresses = [event["params"]["request"]["url"] for event in asked]
        return [address for address in addresses if not address.startswith("data:")]

    def screenshot(self, path: Path, *, most: int = 4000) -> None:
        """The whole page, as far as `most` pixels down."""
        height = min(most, int(self.evaluate("document.documentElement.scrollHeight")))
        width = int(self.evaluate("window.innerWidth"))
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = self._call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def _mine(self) -> list[dict[str, Any]]:
        return [e for e in self._browser.events if e.get("sessionId") == self._session]


@contextmanager
def tab(
    browser: Chromium, width: int, *, height: int = 900, dark: bool = False, media: str = ""
) -> Iterator[Tab]:
    opened = Tab(browser, width, height, dark=dark, media=media)
    try:
        yield opened
    finally:
        opened.close()
