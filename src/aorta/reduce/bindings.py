"""What binds an axis to the workload: from a value to variables and files, the same way for a trial
and for what ships.

A binding knows one axis, reads its original once, and writes a value where it is told to. It does
not know why.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from aorta.core.axis import Axis, Point, SubsetAxis, Value, as_indexes, as_single, as_window
from aorta.core.errors import AortaError, SpecError, UsageError
from aorta.reduce.axis_spec import (
    AxisSpec,
    DirSubsetAxis,
    EnvAxis,
    FileSubsetAxis,
    ListAxis,
    RanksAxis,
    SourceAxis,
    WindowAxis,
    WorldSizeAxis,
)
from aorta.reduce.config_files import settings_in
from aorta.reduce.launcher import python_of
from aorta.reduce.spec import SpecFile
from aorta.reduce.structure import ARRAYS, array_rows, pieces_of

Placed = dict[str, str | Path]
"""Variables. A `Path` was laid out in the folder and moves with it; a text stands for itself."""

NONSENSE = "aorta-checks-whether-this-is-read"
MAX_FILE_BYTES = 1 << 30


def _no_texts(_value: Value) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True)
class AxisBinding:
    """One axis, and how its value becomes variables (`texts`), or a file or folder (`write`)."""

    axis: Axis
    # The variables that hold the value itself.
    texts: Callable[[Value], Mapping[str, str]] = field(default=_no_texts, repr=False)
    # The value as a file or folder, whose parent is there; nothing in it points elsewhere. None: it
    # is given through variables alone.
    write: Callable[[Value, Path], None] | None = field(default=None, repr=False)
    source: Path | None = None  # the file or folder that is reduced
    digest: str = ""  # changes when what the axis reduces has changed
    inside: str | None = None  # its name in the working directory, if the command finds it there
    position: int = 0  # in the file that holds it beside other values


def changed_names(bindings: Sequence[AxisBinding]) -> list[str]:
    """What of the working directory candidates change: names of files and folders."""
    return list(dict.fromkeys(b.inside for b in bindings if b.inside is not None))


def lay_out(
    bindings: Sequence[AxisBinding],
    point: Point,
    folder: Path,
    place: Path,
    *,
    taken: Collection[str] = (),
    nonsense: str = "",
) -> tuple[Placed, Placed]:
    """Every axis of the point: its variables, and what was changed in `place`, a copy of the
    working directory, for a command that finds it there. Other files and folders lie in `folder`;
    what has the name of another, or one that is `taken`, in a folder of its own. The axis
    `nonsense` becomes what is no value of it: a text, or a file that is not there. Raises OSError.
    """
    variables: Placed = {}
    inside: Placed = {}
    used = {*taken}
    for name in changed_names(bindings):
        if (place / name).is_file():
            (place / name).unlink()
    # Several values of one file from its end on, so that those before stay where they were.
    for binding in sorted(bindings, key=lambda one: -one.position):
        name, value = binding.axis.name, point[binding.axis.name]
        laid = variables if binding.inside is None else inside
        texts = binding.texts(value)
        laid |= dict.fromkeys(texts, NONSENSE) if name == nonsense else texts
        if binding.write is None:
            continue
        if binding.inside is not None:
            target = place / binding.inside
        else:
            assert binding.source is not None
            called = binding.source.name
            target = folder / (name if called in used else "") / called
            used.add(called)
        laid.setdefault(name, target)
        target.parent.mkdir(parents=True, exist_ok=True)
        # Nonsense in a configuration is a text; a file or folder of data is then missing.
        if name != nonsense or texts:
            binding.write(NONSENSE if name == nonsense else value, target)
    return variables, inside


def settings_of(bindings: Sequence[AxisBinding], point: Point) -> dict[str, str]:
    """The variables of a point that are no files: the same in every trial of it."""
    return {
        name: text
        for binding in bindings
        for name, text in binding.texts(point[binding.axis.name]).items()
    }


def bindings_of(spec: SpecFile, cwd: Path) -> tuple[AxisBinding, ...]:
    """Every axis of the spec but the source, read and checked; an error names the place in the
    file.
    """
    made = []
    python = python_of(spec.content.workload.command or ())
    for index, axis in enumerate(spec.content.axes):
        if isinstance(axis, SourceAxis):
            continue  # what is made of it is no value of a variable
        where = f"{spec.file}: axes[{index}]"
        try:
            made.append(_binding(axis, cwd, spec.base, python))
        except AortaError as wrong:
            inside = f"{where}.initial" if wrong.where == "initial" else where
            raise SpecError(wrong.message, where=inside) from None
    return tuple(made)


def _binding(spec: AxisSpec, cwd: Path, base: Path, python: str | None) -> AxisBinding:
    match spec:
        case EnvAxis():
            return _in_config(spec, _plain(spec), cwd)
        case ListAxis():
            return _listed(spec.axis(spec.items()), spec.separator)
        case WindowAxis():
            return AxisBinding(spec.axis(), partial(_window_texts, spec))
        case WorldSizeAxis():
            return _plain(spec)
        case RanksAxis():
            return _listed(spec.axis(tuple(map(str, range(spec.initial)))), ",")
        case FileSubsetAxis():
            return _lines_of(spec, _found(spec.initial, cwd, base), cwd, python)
        case DirSubsetAxis():
            return _files_of(spec, _found(spec.initial, cwd, base), cwd)
        case SourceAxis():
            raise UsageError("the source of a program has no value that could be laid out")


def _plain(spec: EnvAxis | WorldSizeAxis) -> AxisBinding:
    """Numbers and choices: the value is the variable's text."""
    names = spec.variables
    return AxisBinding(spec.axis(), lambda value: dict.fromkeys(names, str(as_single(value))))


