"""`aorta` and `python -m aorta`. The two questions everybody asks first are answered without importing click."""

import sys

from aorta.cli.verbs import top_help
from aorta.version import __version__


def main() -> None:
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
    """`ft_launcher`: `aorta launch` under the name of NVIDIA's launcher, whose flags and file it understands."""
    from aorta.cli.app import run

    run(["launch", *sys.argv[1:]])


if __name__ == "__main__":
    main()
