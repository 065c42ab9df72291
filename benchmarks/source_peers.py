"""The same failing program given to other reducers.

shrinkray gets all modules as one file, as `aorta reduce --source` begins, and the same question:
does it end with the same code and the same last line? It is run as its own program, found on the
PATH, so that it may have another Python; the executions of its test are counted by the test itself.

torch's minifier is run as its documentation says: the program with `TORCHDYNAMO_REPRO_AFTER` writes
a launcher, which makes the graph smaller. Its executions are its queries of the graph.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aorta.reduce.source.inline import closed, inlined, unreached
from aorta.reduce.source.program import read_facts
from aorta.reduce.source.running import with_main
from aorta.reduce.source.tree import count_lines
from aorta.reduce.source.trials import entry_of

MOST_EXECUTIONS = 1000
_NOT_PART = shutil.ignore_patterns(".git", "reduce")
_TEST = """#!/bin/sh
echo >> {count}
made=$(mktemp -d {scratch}/XXXXXX)
cp -rs {program}/. "$made"
cp --remove-destination "$1" "$made/repro.py"
cd "$made" || exit 1
timeout {seconds} {python} repro.py > /dev/null 2> stderr.log
code=$?
tail -n 1 stderr.log > last.log
cmp -s last.log {expected}
differs=$?
cd / && rm -rf "$made"
[ $code = {code} ] && [ $differs = 0 ]
"""


@dataclass(frozen=True)
class Peer:
    """What a reducer came to; `note` says why there is no figure, or how it ended. `kept`: its
    script, alone in an empty folder, ends with the words of the failure.
    """

    name: str
    lines: int = 0
    executions: int = 0
    seconds: float = 0.0
    note: str = ""
    kept: bool = False


def last_words(text: str) -> str:
    """The exception's line of the last traceback, which a progress bar may follow; else the last
    line.
    """
    _, found, trace = text.rpartition("Traceback (most recent call last):\n")
    lines = [line for line in trace.splitlines() if line and not line.startswith(" ")]
    return lines[0] if found and lines else text.strip().rpartition("\n")[2]


def by_shrinkray(
    program: Path, facts: Path, command: Sequence[str], env: Mapping[str, str], most: float
) -> Peer:
    """`facts` is what aorta's traced run of the original wrote down; `most` seconds are given."""
    shrinkray = shutil.which("shrinkray")
    if shrinkray is None:
        return Peer("shrinkray", note="it is not installed")
    place = program.parent / "shrinkray"
    (place / "scratch").mkdir(parents=True)
    beside = place / "program"
    shutil.copytree(program, beside, symlinks=True, ignore=_NOT_PART)
    file = place / "repro.py"
    file.write_text(_one_file(program, facts, command), "utf-8")
    began = time.monotonic()
    alone = _run([sys.executable, str(file)], program, env)
    last = alone.stderr.strip().rpartition("\n")[2]
    if alone.returncode == 0:
        return Peer("shrinkray", note="the program as one file does not fail")
    count, expected = place / "count", place / "expected"
    expected.write_text(f"{last}\n", "utf-8")
    words = {"count": count, "scratch": place / "scratch", "program": beside, "expected": expected}
    quoted = {name: shlex.quote(str(path)) for name, path in words.items()}
    limit = max(10.0, 5 * (time.monotonic() - began))
    test = place / "test.sh"
    test.write_text(
        _TEST.format(
            **quoted,
            python=shlex.quote(sys.executable),
            seconds=f"{limit:.0f}",
            code=alone.returncode % 256,
        ),
        "utf-8",
    )
    test.chmod(0o755)
    options = ["--ui", "basic", "--parallelism", "2", "--timeout", f"{limit + 10:.0f}"]
    note, seconds = _watched([shrinkray, *options, str(test), str(file)], place, env, count, most)
    again = _run([sys.executable, str(file)], beside, env)
    kept = again.stderr.strip().rpartition("\n")[2] == last
    lines = count_lines(file.read_text("utf-8"))
    return Peer("shrinkray", lines, _executions(count), seconds, note, kept)


def by_torch_minifier(
    program: Path, command: Sequence[str], env: Mapping[str, str], most: float, after: str
) -> Peer:
    """`after` is where torch looks: `dynamo` (any backend) or `aot` (what inductor is given); empty
    for a failure that is none of `torch.compile`.
    """
    name = "torch's minifier"
    if not after:
        return Peer(name, note="not a failure of torch.compile")
    place = program.parent / "minifier"
    shutil.copytree(program, place, symlinks=True, ignore=_NOT_PART)
    env = {**env, "TORCHINDUCTOR_CACHE_DIR": str(place / "cache")}
    began = time.monotonic()
    first = _run(command, place, {**env, "TORCHDYNAMO_REPRO_AFTER": after})
    launcher = next(place.rglob("minifier_launcher.py"), None)
    if launcher is None:
        return Peer(name, note="the program wrote no launcher")
    words = ("timeout", f"{most:.0f}", sys.executable, str(launcher))
    minified = _run(words, place, env)
    seconds = time.monotonic() - began
    script = place / "repro.py"
    if not script.is_file():
        return Peer(name, seconds=seconds, note=last_words(minified.stderr)[:120] or "no script")
    made = re.search(r"Made (\d+) queries", minified.stdout + minified.stderr)
    alone = program.parent / "minified"
    alone.mkdir()
    shutil.copy(script, alone)
    shutil.rmtree(place)  # what it saved beside the script does not go with it
    again = last_words(_run([sys.executable, "repro.py"], alone, env).stderr)
    kept = again.rpartition(": ")[2] == last_words(first.stderr).rpartition(": ")[2]
    note = "stopped" if minified.returncode == 124 else ""
    lines = count_lines((alone / "repro.py").read_text("utf-8"))
    return Peer(name, lines, int(made[1]) if made else 0, seconds, note, kept)


def _run(
    words: Sequence[str], place: Path, env: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        words, cwd=place, env=env, capture_output=True, text=True, errors="replace", check=False
    )


def _one_file(program: Path, facts: Path, command: Sequence[str]) -> str:
    """The program as one file, with everything in it that can be."""
    seen = read_facts(facts)
    modules = with_main(seen.modules, entry_of(command, program))
    sources = {module.file: (program / module.file).read_text() for module in modules}
    stays = closed(modules, sources, unreached(modules, sources))
    return inlined(modules, sources, seen.argv, stays)


def _watched(
    words: Sequence[str], place: Path, env: Mapping[str, str], count: Path, most: float
) -> tuple[str, float]:
    """How it ended, and after how many seconds; it is stopped at either limit."""
    began = time.monotonic()
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(
            words,
            cwd=place,
            env={**env, "SHRINKRAY_LLM": "0"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        while process.poll() is None:
            spent = time.monotonic() - began
            if spent > most or _executions(count) >= MOST_EXECUTIONS:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return "stopped", spent
            time.sleep(0.2)
    if process.returncode:
        said = (place / "log").read_text("utf-8", "replace").strip().rpartition("\n")[2]
        return f"exit {process.returncode}: {said[-120:]}", time.monotonic() - began
    return "", time.monotonic() - began


def _executions(count: Path) -> int:
    return count.stat().st_size if count.is_file() else 0
