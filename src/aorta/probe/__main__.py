"""`python -m aorta.probe`: env.json on stdout, from a container that has a Python alone."""

import sys

from aorta.probe.snapshot import collect_env


def main(arguments: list[str]) -> int:
    if arguments:
        print("usage: python -m aorta.probe", file=sys.stderr)
        return 2
    sys.stdout.write(collect_env().to_json())
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
