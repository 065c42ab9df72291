"""`aorta` and `python -m aorta`. The two questions everybody asks first are answered without
importing click.
"""

import io
import os
import sys

from aorta.cli.verbs import top_help
from aorta.version import __version__


def main() -> None:
    _open_standard_streams()
    arguments = sys.argv[1:]
    if not arguments or arguments in (["--help"], ["-h"]):
        print(top_help(), end="")
        raise SystemExit(0)
    if arguments == ["--version"]:
        print(f"aorta {__version__}")
        raise SystemExit(0)
    from aorta.cli.app import run

    run(arguments)


def ft_launcher() -> None:
    """`ft_launcher`: `aorta launch` under the name of NVIDIA's launcher, with its defaults; its
    flags and file are understood.
    """
    _open_standard_streams()
    from aorta.cli.app import run

    run(["launch", "--ft-launcher-defaults", *sys.argv[1:]])


def jax_toolbox_triage() -> None:
    """`jax-toolbox-triage`: `aorta bisect` with the command line of NVIDIA's tool."""
    _open_standard_streams()
    from aorta.cli.app import run

    run(["jax-toolbox-triage", *sys.argv[1:]])


def _open_standard_streams() -> None:
    """`aorta ... >&-`: what we open must not take the place of a stream, and writing to it must not
    fail.

    A word that is no UTF-8 is printed as an escape, which in JSON reads back as the same word.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()
