"""What two well-known systems take for the same failure, as plain functions over what a run said.

shrinkray's users keep the exit code of their test: an input is interesting if the program ends as
the original did. Sentry groups by the stack trace, the exception's type and, only where there is
neither, the message as a template. Both are ideas retold, to be measured on our corpus; they show
what an exit code alone and a group of frames alone are worth to a reduction.
"""

import re

from benchmarks.identity_cases import Said

Group = tuple[str, ...]

_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line \d+(?:, in (?P<function>\S+))?'
    r"(?:\n(?!.*File \")(?:\[rank\d+\]:)?\s+(?P<source>\S.*))?"
)
_RAISED = re.compile(
    r"^(?:\[rank\d+\]:\s*)?(?P<type>[A-Za-z_][\w.]*): ?(?P<value>.*)$", re.MULTILINE
)
_HEADER = "Traceback (most recent call last)"
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d")
_PARAMETERS = re.compile(
    r"[\w.+-]+@[\w-]+\.[\w.-]+"  # address
    r"|\b[a-z]+://\S+"
    r"|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"
    r"|\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
    r"|\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?Z?)?\b|\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b"
    r"|\b\d+(?:\.\d+)?\s?(?:ms|s|min|h)\b"
    r"|\b0x[0-9a-fA-F]+\b|\b(?=[0-9a-f]*\d)[0-9a-f]{8,128}\b"
    r"|(?<==)'[^']*'|(?<==)\"[^\"]*\"|(?<==)(?:[Tt]rue|[Ff]alse)\b"
    r"|-?\b\d+\.\d+\b|-?\b\d+\b"
)


def same_exit(one: Said, other: Said) -> bool:
    """The idea of a test that asks for the exit code alone."""
    return (one.exit_code, one.signal) == (other.exit_code, other.signal)


def same_group(one: Said, other: Said) -> bool:
    """The idea of a grouping by stack trace, then type, then message."""
    return _group(one) == _group(other)


def _group(run: Said) -> Group:
    text = run.stderr or run.stdout
    chain = [_of_traceback(part) for part in text.split(_HEADER)[1:]]
    if chain:
        return tuple(word for group in chain for word in group)
    lines = [line for line in text.splitlines() if line.strip()]
    return ("message", _PARAMETERS.sub("<*>", lines[-1].strip()) if lines else "")


def _of_traceback(text: str) -> Group:
    """In-app frames decide, each by file, function and source line, a library's only where there are no others; then the type; the value
    only where there are no frames at all.
    """
    frames = list(_FRAME.finditer(text))
    own = [frame for frame in frames if not _LIBRARY.search(frame["file"])]
    names = [
        f"{frame['file'].rsplit('/', 1)[-1]}:{frame['function']}:{frame['source']}"
        for frame in own or frames
    ]
    raised = [found for found in _RAISED.finditer(text) if not found["type"].islower()]
    kind = raised[0]["type"].rsplit(".", 1)[-1] if raised else ""
    if names:
        return (*dict.fromkeys(names), kind)
    return (kind, _PARAMETERS.sub("<*>", raised[0]["value"]) if raised else "")
