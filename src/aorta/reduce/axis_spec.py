"""The axes of a reduction spec, kind by kind, and their bindings. A bad file is a UsageError."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from aorta.core import axis as axes
from aorta.core.axis import (
    Axis,
    AxisKind,
    Strategy,
    SubsetAxis,
    Value,
    as_indexes,
    as_single,
    as_window,
)
from aorta.core.documents import UNKNOWN_KIND, Count, DocumentModel, Text
from aorta.core.errors import UsageError
from aorta.core.names import is_variable
from aorta.reduce.bindings import NONSENSE, AxisBinding, plain_binding
from aorta.reduce.config_files import settings_in
from aorta.reduce.structure import ARRAYS, array_rows, pieces_of

MAX_ITEMS = 1_000_000
MAX_FILE_BYTES = 1 << 30


@dataclass(frozen=True)
class Surroundings:
    """Where axes find what they name: the working directory, the spec's, the command's Python."""

    cwd: Path
    base: Path
    python: str | None

    def found(self, name: str) -> Path:
        """Where the command itself would find it: in its own directory, else beside the spec."""
        places = [(root / Path(name).expanduser()) for root in (self.cwd, self.base)]
        path = next((place for place in places if place.exists()), None)
        if path is None:
            raise UsageError(f"there is no {name!r} in {self.cwd}", where="initial")
        return path.absolute()

    def inside(self, path: Path) -> str:
        """Its name in the working directory."""
        cwd, place = self.cwd.resolve(), path.resolve()
        if not place.is_relative_to(cwd) or place == cwd:
            said = f"{str(path)!r} does not lie in the working directory"
            raise UsageError(said, where="initial")
        return place.relative_to(cwd).as_posix()


def _variable(name: str) -> str:
    if not is_variable(name):
        raise UsageError(
            f"{name!r} is not a variable name; expected letters, digits and _, not starting with "
            "a digit"
        )
    return name


Number = int | float
Variable = Annotated[str, AfterValidator(_variable)]
# A whole number is a real one, too.
Real = Annotated[float, BeforeValidator(lambda n: float(n) if type(n) is int else n)]


class _Axis(DocumentModel):
    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"\S")]
    strategy: Annotated[Strategy, Field(strict=False)] = Strategy.AUTO
    monotone: bool | None = None
    priority: int | None = None

    # The strategies that fit it, besides AUTO.
    fitting: ClassVar[tuple[Strategy, ...]] = (Strategy.DD_MIN,)

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables this axis sets."""
        return (self.name,)

    @property
    def hints(self) -> dict[str, Any]:
        """What the search is told of any axis."""
        return {"monotone": self.monotone, "priority": self.priority}

    @model_validator(mode="after")
    def _fits(self) -> "_Axis":
        every = (Strategy.AUTO, *self.fitting)
        if self.strategy not in every:
            names = ", ".join(every)
            raise UsageError(f"strategy {self.strategy} does not fit this axis; expected {names}")
        return self


