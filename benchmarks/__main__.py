"""`python -m benchmarks [TOPIC...]`: runs every topic, or those named."""

import importlib
import pkgutil
import sys

import benchmarks


def topics() -> list[str]:
    """The modules of this package that have a `main`."""
    names = sorted(
        m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name != "__main__"
    )
    return [n for n in names if hasattr(importlib.import_module(f"benchmarks.{n}"), "main")]


def main(wanted: list[str]) -> int:
    known = topics()
    unknown = [name for name in wanted if name not in known]
    if unknown:
        print(
            f"no such topic: {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr
        )
        return 2
    for name in wanted or known:
        print(f"== {name}", flush=True)
        importlib.import_module(f"benchmarks.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
