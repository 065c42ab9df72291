"""What binds an axis to the workload: from a value to variables and files, the same way for a trial
and for what ships.

A binding knows one axis, reads its original once, and lays a value out in a folder. It does not
know why.
"""

import fcntl
import hashlib
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from aorta.core import axis as axes
from aorta.core.axis import (
    Axis,
    AxisKind,
    Point,
    SubsetAxis,
    Value,
    as_indexes,
    as_single,
    as_window,
)
from aorta.core.errors import AortaError, SpecError, UsageError
from aorta.engine.rundir import writing
from aorta.reduce.arrays import ARRAYS, ArrayRows, array_rows
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
from aorta.reduce.config_files import Setting, all_settings_in, rewritten
from aorta.reduce.launcher import python_of
from aorta.reduce.spec import SpecFile
from aorta.reduce.structure import JsonTree, Pieces, pieces_of

Placed = Mapping[str, str | Path]
"""Variables. A `Path` was laid out in the folder and moves with it; a text stands for itself."""

NONSENSE = "aorta-checks-whether-this-is-read"
MAX_ITEMS = 1_000_000
MAX_FILE_BYTES = 1 << 30
_OTHER_SEPARATORS = (";", "|", ":", " ")
_FICLONE = 0x40049409


@dataclass(frozen=True)
class AxisBinding(ABC):
    """One axis, and how a value of it becomes variables and files."""

    axis: Axis
    source: Path | None = field(default=None, kw_only=True)  # the file or folder that is reduced
    # Changes when what the axis reduces has changed.
    digest: str = field(default="", kw_only=True)
    # Its name in the working directory, where the command finds it there.
    inside: str | None = field(default=None, kw_only=True)
    # Where a configuration says the value.
    stands: "SettingInFile | None" = field(default=None, kw_only=True)

    @property
    def file_name(self) -> str | None:
        """What lies in the folder afterwards; None for variables alone."""
        return self.source.name if self.source is not None else None

    @abstractmethod
    def place(self, value: Value, folder: Path) -> Placed:
        """Lay `value` out in `folder`; nothing there points out of it."""


@dataclass(frozen=True)
class SettingInFile:
    """A value in a configuration: in which file of the working directory, and which part of it."""

    name: str
    text: str = field(repr=False)
    setting: Setting


@dataclass(frozen=True)
class _Plain(AxisBinding):
    """Numbers and choices: the value is the variable's text."""

    variables: tuple[str, ...]

    def place(self, value: Value, folder: Path) -> Placed:
        return {name: str(as_single(value)) for name in self.variables}


@dataclass(frozen=True)
class _Window(AxisBinding):
    start: str
    length: str

    def place(self, value: Value, folder: Path) -> Placed:
        span = as_window(value)
        return {self.start: str(span.start), self.length: str(span.length)}


@dataclass(frozen=True)
class _Listed(AxisBinding):
    """A variable that holds some of the items: `a,c`."""

    axis: SubsetAxis
    separator: str = ","

    def place(self, value: Value, folder: Path) -> Placed:
        kept = [self.axis.items[index] for index in as_indexes(value)]
        return {self.axis.name: self.separator.join(kept)}


@dataclass(frozen=True)
class _Lines(AxisBinding):
    """Lines of a file, or what else it is made of."""

    axis: SubsetAxis
    pieces: Pieces | JsonTree | ArrayRows = field(repr=False)

    def place(self, value: Value, folder: Path) -> Placed:
        assert self.source is not None
        path = folder / self.source.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.pieces.without_all_but(set(as_indexes(value))))
        return {self.axis.name: path}


@dataclass(frozen=True)
class _Files(AxisBinding):
    """Files of a folder: real ones, that `os.walk`, `grep -r` and `tar` see like any other."""

    axis: SubsetAxis

    def place(self, value: Value, folder: Path) -> Placed:
        assert self.source is not None
        place = folder / self.source.name
        place.mkdir(parents=True, exist_ok=True)
        for index in as_indexes(value):
            name = self.axis.items[index]
            target = place / name
            target.parent.mkdir(parents=True, exist_ok=True)
            _cheap_copy(self.source / name, target)
        return {self.axis.name: place}


def _cheap_copy(source: Path, target: Path) -> None:
    """The file's content under another name: sharing its blocks where the file system can, else a
    copy. Never the same inode, which a trial that appends would write through.
    """
    source = source.resolve()
    target.unlink(missing_ok=True)
    with suppress(OSError), source.open("rb") as old, target.open("xb") as new:
        fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
        return
    target.unlink(missing_ok=True)
    shutil.copyfile(source, target)