class EnvAxis(_Axis):
    """A variable that holds a number, or one of a few choices. Or the whole number behind `key`
    (`train.steps`) in the configuration `file`: the command then runs in a copy of its working
    directory, in which the file says another number.
    """

    kind: Literal["env"]
    name: Variable
    type: Literal["int", "float", "choice"] | None = None
    initial: Number | str | None = None
    floor: Number | None = None
    step: Number | None = None
    tolerance: Real | None = None
    choices: tuple[Number | str, ...] | None = None
    file: Text | None = None
    key: Text | None = None

    fitting = (Strategy.BINARY, Strategy.LINEAR)

    @model_validator(mode="after")
    def _whole(self) -> "EnvAxis":
        if (self.file is None) != (self.key is None):
            raise UsageError("file and key belong together: where the number stands")
        if self.type == "choice" or (self.type is None and self.choices is not None):
            self._check_choices()
        else:
            self._check_numbers()
        return self

    def _check_choices(self) -> None:
        if self.choices is None:
            raise UsageError("a choice needs choices, the original first and the most wanted last")
        if self.strategy is Strategy.BINARY:
            raise UsageError("strategy binary does not fit this axis; expected auto, linear")
        extra = [n for n in ("floor", "step", "tolerance") if getattr(self, n) is not None]
        if extra:
            raise UsageError(f"a choice has no {extra[0]}; remove it")
        if self.initial is not None and self.initial not in self.choices:
            raise UsageError(f"initial {self.initial!r} is none of the choices")

    def _check_numbers(self) -> None:
        if self.choices is not None:
            raise UsageError("choices need type: choice")
        for name in ("initial", "floor", "step"):
            value = getattr(self, name)
            if value is None and name != "step":
                raise UsageError(f"the key {name} is required for a number")
            if isinstance(value, str):
                raise UsageError(f"{name} is {value!r}, expected a number; remove the quotes")
            if self.type == "int" and isinstance(value, float):
                raise UsageError(f"{name} is {value}, expected a whole number")

    def axis(self) -> Axis:
        initial, floor = self.initial, self.floor
        if self.choices is not None:
            choices = self.choices[self.choices.index(initial) if initial is not None else 0 :]
            return axes.choice(self.name, choices, priority=self.priority)
        assert isinstance(initial, int | float)  # checked above
        assert floor is not None
        given = (initial, floor, self.step)
        if self.type == "float" or (not self.type and any(isinstance(n, float) for n in given)):
            initial, floor = float(initial), float(floor)
        return axes.number(
            self.name,
            initial,
            floor,
            step=self.step,
            tolerance=self.tolerance,
            strategy=self.strategy,
            **self.hints,
        )

    def bind(self, around: Surroundings) -> AxisBinding:
        variable = plain_binding(self.axis(), self.name)
        return variable if self.file is None else self._in_config(variable, around)

    def _in_config(self, variable: AxisBinding, around: Surroundings) -> AxisBinding:
        """A number that a configuration says."""
        path = around.cwd / str(self.file)
        setting = next((one for one in settings_in(path) or () if one.key == self.key), None)
        if setting is None:
            said = f"found no whole number of the key {self.key!r} in {self.file!r}"
            raise UsageError(said, where="key")
        original = path.read_text("utf-8")

        def write(value: Value, target: Path) -> None:
            """In a file that may hold other values of it already, all of them further down."""
            text = target.read_text("utf-8") if target.is_file() else original
            said = f'"{value}"' if value == NONSENSE else str(as_single(value))
            target.write_text(setting.replaced(text, said), encoding="utf-8")

        return replace(variable, write=write, inside=around.inside(path), position=setting.start)


class _Subset(_Axis):
    """Some of several items. `floor`: so many at least."""

    kind: str
    floor: Count = 1

    def axis(self, items: tuple[str, ...]) -> SubsetAxis:
        if len(items) > MAX_ITEMS:
            said = f"{len(items)} items are more than {MAX_ITEMS}; split it"
            raise UsageError(said, where="initial")
        kind = AxisKind(self.kind)
        return axes.subset(self.name, items, kind=kind, floor=self.floor, **self.hints)

    def listed(self, items: tuple[str, ...], separator: str = ",") -> AxisBinding:
        """A variable that holds some of the items: `a,c`."""
        axis = self.axis(items)

        def texts(value: Value) -> dict[str, str]:
            return {self.name: separator.join(items[index] for index in as_indexes(value))}

        return AxisBinding(axis, texts)


class FileSubsetAxis(_Subset):
    """Which lines of a file are needed, or rows, elements or entries, as its ending says. The path
    of the reduced copy is given through the variable `name`; with `in_place` the command runs in a
    copy of its working directory that has it.
    """

    kind: Literal["file_subset"]
    name: Variable
    initial: Text
    # So many first lines always stay; None: the header of a CSV file, if it has one.
    header: Annotated[int | None, Field(ge=0)] = None
    in_place: bool = False

    def bind(self, around: Surroundings) -> AxisBinding:
        path, initial = around.found(self.initial), self.initial
        if not path.is_file():
            raise UsageError(f"{initial!r} is not a file; a folder is dir_subset", where="initial")
        try:
            if path.stat().st_size > MAX_FILE_BYTES:
                raise UsageError(f"{initial!r} is larger than 1 GiB", where="initial")
            content = path.read_bytes()
        except OSError as wrong:
            said = f"{initial!r} cannot be read: {wrong.strerror}"
            raise UsageError(said, where="initial") from None
        rows = array_rows(around.python, path) if path.suffix in ARRAYS else None
        pieces = rows or pieces_of(path.name, content, self.header)
        if path.suffix in ARRAYS and rows is None:
            raise UsageError(
                f"{initial!r} holds nothing that NumPy or torch of this command's Python could "
                "take apart: expected an array, a list, or arrays of one length",
                where="initial",
            )

        def write(value: Value, target: Path) -> None:
            target.write_bytes(pieces.without_all_but(set(as_indexes(value))))

        return AxisBinding(
            self.axis(pieces.items),
            write=write,
            source=path,
            digest=hashlib.sha256(content).hexdigest(),
            inside=around.inside(path) if self.in_place else None,
        )


