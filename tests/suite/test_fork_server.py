"""A command line that the fork server starts is the one that an interpreter starts."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import fork_server
from support.aorta_cli import environ
from support.processes import wait_until_gone
from support.waiting import patience

TOLD = """
import atexit, json, os, random, resource, signal, sys, threading
print(json.dumps({
    "name": __name__, "module": __spec__.name, "file": __file__, "main": sys.modules["__main__"].__dict__ is globals(),
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "cwd": os.getcwd(), "environ": dict(os.environ),
    "flags": repr(sys.flags), "executable": sys.executable, "read": sys.stdin.read(), "mask": os.umask(0),
    "streams": [(s.encoding, s.errors, s.line_buffering, s.newlines) for s in (sys.stdin, sys.stdout, sys.stderr)],
    "leads": os.getsid(0) == os.getpid(), "nice": os.nice(0), "open": sorted(os.listdir("/proc/self/fd")),
    "signals": {n: str(signal.getsignal(n)) for n in sorted(signal.valid_signals())},
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "threads": threading.active_count(),
    "limits": [resource.getrlimit(getattr(resource, n)) for n in sorted(dir(resource)) if n.startswith("RLIMIT_")],
    "children": resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, "main file": sys.modules["__main__"].__file__,
}, default=str), flush=True)
atexit.register(print, "at exit")
exec(sys.argv[1])
"""
ENDS = {
    "falling off its end": "pass",
    "an exit code": "sys.exit(3)",
    "no exit code": "sys.exit()",
    "a large exit code": "sys.exit(259)",
    "a thread that goes on": "threading.Timer(0.1, print, ['last']).start(); sys.exit(3)",
    "words that cannot be written": "atexit.unregister(print); sys.stdout = open('/dev/full', 'w'); print('lost'); sys.exit(3)",
    "a message": "sys.exit('not like this')",
    "an exception": "raise ValueError('no')",
    "no last words": "os._exit(4)",
    "a signal": "os.kill(os.getpid(), signal.SIGTERM)",
    "Ctrl-C": "os.kill(os.getpid(), signal.SIGINT)",
}


def ended(place: Path, last: str, **how: Any) -> tuple[int, Any, str, str]:
    env = environ({"ONE": "more", **how.pop("env", {})})
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = fork_server.start(
        last, "Ωmega", env=env, cwd=place, module="told", text=True, **streams, **how
    )
    with command as process:
        out, err = process.communicate("read me\n", timeout=patience())
    first, _, rest = out.partition("\n")
    frame = rf'  File "{re.escape(fork_server.__file__)}".*\n(?:    .*\n)*'  # its own, the first
    err = re.sub(frame, "", err)
    return process.returncode, json.loads(first), rest, err


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    (tmp_path / "told.py").write_text(TOLD)

    def run(last: str, **how: Any) -> list[Any]:
        found = [ended(tmp_path, last, **how)]
        monkeypatch.setenv(fork_server.COLD, "1")
        found.append(ended(tmp_path, last, **how))
        monkeypatch.delenv(fork_server.COLD)
        for _, told, _, _ in found:
            told["environ"].pop(fork_server.COLD, None)
        return found

    return run


@pytest.mark.parametrize("end", ENDS)
def test_a_forked_command_line_sees_and_leaves_what_one_started_from_nothing_does(
    end: str, both: Callable[..., list[Any]]
) -> None:
    forked, cold = both(ENDS[end], start_new_session=end == "a signal")
    assert forked == cold
    assert forked[1]["read"] == "read me\n"
    assert forked[1]["argv"][2] == "Ωmega"
    assert forked[1]["environ"]["ONE"] == "more"


@pytest.fixture
def small_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what is decided before anything of ours is imported: a server of its own that imports
    little.
    """
    monkeypatch.setattr(fork_server, "_PLAIN", ("aorta.cli.app",))


@pytest.mark.usefixtures("small_server")
@pytest.mark.parametrize("variable", ["PYTHONPATH", "PYTHONHASHSEED", "PYTHONUNBUFFERED", "LC_ALL"])
def test_what_an_interpreter_reads_only_at_its_start_is_read(
    variable: str, both: Callable[..., list[Any]]
) -> None:
    value = {"PYTHONPATH": "/elsewhere", "LC_ALL": "C"}.get(variable, "1")
    forked, cold = both(
        "print(hash('a') * (sys.flags.hash_randomization == 0))", env={variable: value}
    )
    assert forked == cold


@pytest.mark.usefixtures("small_server")
@pytest.mark.parametrize("name", ["mine", "sitecustomize", "colorsys"])
def test_further_folders_of_a_pythonpath_are_searched_as_if_read_at_the_start(
    name: str, both: Callable[..., list[Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / f"{name}.py").write_text("mine = 'found'")
    paths = os.pathsep.join([environ()["PYTHONPATH"], str(folder), str(tmp_path), str(folder)])
    last = f"print('{name}' in sys.modules); import {name}; print({name}.mine)"
    forked, cold = both(last, env={"PYTHONPATH": paths})
    assert forked == cold
    assert forked[2] == f"{name == 'sitecustomize'}\nfound\nat exit\n"


@pytest.mark.usefixtures("small_server")
def test_what_a_process_inherits_is_inherited(
    both: Callable[..., list[Any]], request: pytest.FixtureRequest
) -> None:
    mask, limit = os.umask(0o027), resource.getrlimit(resource.RLIMIT_CORE)
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, limit[1]))
    request.addfinalizer(lambda: resource.setrlimit(resource.RLIMIT_CORE, limit))
    request.addfinalizer(lambda: signal.signal(signal.SIGHUP, handler))
    request.addfinalizer(lambda: os.umask(mask))
    forked, cold = both("pass")
    assert forked == cold
    assert forked[1]["mask"] == 0o027
    assert forked[1]["signals"][str(int(signal.SIGHUP))] == str(signal.SIG_IGN)


def test_a_forked_command_line_is_signalled_polled_and_waited_for_like_any_child(
    tmp_path: Path,
) -> None:
    (tmp_path / "told.py").write_text("import time; print('here', flush=True); time.sleep(600)")
    process = fork_server.start(
        env=environ(), cwd=tmp_path, module="told", stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait(patience()) == -signal.SIGKILL
    wait_until_gone(process.pid)


# Each in a process that has none of ours, though all that is not ours: that alone takes most of the
# time.
ALONE = """
import importlib, os, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
for name in [name for name in sys.modules if name.partition(".")[0] == "aorta"]:
    del sys.modules[name]
for name in [*sys.argv[1:], "aorta.nowhere"]:
    if os.fork() == 0:
        importlib.import_module(name)
        os._exit(0)
    if os.wait()[1]:
        print(name)
"""


def test_every_verb_can_be_imported_on_its_own() -> None:
    """What the server has imported before might hide that one needs another; a verb with a server
    of its own has no other.
    """
    modules = [name.partition(":")[0] for name in fork_server._PLAIN]
    command = [sys.executable, "-c", ALONE, *modules]
    done = subprocess.run(command, env=environ(), capture_output=True, text=True, check=True)
    assert done.stdout == "aorta.nowhere\n", done.stderr