def place_all(
    bindings: Sequence[AxisBinding], point: Point, folder: Path, taken: Collection[str] = ()
) -> dict[str, str | Path]:
    """Every axis of the point in one folder, but for what lies in the working directory."""
    placed: dict[str, str | Path] = {}
    with writing(folder):
        for binding, inside in zip(bindings, folders_of(bindings, taken), strict=True):
            if binding.inside is None:
                placed.update(binding.place(point[binding.axis.name], folder / inside))
    return placed


def changed_names(bindings: Sequence[AxisBinding]) -> list[str]:
    """What of the working directory candidates change: names of files and folders."""
    names = [m.inside for m in bindings if m.inside is not None]
    return [*names, *dict.fromkeys(place.name for _, place in _in_files(bindings))]


def place_inside(
    bindings: Sequence[AxisBinding], point: Point, place: Path, *, nonsense: str = ""
) -> dict[str, str | Path]:
    """Everything of the point that lies in the working directory, in its copy `place`; the axis
    `nonsense` is left out, or turned into what is no value of it. Returns where subsets lie.
    """
    placed: dict[str, str | Path] = {}
    with writing(place):
        for binding in bindings:
            if binding.inside is not None and binding.axis.name != nonsense:
                target = (place / binding.inside).parent
                target.mkdir(parents=True, exist_ok=True)
                placed.update(binding.place(point[binding.axis.name], target))
        texts: dict[str, str] = {}
        values: dict[str, dict[Setting, str]] = {}
        for binding, stands in _in_files(bindings):
            name = binding.axis.name
            said = str(binding.place(point[name], place)[name])
            text = f'"{NONSENSE}"' if name == nonsense else said
            texts[stands.name] = stands.text
            values.setdefault(stands.name, {})[stands.setting] = text
        for name, text in texts.items():
            target = place / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(rewritten(text, values[name]), encoding="utf-8")
    return placed


def _in_files(bindings: Sequence[AxisBinding]) -> list[tuple[AxisBinding, SettingInFile]]:
    """Those whose value a configuration says, each with where."""
    return [(binding, binding.stands) for binding in bindings if binding.stands is not None]


def folders_of(bindings: Sequence[AxisBinding], taken: Collection[str] = ()) -> Iterator[str]:
    """Where each lies in the common folder; one whose name is taken gets a folder."""
    used: set[str] = set(taken)
    for binding in bindings:
        name = binding.file_name
        yield binding.axis.name if name is not None and name in used else ""
        if name is not None:
            used.add(name)


def settings_of(bindings: Sequence[AxisBinding], point: Point) -> dict[str, str]:
    """The variables of a point that are no files: the same in every trial of it."""
    nowhere = Path()
    return {
        name: str(value)
        for binding in bindings
        if binding.file_name is None
        for name, value in binding.place(point[binding.axis.name], nowhere).items()
    }


def bindings_of(spec: SpecFile, cwd: Path) -> tuple[AxisBinding, ...]:
    """Every axis of the spec, read and checked; an error names the place in the file."""
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
            return _Plain(_env_axis(spec), (spec.name,), stands=_stands(spec, cwd))
        case FileSubsetAxis():
            return _lines_of(spec, _found(spec.initial, cwd, base), cwd, python)
        case DirSubsetAxis():
            return _files_of(spec, _found(spec.initial, cwd, base), cwd)
        case ListAxis():
            axis = _subset(spec, _listed(spec))
            return _Listed(axis, spec.separator, stands=_stands(spec, cwd))
        case WindowAxis():
            window = axes.window(
                spec.name,
                *spec.initial,
                floor=spec.floor,
                tolerance=spec.tolerance,
                monotone=spec.monotone,
                priority=spec.priority,
            )
            return _Window(window, spec.start, spec.length)
        case WorldSizeAxis():
            size = axes.number(
                spec.name,
                spec.initial,
                spec.floor,
                kind=AxisKind.WORLD_SIZE,
                strategy=spec.strategy,
                monotone=spec.monotone,
                priority=spec.priority,
            )
            return _Plain(size, spec.variables)
        case RanksAxis():
            return _Listed(_subset(spec, tuple(map(str, range(spec.initial)))))
        case SourceAxis():
            raise UsageError("the source of a program has no value that could be laid out")


def _stands(spec: EnvAxis | ListAxis, cwd: Path) -> SettingInFile | None:
    if spec.file is None:
        return None
    path = cwd / spec.file
    there = [setting for setting in all_settings_in(path) if setting.line == spec.line]
    meant = [setting for setting in there if spec.key in {None, setting.key}]
    if len(meant) > 1:
        keys = ", ".join(setting.key for setting in meant)
        raise UsageError(
            f"line {spec.line} of {spec.file!r} holds several values; give `key`, one of: {keys}",
            where="key",
        )
    if not meant:
        named = f" of the key {spec.key!r}" if spec.key is not None else ""
        raise UsageError(
            f"found no whole number or plain list{named} in line {spec.line} of {spec.file!r}",
            where="file" if spec.key is None else "key",
        )
    return SettingInFile(_inside(path, cwd), path.read_text("utf-8"), meant[0])