def _window_texts(spec: WindowAxis, value: Value) -> dict[str, str]:
    span = as_window(value)
    return {spec.start: str(span.start), spec.length: str(span.length)}


def _listed(axis: SubsetAxis, separator: str) -> AxisBinding:
    """A variable that holds some of the items: `a,c`."""

    def texts(value: Value) -> dict[str, str]:
        return {axis.name: separator.join(axis.items[index] for index in as_indexes(value))}

    return AxisBinding(axis, texts)


def _in_config(spec: EnvAxis, variable: AxisBinding, cwd: Path) -> AxisBinding:
    """A number that a configuration says; the variable itself, where the spec names no file."""
    if spec.file is None:
        return variable
    path = cwd / spec.file
    setting = next((one for one in settings_in(path) or () if one.key == spec.key), None)
    if setting is None:
        said = f"found no whole number of the key {spec.key!r} in {spec.file!r}"
        raise UsageError(said, where="key")
    original = path.read_text("utf-8")

    def write(value: Value, target: Path) -> None:
        """In a file that may hold other values of it already, all of them further down."""
        text = target.read_text("utf-8") if target.is_file() else original
        said = f'"{value}"' if value == NONSENSE else variable.texts(value)[spec.name]
        target.write_text(setting.replaced(text, said), encoding="utf-8")

    return replace(variable, write=write, inside=_inside(path, cwd), position=setting.start)


def _inside(path: Path, cwd: Path) -> str:
    """Its name in the working directory."""
    if not path.resolve().is_relative_to(cwd.resolve()) or path.resolve() == cwd.resolve():
        raise UsageError(f"{str(path)!r} does not lie in the working directory", where="initial")
    return path.resolve().relative_to(cwd.resolve()).as_posix()


def _found(name: str, cwd: Path, base: Path) -> Path:
    """Where the command itself would find it: in its own directory, else beside the spec."""
    places = [(root / Path(name).expanduser()) for root in (cwd, base)]
    found = next((place for place in places if place.exists()), None)
    if found is None:
        raise UsageError(f"there is no {name!r} in {cwd}", where="initial")
    return found.absolute()


def _lines_of(spec: FileSubsetAxis, path: Path, cwd: Path, python: str | None) -> AxisBinding:
    if not path.is_file():
        raise UsageError(f"{spec.initial!r} is not a file; a folder is dir_subset", where="initial")
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UsageError(f"{spec.initial!r} is larger than 1 GiB", where="initial")
        content = path.read_bytes()
    except OSError as wrong:
        said = f"{spec.initial!r} cannot be read: {wrong.strerror}"
        raise UsageError(said, where="initial") from None
    is_array = path.suffix in ARRAYS
    pieces = array_rows(python, path) if is_array else pieces_of(path.name, content, spec.header)
    if pieces is None:
        raise UsageError(
            f"{spec.initial!r} holds nothing that NumPy or torch of this command's Python could "
            "take apart: expected an array, a list, or arrays of one length",
            where="initial",
        )

    def write(value: Value, target: Path) -> None:
        target.write_bytes(pieces.without_all_but(set(as_indexes(value))))

    return AxisBinding(
        spec.axis(pieces.items),
        write=write,
        source=path,
        digest=hashlib.sha256(content).hexdigest(),
        inside=_inside(path, cwd) if spec.in_place else None,
    )


def _files_of(spec: DirSubsetAxis, root: Path, cwd: Path) -> AxisBinding:
    """Files of a folder: real ones, that `os.walk`, `grep -r` and `tar` see like any other."""
    if not root.is_dir():
        said = f"{spec.initial!r} is not a folder; a file is file_subset"
        raise UsageError(said, where="initial")
    names = tuple(str(path.relative_to(root)) for path in _files_in(root))

    def write(value: Value, target: Path) -> None:
        target.mkdir(exist_ok=True)
        for name in (names[index] for index in as_indexes(value)):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, target / name)

    return AxisBinding(
        spec.axis(names),
        write=write,
        source=root,
        digest=_digest_of(root),
        inside=_inside(root, cwd) if spec.in_place else None,
    )


def _files_in(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders.sort()
        yield from (path for name in sorted(files) if (path := Path(folder) / name).is_file())


def _digest_of(source: Path) -> str:
    """Of a file's content, or of the names and contents of a folder's files."""
    if source.is_file():
        return hashlib.sha256(source.read_bytes()).hexdigest()
    digest = hashlib.sha256()
    for path in _files_in(source):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{path.relative_to(source)}\0{content}\0".encode("utf-8", "replace"))
    return digest.hexdigest()
