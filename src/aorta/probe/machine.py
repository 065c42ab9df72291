"""The machine to the probes: files under a root, variables, tools that may be missing or hang."""

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Probed:
    value: Any
    missing: tuple[str, ...] = ()  # "<field>: <cause>"


def missing_in(section: str, value: JsonObject, cause: str) -> tuple[str, ...]:
    """One line for every key of a section that is null."""
    return tuple(f"{section}.{key}: {cause}" for key, item in value.items() if item is None)


TOOL_TIMEOUT = 5.0
_MAX_TEXT = 1 << 20


@dataclass(frozen=True)
class ToolAnswer:
    """What a tool printed, or why there is nothing to read."""

    text: str = ""
    problem: str | None = None
    exit_code: int | None = None  # only where it ended by itself


@dataclass(frozen=True)
class Machine:
    root: Path
    environ: Mapping[str, str]

    @classmethod
    def here(cls) -> "Machine":
        return cls(Path("/"), os.environ)

    def path(self, absolute: str) -> Path:
        return self.root / absolute.lstrip("/")

    def text(self, absolute: str) -> str | None:
        """The stripped content of a small file, or None where there is none to be had."""
        return read_text(self.path(absolute))

    def children(self, absolute: str, pattern: str = "*") -> list[Path]:
        """What a directory holds, sorted; nothing where it cannot be read."""
        try:
            return sorted(self.path(absolute).glob(pattern))
        except OSError:
            return []

    def tool(self, name: str) -> str | None:
        return shutil.which(name, path=self.environ.get("PATH", os.defpath))

    def ask(self, tool: str, *arguments: str, timeout: float = TOOL_TIMEOUT) -> ToolAnswer:
        """Run a tool for its output: no input, so many seconds, its group dies with it."""
        program = self.tool(tool)
        if program is None:
            return ToolAnswer(problem=f"{tool} is not installed")
        try:
            process = subprocess.Popen(
                [program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**self.environ, "LC_ALL": "C"},
                start_new_session=True,
            )
        except OSError as wrong:
            return ToolAnswer(problem=f"{tool} could not be started: {wrong.strerror}")
        try:
            output = _output_of(process, time.monotonic() + timeout)
        except (TimeoutError, subprocess.TimeoutExpired):
            return ToolAnswer(problem=f"{tool} did not answer within {timeout:g} s")
        finally:
            _end(process)
        if len(output) > _MAX_TEXT:
            return ToolAnswer(problem=f"{tool} printed more than {_MAX_TEXT >> 20} MiB")
        code = process.returncode
        problem = f"{tool} ended with exit code {code}" if code else None
        return ToolAnswer(output.decode("utf-8", "replace").strip(), problem, code)


def pairs_in(text: str | None, separator: str) -> dict[str, str]:
    """The key and the value of every line that has the separator; the last of a key stands."""
    pairs = (line.split(separator, 1) for line in (text or "").splitlines() if separator in line)
    return {key.strip(): value.strip() for key, value in pairs}


def read_text(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_TEXT).decode("utf-8", "replace").strip("\0 \t\r\n")
    except OSError:
        return None


def _output_of(process: "subprocess.Popen[bytes]", deadline: float) -> bytes:
    """All it prints until it ends, or a little more than may be printed."""
    output = b""
    with selectors.DefaultSelector() as selector:
        assert process.stdout is not None
        selector.register(process.stdout, selectors.EVENT_READ)
        while len(output) <= _MAX_TEXT:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
                break
            output += piece
    return output


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a tool with its whole group: a hung driver query must not stay behind."""
    if process.stdout:
        process.stdout.close()
    if process.returncode is not None:
        return
    # Already over, or another user's.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in the kernel, as over a lost GPU
        process.wait(timeout=1)


# Every GPU has every key; null is unknown. Only what stays the same: no clocks, no free memory.
_GPU = ("vendor", "index", "name", "uuid", "pci", "memory_mib", "arch", "driver", "vbios", "source")


def gpu_record(**known: object) -> JsonObject:
    return {key: known.get(key) for key in _GPU}


def whole_number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


class GarbledError(Exception):
    """A vendor's tool failed, or said something that cannot be read."""
