"""One run of the suite is the same wherever it is started: in the background, beside another, on a
busy machine.

A plugin of pytest: it gives the run a base folder of its own, children that hear Ctrl-C and start
fast, time that grows with the load, leftovers that are laid at the right door, and a last word
about services that had to be started again.
"""

import gc
import os
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from support.services import health
from support.waiting import patience

SHARED = "AORTA_TESTS_SHARED"  # the variable with the folder that all workers of a run see
_HANGS_AFTER = 600.0  # seconds on an idle machine: no test takes a tenth of it
_ABOUT_SPEED = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
_OF_A_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
_DEAF_TO = pytest.StashKey[list[int]]()
_KEPT = pytest.StashKey[Path]()
_STARTED_AGAIN: list[str] = []
_SLOW_LOOK = 0.003  # seconds of this thread: thousands of tests are looked after

# The same examples in every run, so that what lands is what was tried; `make fuzz` draws new ones.
settings.register_profile(
    "any machine",
    deadline=None,
    suppress_health_check=_ABOUT_SPEED,
    derandomize="AORTA_TESTS_FUZZ" not in os.environ,
)
settings.load_profile("any machine")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    told = getattr(config, "workerinput", {}).get("deaf_to", [])
    config.stash[_DEAF_TO] = told or [
        n for n in _OF_A_TERMINAL if signal.getsignal(n) is signal.SIG_IGN
    ]
    for number in config.stash[_DEAF_TO]:
        _let_only_children_hear(number)
    # until all is collected: nothing of it goes, and each look at all of it takes 0.3 s
    gc.disable()
    _spare_children(os.environ)
    if not _is_worker(config):
        os.environ[SHARED] = tempfile.mkdtemp(prefix="aorta-shared-")
        if config.option.basetemp is None:
            config.stash[_KEPT] = Path(tempfile.mkdtemp(prefix="aorta-tests-"))
            config.option.basetemp = str(config.stash[_KEPT])
        if config.option.timeout is None:
            config.option.timeout = patience(_HANGS_AFTER)


def _spare_children(environ: MutableMapping[str, str]) -> None:
    """Of the thousands that are started none compiles us again, and their `python3` is this one,
    not a shim before it.
    """
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environ["PATH"]])


def _let_only_children_hear(number: int) -> None:
    """What a shell puts in the background ignores Ctrl-C, under `nohup` also a hang-up, and so does
    every child of it.

    A handler is not: whoever is started by a test has the usual disposition, and the run itself
    stays deaf.
    """
    signal.signal(number, lambda *_: None)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["deaf_to"] = [int(number) for number in node.config.stash[_DEAF_TO]]


def pytest_collection_finish() -> None:
    """What is loaded by now stays: with it set aside, looking for what one test left takes a
    millisecond.
    """
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _leftovers_are_the_tests_own() -> Iterator[None]:
    """A file or process that a test forgot complains here, not in whichever test happens to run
    when it is found.
    """
    yield
    began = time.thread_time()
    gc.collect()
    if time.thread_time() - began > _SLOW_LOOK:
        gc.freeze()  # what tests have loaded since, as ray or a compiler of torch, stays as well


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config: Any = session.config
    if _is_worker(config):
        config.workeroutput["started_again"] = health.started_again()
        return
    shutil.rmtree(os.environ[SHARED], ignore_errors=True)
    if exitstatus == pytest.ExitCode.OK and _KEPT in config.stash:
        shutil.rmtree(config.stash[_KEPT], ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    _STARTED_AGAIN.extend(getattr(node, "workeroutput", {}).get("started_again", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    again = [*_STARTED_AGAIN, *health.started_again()]
    if again:
        terminalreporter.section("services that were started again")
        for line in again:
            terminalreporter.line(line)
    kept = terminalreporter.config.stash.get(_KEPT, None)
    if kept is not None and kept.exists():
        terminalreporter.line(f"what the tests wrote is kept in {kept}")


def pytest_unconfigure() -> None:
    """Every test is over: what other people's code complains of from here on is printed, and fails
    nothing.
    """
    warnings.simplefilter("default")
