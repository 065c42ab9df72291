"""`aorta` and `python -m aorta`; `--version` and `--help` are answered without importing click."""

import sys

from aorta.cli import top_help
from aorta.cli.printing import open_standard_streams
from aorta.version import __version__


def main() -> None:
    open_standard_streams()
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
    """`ft_launcher`: `aorta launch` under the name of NVIDIA's launcher, with its defaults."""
    open_standard_streams()
    from aorta.cli.app import run

    run(["launch", "--ft-launcher-defaults", *sys.argv[1:]])


def jax_toolbox_triage() -> None:
    """`jax-toolbox-triage`: `aorta bisect` with the command line of NVIDIA's tool."""
    open_standard_streams()
    from aorta.cli.app import run

    run(["jax-toolbox-triage", *sys.argv[1:]])


if __name__ == "__main__":
    main()
