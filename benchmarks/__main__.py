"""`python -m benchmarks [TOPIC...]`: runs every topic, or those named."""

import importlib
import pkgutil
import sys

import benchmarks


def topics() -> list[str]:
    """The modules of this package that have a `main`."""
    return [name for name in _modules() if _is_topic(name)]


def _modules() -> list[str]:
    found = (module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    return sorted(name for name in found if name != "__main__")


def _is_topic(name: str) -> bool:
    return hasattr(importlib.import_module(f"benchmarks.{name}"), "main")


def main(wanted: list[str]) -> int:
    """Of those named only what they need is imported: elsewhere the packages of the others may be
    missing.
    """
    modules = _modules()
    unknown = [name for name in wanted if name not in modules or not _is_topic(name)]
    known = topics() if unknown or not wanted else wanted
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
