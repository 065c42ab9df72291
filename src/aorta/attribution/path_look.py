"""One look at a path: what is there, and whether a link leads to it. Also a program, for looks that
may never come back.

As a program it reads a line of JSON, a list of [root, rest of the path], and answers with a line: a
list of [what, bytes]. It needs nothing but the standard library, so that it starts in 20 ms.
"""

import json
import os
import signal
import stat
import sys

LINK, FILE, DIRECTORY, OTHER, MISSING = "link", "file", "directory", "other", "missing"


def look(root: str, inside: str) -> tuple[str, int]:
    """What `root/inside` is, and its size; LINK if any part below the root is one."""
    path = root
    found: os.stat_result | None = None
    for part in inside.split("/") if inside else ():
        path = f"{path}/{part}"
        try:
            found = os.lstat(path)
        except OSError:
            return MISSING, 0
        if stat.S_ISLNK(found.st_mode):
            return LINK, 0
    try:
        found = found or os.lstat(root or "/")
    except OSError:
        return MISSING, 0
    if stat.S_ISDIR(found.st_mode):
        return DIRECTORY, 0
    return (FILE if stat.S_ISREG(found.st_mode) else OTHER), found.st_size


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the service, whose pipe it reads
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(json.dumps([look(*where) for where in json.loads(line)]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
