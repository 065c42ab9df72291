"""torchrun in a command line: how many ranks it starts, and where each rank's output goes.

A command is one text for a shell, or a list of words. It is changed only at the options of a word
that is the launcher itself: where a program is started, never where one is an argument. Where the
launcher stands inside a script, torchrun's own variables (`PET_...`) say the same.
"""

import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

Command = tuple[str, ...]
PYTHON = re.compile(r"(?:.*/)?python[\d.]*")
# Programs that start the rest of their words as a command of its own.
_WRAPPERS = (
    "env|exec|command|nohup|nice|ionice|chrt|taskset|numactl|setsid|stdbuf|timeout|time|srun|mpirun"
    "|sudo|nsys|ncu|strace|ltrace|rocprof|rocprofv3"
)
_LAUNCHER = re.compile(
    rf"""
    (?: ^ | [;&|({{\n] | \b\w*sh \s+ -\w*c \s+ ['"]? )          # where a command begins
    \s*
    (?:
        (?: if|then|else|elif|while|until|do|! ) \s+
      | [A-Za-z_]\w*\+?= (?: '[^']*' | "[^"]*" | [^\s'";&|] )* \s+
      | (?:\S*/)? (?:{_WRAPPERS}) \s+                       # with its own options and operands
        (?: (?: -[^\s=]+ \s+ (?!-)[^\s;&|]+ | -[^\s=]+=\S+ | --
              | (?! - | (?:\S*/)?(?:python|\w*sh\s|(?:{_WRAPPERS})\s) )[^\s;&|'"]+ ) \s+ )*?
    )*
    (?:[^\s'";&|]*/)?
    (?: torchrun | python[\d.]* (?: \s+-[^\sm]\S* )* \s+ -m \s+ torch\.distributed\.(?:run|launch) )
    (?P<options>
        (?: \s+ (?: --(?:standalone|no[-_]python|run[-_]path|help|use[-_]env)
                  | (?! -m\s | --module\s ) -[\w-]+ (?: =\S* | \s+\S+ ) ) (?=\s|$) )* )
    (?= \s | $ )
    """,
    re.VERBOSE,
)
_NPROC = re.compile(r"(--?nproc[-_]per[-_]node[=\s]+)(\S+)")
_NNODES = re.compile(r"(--?nnodes[=\s]+)(\S+)")
_LOGGING = re.compile(r"\s(?:--(?:log[-_]dir|redirects|tee)|-[rt])\b")


def is_launched(argv: Sequence[str]) -> bool:
    return _options(argv) is not None


def ranks_of(argv: Sequence[str]) -> int | None:
    """How many ranks a node the launcher starts, where the command says so in a number."""
    return _number(_NPROC, _options(argv) or "")


def with_world_size(argv: Command, ranks: int) -> Command:
    """The command with so many ranks: as few nodes as the original's ranks a node allow."""
    options = _options(argv)
    if options is None:
        return argv
    most = _number(_NPROC, options) or ranks
    nodes = next(n for n in range(1, ranks + 1) if ranks % n == 0 and ranks // n <= most)
    options = _NNODES.sub(rf"\g<1>{nodes}", options)
    if _NPROC.search(options):
        return _with_options(argv, _NPROC.sub(rf"\g<1>{ranks // nodes}", options))
    return _with_options(argv, f" --nproc-per-node {ranks // nodes}{options}")


def world_size_variables(ranks: int) -> dict[str, str]:
    """For launchers inside scripts: what torchrun reads by itself."""
    return {"PET_NPROC_PER_NODE": str(ranks), "NPROC_PER_NODE": str(ranks)}


def with_rank_logs(argv: Command, folder: Path) -> Command:
    """Each rank's output also in files of its own, unless the command says where it goes."""
    options = _options(argv)
    if options is None or _LOGGING.search(options):
        return argv
    # It may stand inside quotes already.
    place = re.sub(r"([^\w@%+=:,./-])", r"\\\1", str(folder))
    return _with_options(argv, f" --log-dir {place} --tee 3{options}")


def argv_of(command: str | Sequence[str]) -> Command:
    """One text for a shell, or the words, as a trial executes them."""
    return (command,) if isinstance(command, str) else tuple(command)


def words_of(command: str | Sequence[str]) -> list[str]:
    """Also those of a text that another shell reads: `bash -c 'python sum.py < rows.txt'`."""
    return re.findall(r"[^\s'\"`;&|()<>]+", " ".join(argv_of(command)))


def python_of(command: str | Sequence[str], path: str | None = None) -> str | None:
    """The Python that a command names, as this machine finds it, or in this `PATH`."""
    words = (*argv_of(command), *words_of(command))
    named = next(filter(PYTHON.fullmatch, words), None)
    return shutil.which(named, path=path) if named is not None else None


def _text(argv: Sequence[str]) -> str:
    return argv[0] if len(argv) == 1 else shlex.join(argv)


def _options(argv: Sequence[str]) -> str | None:
    """The launcher's own options, as they stand in the command; None where it starts none."""
    found = _LAUNCHER.search(_text(argv))
    return None if found is None else found["options"]


def _with_options(argv: Command, options: str) -> Command:
    text = _text(argv)
    found = _LAUNCHER.search(text)
    assert found is not None
    changed = f"{text[: found.start('options')]}{options}{text[found.end('options') :]}"
    return (changed,) if len(argv) == 1 else tuple(shlex.split(changed))


def _number(pattern: re.Pattern[str], options: str) -> int | None:
    found = pattern.search(options)
    digits = re.match(r"\d+", found[2]) if found else None
    return int(digits[0]) if digits else None