def _inside(path: Path, cwd: Path) -> str:
    """Its name in the working directory."""
    if not path.resolve().is_relative_to(cwd.resolve()) or path.resolve() == cwd.resolve():
        raise UsageError(f"{str(path)!r} does not lie in the working directory", where="initial")
    return path.resolve().relative_to(cwd.resolve()).as_posix()


def _listed(spec: ListAxis) -> tuple[str, ...]:
    items = tuple(filter(None, (part.strip() for part in spec.initial.split(spec.separator))))
    other = next((mark for mark in _OTHER_SEPARATORS if mark in spec.initial.strip()), None)
    if len(items) == 1 and other is not None and spec.separator == ",":
        raise UsageError(
            f"found one item in {spec.initial!r}, expected items with a comma between them; "
            f"say which other mark it is, as separator: {other!r}",
            where="initial",
        )
    return items


def _env_axis(spec: EnvAxis) -> Axis:
    if spec.is_choice:
        choices = spec.choices or ()
        if spec.initial is not None:
            choices = choices[choices.index(spec.initial) :]
        return axes.choice(spec.name, choices, priority=spec.priority)
    initial, floor = spec.initial, spec.floor
    assert isinstance(initial, int | float)  # the spec has checked both
    assert floor is not None
    return axes.number(
        spec.name,
        float(initial) if spec.is_float else initial,
        float(floor) if spec.is_float else floor,
        step=spec.step,
        tolerance=spec.tolerance,
        strategy=spec.strategy,
        monotone=spec.monotone,
        priority=spec.priority,
    )


def _subset(
    spec: FileSubsetAxis | DirSubsetAxis | ListAxis | RanksAxis, items: tuple[str, ...]
) -> SubsetAxis:
    if len(items) > MAX_ITEMS:
        raise UsageError(f"{len(items)} items are more than {MAX_ITEMS}; split it", where="initial")
    return axes.subset(
        spec.name,
        items,
        kind=AxisKind(spec.kind),
        floor=spec.floor,
        monotone=spec.monotone,
        priority=spec.priority,
    )


def _found(name: str, cwd: Path, base: Path) -> Path:
    """Where the command itself would find it: in its own directory, else beside the spec."""
    places = [(root / Path(name).expanduser()) for root in (cwd, base)]
    found = next((place for place in places if place.exists()), None)
    if found is None:
        raise UsageError(f"there is no {name!r} in {cwd}", where="initial")
    return found.absolute()


def _lines_of(spec: FileSubsetAxis, path: Path, cwd: Path, python: str | None) -> _Lines:
    if not path.is_file():
        raise UsageError(f"{spec.initial!r} is not a file; a folder is dir_subset", where="initial")
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UsageError(f"{spec.initial!r} is larger than 1 GiB", where="initial")
        content = path.read_bytes()
    except OSError as wrong:
        raise UsageError(
            f"{spec.initial!r} cannot be read: {wrong.strerror}", where="initial"
        ) from None
    pieces: Pieces | JsonTree | ArrayRows | None
    if path.suffix in ARRAYS:
        pieces = array_rows(python, path)
    else:
        pieces = pieces_of(path.name, content, spec.header, spec.comments)
    if pieces is None:
        raise UsageError(
            f"{spec.initial!r} holds nothing that NumPy or torch of this command's Python could "
            "take apart: expected an array, a list, or arrays of one length",
            where="initial",
        )
    digest = hashlib.sha256(content).hexdigest()
    inside = _inside(path, cwd) if spec.in_place else None
    axis = _subset(spec, pieces.items)
    return _Lines(axis, pieces, source=path, digest=digest, inside=inside)


def _files_of(spec: DirSubsetAxis, root: Path, cwd: Path) -> _Files:
    if not root.is_dir():
        raise UsageError(
            f"{spec.initial!r} is not a folder; a file is file_subset", where="initial"
        )
    names = tuple(str(path.relative_to(root)) for path in _files_in(root))
    inside = _inside(root, cwd) if spec.in_place else None
    return _Files(_subset(spec, names), source=root, digest=_digest_of(root), inside=inside)


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


def changed_sources(bindings: Sequence[AxisBinding]) -> list[Path]:
    """The user's own files and folders that are not what they were when they were read."""
    changed = []
    for binding in bindings:
        if binding.source is not None and binding.digest:
            with suppress(OSError):
                if _digest_of(binding.source) != binding.digest:
                    changed.append(binding.source)
    return changed
