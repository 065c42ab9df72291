"""When the end of a trial is no evidence: nothing that could fail was ever started. Decided here
and nowhere else.

Shells, interpreters, container engines, launchers and our own scripts say so in words of their own;
`why_not_started` returns that line, or what stands in for it.
"""

import re

from aorta.core.raised import causes_in
from aorta.core.templates import lines_of
from aorta.core.trial import TrialEnd

CANNOT_EXECUTE = frozenset({126, 127})
"""What a shell ends with when it finds no such command, or may not execute it; a program may end
with them too.
"""

OUR_SCRIPT = "run_repro.sh"
# With which exit codes (None: any), and in which words.
_NOTHING_BEGAN: tuple[tuple[frozenset[int] | None, re.Pattern[str]], ...] = (
    (
        CANNOT_EXECUTE,
        # shells, env, sudo, timeout and the dynamic loader
        re.compile(
            r"not found|[Nn]o such file|[Pp]ermission denied|[Cc]annot execute|can't execute|bad "
            r"interpreter|Exec format error|[Ii]s a directory|failed to (?:run|execute)|while "
            r"loading shared libraries|symbol lookup error|OCI runtime|^docker: |^Error: "
        ),
    ),
    (None, re.compile(rf"^(?:\S*/)?{re.escape(OUR_SCRIPT)}: ")),
    (
        None,
        re.compile(
            r"^(?:\S*/)?python[\d.]*: (?:can't open file|No module named|Error while finding mod)"
            r"|^make: (?:\*\*\* .*Error 12[67]$|\S+: (?:No such file|Permission denied))"
            r"|^(?:\S*/)?(?:srun|slurmstepd\S*): (?:error: )?.*(?:execve\(\)|Unable to (?:create "
            r"step|allocate|confirm)|[Ii]nvalid (?:partition|account)|couldn't chdir)"
            r"|^(?:mpirun|prterun) was unable to (?:launch|find)"
        ),
    ),
    (frozenset({125}), re.compile(r"^docker: |^Error response from daemon: |^Error: ")),
    (frozenset({255}), re.compile(r"^ssh: (?:connect to host|Could not resolve)")),
)


def why_not_started(end: TrialEnd, known_statuses: frozenset[int] = frozenset()) -> str | None:
    """Why nothing was started, or None where the program itself failed.

    126 and 127 alone are a failure only of a program that is known to end so: `known_statuses` are
    those of the failure that is looked for; empty while none is known, where the first such end may
    be it. An exception of the program's own says that it was started.
    """
    if not end.failed:
        return None
    lines = [line for text in (end.stderr.tail, end.stdout.tail) for line in lines_of(text)]
    said = next((line.strip() for line in lines if _says_so(line, end.exit_code)), None)
    if said is not None and not _ran(end):
        return said
    unknown = bool(known_statuses) and end.exit_code not in known_statuses
    if end.exit_code in CANNOT_EXECUTE and unknown and not _ran(end):
        return f"exit {end.exit_code}: what a shell says of a command that it cannot execute"
    return None


def _says_so(line: str, exit_code: int | None) -> bool:
    return any(
        (codes is None or exit_code in codes) and words.search(line)
        for codes, words in _NOTHING_BEGAN
    )


def _ran(end: TrialEnd) -> bool:
    return any(not cause.wraps for cause in causes_in(end.stderr.tail))
