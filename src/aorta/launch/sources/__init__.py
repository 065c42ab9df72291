"""The sources of verdicts: a service over HTTP, and attribution in this process."""

import os
import threading
from pathlib import Path

from aorta.attribution.client import JsonClient, token_for
from aorta.launch.config import FaultTolerance
from aorta.launch.records import DecisionSource
from aorta.launch.sources.http import HttpSource
from aorta.launch.sources.local import LocalSource, analyse, warm_up

_TOKEN = "AORTA_ATTRSVC_TOKEN"  # noqa: S105 - the name of a variable, not a secret


def build_sources(settings: FaultTolerance, log_dir: Path) -> list[DecisionSource]:
    """From the settings to the one list of sources. No other place knows which kinds there are.

    The token is taken out of this process's environment, which every worker inherits.
    """
    wanted = settings.attribution
    token = os.environ.pop(_TOKEN, None)
    timeout = wanted.timeout_seconds
    sources: list[DecisionSource] = []
    if wanted.attrsvc_url is not None:
        client = JsonClient(wanted.attrsvc_url, token, find_token=token_for)
        sources.append(HttpSource(client, "attrsvc", timeout))
    if wanted.enable_mcp:  # what `aorta mcp` would answer, by the same function
        sources.append(LocalSource("mcp", analyse))
    sources += [HttpSource(JsonClient(url), "http", timeout) for url in wanted.http_urls]
    sources = sources or [LocalSource("in-process", analyse)]
    if any(isinstance(source, LocalSource) for source in sources):
        threading.Thread(target=warm_up, daemon=True).start()
    return sources
