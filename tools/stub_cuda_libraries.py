"""`stub_cuda_libraries.py PYTHON [HEADERS]`: let a CUDA build of torch be imported where its CUDA
libraries are not installed.

For every library that torch's own ones need and the machine lacks, an empty one of that name is
compiled into torch's folder, with the symbols that are bound at load. What runs on a CPU works; a
call into CUDA says that there is no device: for tests of the launcher a wheel of 0.9 GB is then
enough. With the folder of CUDA's HEADERS there is a device that computes nothing
(stand_in_cuda.c): for measuring what torch does on the CPU to keep a GPU busy.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

_MOST_ROUNDS = 200
_NO_DEVICE, _SUCCESS = 100, 0  # what CUDA calls them
_NOT_FOUND, _OF_CUDA = r"^\s*(\S+) => not found", r"^\s*(lib(?:cu|nv|nccl)\S+) =>"
_STAND_IN = Path(__file__).with_name("stand_in_cuda.c")


def main(python: str, headers: str | None = None) -> None:
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    folder = Path(_said([python, "-c", asked]).strip()) / "torch" / "lib"
    own = sorted(folder.glob("*.so*"))
    wanted = _NOT_FOUND if headers is None else _OF_CUDA  # a stand-in goes before the real one
    needed = [re.compile(wanted, re.MULTILINE).findall(_said(["ldd", str(file)])) for file in own]
    missing = sorted({name for names in needed for name in names})
    versioned = _versioned(own)
    if headers is not None:  # what torch looks up by name while it runs
        looked_up = (re.findall(rb"\bcu[A-Z]\w+", file.read_bytes()) for file in own)
        versioned["libcuda.so.1"] = {"": [name.decode() for names in looked_up for name in names]}
    for name in missing:
        _compile(folder / name, versioned.get(name, {}), headers)
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
        symbols = {**versioned.get(missing[0], {}), "": unversioned}
        _compile(folder / missing[0], symbols, headers)
    sys.exit("torch asks for more symbols than there are stubs for")


def _said(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


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


def _compile(target: Path, symbols: dict[str, list[str]], headers: str | None) -> None:
    """`symbols` by version; without one under the empty name."""
    names = {name for of_version in symbols.values() for name in of_version}
    answer, options = _NO_DEVICE, [f"-Wl,-soname,{target.name}"]
    if headers is not None:
        names -= {*re.findall(r"\w+", _STAND_IN.read_text())}
        answer, options = _SUCCESS, [*options, f"-I{headers}", str(_STAND_IN)]
    code = "".join(f"long {name}(void) {{ return {answer}; }}\n" for name in sorted(names))
    script = "".join(
        f"{version} {{ {''.join(f'{name}; ' for name in sorted(set(of_version)))}}};\n"
        for version, of_version in symbols.items()
        if version
    )
    with tempfile.TemporaryDirectory() as scratch:
        source, versions = Path(scratch) / "stub.c", Path(scratch) / "versions"
        source.write_text(code)
        versions.write_text(script)
        if script:
            options.append(f"-Wl,--version-script,{versions}")
        command = ["cc", "-O1", "-shared", "-fPIC", "-w", "-o", str(target), str(source), *options]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
