"""`python -m aorta.probe [FILE|-]`: env.json from inside a container that has a Python and nothing else."""

import sys
from pathlib import Path

from aorta.probe.collect import collect_env
from aorta.probe.store import write_snapshot


def main(arguments: list[str]) -> int:
    if len(arguments) > 1:
        print("usage: python -m aorta.probe [FILE|-]", file=sys.stderr)
        return 2
    place = Path(arguments[0] if arguments else "-")
    try:
        write_snapshot(collect_env(), place)
    except OSError as wrong:
        print(f"aorta: {place}: cannot be written: {wrong.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
