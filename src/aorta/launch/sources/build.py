"""From the settings to the one list of sources. No other place knows which kinds there are."""

import os
import threading
from pathlib import Path

from aorta.launch.config import FaultTolerance
from aorta.launch.sources import DecisionSource, inprocess, mcp
from aorta.launch.sources.http import HttpSource
from aorta.launch.sources.local import LocalSource

TOKEN_VARIABLE = "AORTA_ATTRSVC_TOKEN"  # noqa: S105 - the name of a variable, not a secret


def build_sources(settings: FaultTolerance, log_dir: Path) -> list[DecisionSource]:
    wanted = settings.attribution
    sources: list[DecisionSource] = []
    if wanted.attrsvc_url is not None:
        token = os.environ.get(TOKEN_VARIABLE)
        sources.append(HttpSource(wanted.attrsvc_url, "attrsvc", wanted.timeout_seconds, token))
    if wanted.enable_mcp:
        analysis = mcp.McpAnalysis(log_dir, wanted.timeout_seconds)
        sources.append(LocalSource(mcp.NAME, analysis))
    sources += [HttpSource(url, "http", wanted.timeout_seconds) for url in wanted.http_urls]
    if sources:
        return sources
    # No daemon: an interpreter that ends while this thread is inside a C++ library aborts instead of exiting.
    threading.Thread(target=inprocess.warm_up).start()
    return [LocalSource(inprocess.NAME, inprocess.analyse)]
