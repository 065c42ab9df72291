"""One look at a path: what is there, and whether a link leads to it. Also a program, for looks that
may never come back: no signal ends a process, or a thread of it, that waits for a hung mount.

As a program it reads lines of JSON, each a list of [root, rest of the path], and answers with a
list of `Seen`. It needs nothing but the standard library, so that it starts in 20 ms.
"""

import json
import os
import signal
import stat
import sys
from contextlib import suppress
from typing import NamedTuple


class Seen(NamedTuple):
    """What is at a path; size 0 if nothing is."""

    size: int = 0
    is_link: bool = False
    is_other: bool = False  # there, and no regular file


def look(root: str, inside: str) -> Seen:
    """What `root/inside` is; a link if any part below the root is one."""
    path, found = root, None
    with suppress(OSError):
        for part in inside.split("/") if inside else ():
            path = f"{path}/{part}"
            found = os.lstat(path)
            if stat.S_ISLNK(found.st_mode):
                return Seen(is_link=True)
        found = found or os.lstat(root or "/")
        return Seen(found.st_size, is_other=not stat.S_ISREG(found.st_mode))
    return Seen()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the service, whose pipe it reads
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps([look(*where) for where in json.loads(line)]), flush=True)


if __name__ == "__main__":
    main()
