"""torchrun in a command line: how many ranks it starts, and where each rank's output goes.

A command is text for a shell or a list of words; both are only changed at the launcher's own options. Where the launcher
stands inside a script, torchrun's own variables (`PET_...`) say the same.
"""

import re
from collections.abc import Sequence
from pathlib import Path

Command = tuple[str, ...]

_LAUNCHER = re.compile(r"(?:\S*/)?torchrun\b|-m\s+torch\.distributed\.(?:run|launch)\b")
_NPROC = re.compile(r"(--nproc[-_]per[-_]node)(\s*=\s*|\s+)(\S+)")
_NNODES = re.compile(r"(--nnodes)(\s*=\s*|\s+)(\S+)")
_LOGGING = re.compile(r"--log[-_]dir\b|--redirects\b|--tee\b|(?<!\S)-[rt]\b")


def is_launched(argv: Sequence[str]) -> bool:
    return _LAUNCHER.search(" ".join(argv)) is not None


def with_world_size(argv: Command, ranks: int) -> Command:
    """The command with so many ranks: as few nodes as the original's ranks a node allow."""
    most = _first_number(argv, _NPROC) or ranks
    nodes = next(n for n in range(1, ranks + 1) if ranks % n == 0 and ranks // n <= most)
    argv = _rewritten(argv, _NNODES, str(nodes))
    if _position(argv, _NPROC) is not None:
        return _rewritten(argv, _NPROC, str(ranks // nodes))
    return _inserted(argv, ["--nproc-per-node", str(ranks // nodes)])


def world_size_variables(ranks: int) -> dict[str, str]:
    """For launchers inside scripts: what torchrun reads by itself."""
    return {"PET_NPROC_PER_NODE": str(ranks), "NPROC_PER_NODE": str(ranks)}


def with_rank_logs(argv: Command, folder: Path) -> Command:
    """Each rank's output also in files of its own, unless the command already says where it goes."""
    if not is_launched(argv) or any(_LOGGING.search(part) for part in _launcher_part(argv)):
        return argv
    return _inserted(argv, ["--log-dir", str(folder), "--tee", "3"])


def _launcher_part(argv: Command) -> Command:
    """The words from the launcher on up to the script: what follows belongs to the script."""
    text = " ".join(argv)
    match = _LAUNCHER.search(text)
    behind = text[match.end() :] if match else ""
    script = re.search(r"\S+\.(?:py|sh)\b", behind)
    return (behind[: script.start()] if script else behind,)


def _position(argv: Command, option: re.Pattern[str]) -> int | None:
    """The index of the part that names the option; a list spreads it over two."""
    for index, part in enumerate(argv):
        value = argv[index + 1] if index + 1 < len(argv) else ""
        if option.search(part) or (option.search(f"{part} {value}") and part.startswith("--")):
            return index
    return None


def _first_number(argv: Command, option: re.Pattern[str]) -> int | None:
    match = option.search(" ".join(argv))
    digits = re.match(r"\d+", match.group(3)) if match else None
    return int(digits.group()) if digits else None


def _rewritten(argv: Command, option: re.Pattern[str], value: str) -> Command:
    index = _position(argv, option)
    if index is None:
        return argv
    if option.search(argv[index]):
        changed = option.sub(rf"\g<1>\g<2>{value}", argv[index])
        return (*argv[:index], changed, *argv[index + 1 :])
    return (*argv[: index + 1], value, *argv[index + 2 :])


def _inserted(argv: Command, words: list[str]) -> Command:
    """Options right behind the launcher; nothing where there is none."""
    for index, part in enumerate(argv):
        match = _LAUNCHER.search(part)
        if match and " " in part.strip():
            text = " ".join(_quoted(word) for word in words)
            return (
                *argv[:index],
                f"{part[: match.end()]} {text}{part[match.end() :]}",
                *argv[index + 1 :],
            )
        if match:
            return (*argv[: index + 1], *words, *argv[index + 1 :])
        if part == "-m" and _LAUNCHER.search(" ".join(argv[index : index + 2])):
            return (*argv[: index + 2], *words, *argv[index + 2 :])
    return argv


def _quoted(word: str) -> str:
    import shlex

    return shlex.quote(word)
