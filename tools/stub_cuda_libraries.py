"""`stub_cuda_libraries.py PYTHON`: let a CUDA build of torch be imported where its CUDA libraries
are not installed.

For every library that torch's own ones need and the machine lacks, an empty one of that name is
compiled into torch's folder, with the symbols that are bound at load. What runs on a CPU works; a
call into CUDA says that there is no device. For tests of the launcher only: a wheel of 0.9 GB is
then enough.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

_MOST_ROUNDS = 200
_FUNCTION = "long {}(void) {{ return 100; }}\n"  # in CUDA: there is no device


def main(python: str) -> None:
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    folder = Path(_said([python, "-c", asked]).strip()) / "torch" / "lib"
    own = sorted(folder.glob("*.so*"))
    missing = sorted({name for file in own for name in _not_found(file)})
    versioned = _versioned(own)
    for name in missing:
        _compile(folder / name, versioned.get(name, {}))
    unversioned: list[str] = []
    for _ in range(_MOST_ROUNDS):
        tried = subprocess.run(
            [python, "-c", "import torch"], capture_output=True, text=True, check=False
        )
        if tried.returncode == 0:
            return
        found = re.search(r"undefined symbol: (\w+)", tried.stderr)
        if found is None:
            sys.exit(tried.stderr)
        unversioned.append(found[1])
        _compile(folder / missing[0], {**versioned.get(missing[0], {}), "": unversioned})
    sys.exit("torch asks for more symbols than there are stubs for")


def _said(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _not_found(file: Path) -> list[str]:
    return re.findall(r"^\s*(\S+) => not found", _said(["ldd", str(file)]), re.MULTILINE)


def _versioned(files: list[Path]) -> dict[str, dict[str, list[str]]]:
    """Library -> version -> the symbols of that version that these files need."""
    needed: dict[str, dict[str, list[str]]] = {}
    for file in files:
        library_of, library = {}, ""
        for line in _said(["readelf", "-W", "-V", str(file)]).splitlines():
            if found := re.search(r"File: (\S+)", line):
                library = found[1]
            elif found := re.search(r"Name: (\S+)", line):
                library_of[found[1]] = library
        symbols = _said(["readelf", "-W", "--dyn-syms", str(file)])
        for name, version in re.findall(r" UND (\w+)@+(\S+)", symbols):
            versions = needed.setdefault(library_of.get(version, ""), {})
            versions.setdefault(version, []).append(name)
    return needed


def _compile(target: Path, symbols: dict[str, list[str]]) -> None:
    """`symbols` by version; without one under the empty name."""
    names = sorted({name for of_version in symbols.values() for name in of_version})
    code = "".join(_FUNCTION.format(name) for name in names)
    script = "".join(
        f"{version} {{ {''.join(f'{name}; ' for name in sorted(set(of_version)))}}};\n"
        for version, of_version in symbols.items()
        if version
    )
    with tempfile.TemporaryDirectory() as scratch:
        source, versions = Path(scratch) / "stub.c", Path(scratch) / "versions"
        source.write_text(code)
        versions.write_text(script)
        named = [f"-Wl,-soname,{target.name}"]
        if script:
            named.append(f"-Wl,--version-script,{versions}")
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-w", *named, "-o", str(target), str(source)], check=True
        )


if __name__ == "__main__":
    main(sys.argv[1])