class DirSubsetAxis(_Subset):
    """Which files of a folder are needed. The variable `name` holds the reduced folder; `in_place`
    as for a file.
    """

    kind: Literal["dir_subset"]
    name: Variable
    initial: Text
    in_place: bool = False

    def bind(self, around: Surroundings) -> AxisBinding:
        """Real files, that `os.walk`, `grep -r` and `tar` see like any other."""
        root = around.found(self.initial)
        if not root.is_dir():
            said = f"{self.initial!r} is not a folder; a file is file_subset"
            raise UsageError(said, where="initial")
        names, digest = [], hashlib.sha256()
        for path in _files_in(root):
            names.append(str(path.relative_to(root)))
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            digest.update(f"{names[-1]}\0{content}\0".encode("utf-8", "replace"))

        def write(value: Value, target: Path) -> None:
            target.mkdir(exist_ok=True)
            for name in (names[index] for index in as_indexes(value)):
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / name, target / name)

        return AxisBinding(
            self.axis(tuple(names)),
            write=write,
            source=root,
            digest=digest.hexdigest(),
            inside=around.inside(root) if self.in_place else None,
        )


class ListAxis(_Subset):
    """Which parts of a variable that holds `a,b,c` are needed."""

    kind: Literal["list"]
    name: Variable
    floor: Annotated[int, Field(ge=0)] = 1
    initial: Text
    separator: Text = ","

    def bind(self, _around: Surroundings) -> AxisBinding:
        parts = (part.strip() for part in self.initial.split(self.separator))
        return self.listed(tuple(filter(None, parts)), self.separator)


class WindowAxis(_Axis):
    """A range of steps, given through two variables: where it starts, and how many steps it has."""

    kind: Literal["window"]
    start: Variable
    length: Variable
    initial: tuple[int, int]
    floor: Count = 1
    tolerance: Real = 0.0

    fitting = (Strategy.BINARY,)

    @model_validator(mode="after")
    def _two(self) -> "WindowAxis":
        if self.start == self.length:
            raise UsageError(f"start and length are both {self.start}; they need two variables")
        return self

    @property
    def variables(self) -> tuple[str, ...]:
        return (self.start, self.length)

    def bind(self, _around: Surroundings) -> AxisBinding:
        start, length = self.initial
        axis = axes.window(
            self.name, start, length, floor=self.floor, tolerance=self.tolerance, **self.hints
        )

        def texts(value: Value) -> dict[str, str]:
            span = as_window(value)
            return {self.start: str(span.start), self.length: str(span.length)}

        return AxisBinding(axis, texts)


class WorldSizeAxis(_Axis):
    """How many ranks: in the launcher's options, and in the variable `name`."""

    kind: Literal["world_size"]
    initial: Count
    floor: Count = 1

    fitting = (Strategy.BINARY, Strategy.LINEAR)

    @property
    def variables(self) -> tuple[str, ...]:
        return (self.name,) if is_variable(self.name) else ()

    def bind(self, _around: Surroundings) -> AxisBinding:
        kind, strategy = AxisKind.WORLD_SIZE, self.strategy
        axis = axes.number(
            self.name, self.initial, self.floor, kind=kind, strategy=strategy, **self.hints
        )
        return plain_binding(axis, *self.variables)


class RanksAxis(_Subset):
    """Which ranks are needed. The variable `name` holds those kept, `0,3`."""

    kind: Literal["ranks"]
    name: Variable
    initial: Count

    def bind(self, _around: Surroundings) -> AxisBinding:
        return self.listed(tuple(map(str, range(self.initial))))


class SourceAxis(_Axis):
    """The program itself, down to one short script: `initial` is its file in the working
    directory, `fixed_by` a patch with which it is known to end well.
    """

    kind: Literal["source"]
    initial: Text | None = None
    fixed_by: Text | None = None

    @property
    def variables(self) -> tuple[str, ...]:
        return ()


def _files_in(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders.sort()
        yield from (path for name in sorted(files) if (path := Path(folder) / name).is_file())


def _tag(value: Any) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return f"tag:{kind}"


AxisSpec = Annotated[
    Annotated[EnvAxis, Tag("tag:env")]
    | Annotated[FileSubsetAxis, Tag("tag:file_subset")]
    | Annotated[DirSubsetAxis, Tag("tag:dir_subset")]
    | Annotated[ListAxis, Tag("tag:list")]
    | Annotated[WindowAxis, Tag("tag:window")]
    | Annotated[WorldSizeAxis, Tag("tag:world_size")]
    | Annotated[RanksAxis, Tag("tag:ranks")]
    | Annotated[SourceAxis, Tag("tag:source")],
    Discriminator(
        _tag,
        custom_error_type=UNKNOWN_KIND,
        custom_error_message="expected env, file_subset, dir_subset, list, window, world_size, "
        "ranks or source",
    ),
]
