"""The axes of a reduction spec as they are written, kind by kind. What they stand for on disk is
`bindings`' affair.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from aorta.core.axis import Strategy
from aorta.core.documents import UNKNOWN_KIND, StrictModel
from aorta.core.errors import UsageError
from aorta.core.names import is_variable


def tuple_of(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _variable(name: str) -> str:
    if not is_variable(name):
        raise UsageError(
            f"{name!r} is not a variable name; expected letters, digits and _, not starting with "
            "a digit"
        )
    return name


Number = int | float
Count = Annotated[int, Field(ge=1)]
Text = Annotated[str, Field(min_length=1)]
Variable = Annotated[str, AfterValidator(_variable)]
# A whole number is a real one, too.
Real = Annotated[float, BeforeValidator(lambda n: float(n) if type(n) is int else n)]


def _strategy(value: object) -> object:
    if isinstance(value, str) and value in {known.value for known in Strategy}:
        return Strategy(value)
    raise UsageError(f"found {value!r}, expected one of: {', '.join(Strategy)}")


class _Axis(StrictModel):
    name: str
    strategy: Annotated[Strategy, BeforeValidator(_strategy)] = Strategy.AUTO
    monotone: bool | None = None
    priority: int | None = None

    # The strategies that fit it, besides AUTO.
    fitting: ClassVar[tuple[Strategy, ...]] = (Strategy.DD_MIN,)

    @field_validator("name")
    @classmethod
    def _named(cls, name: str) -> str:
        if not name.strip() or len(name) > 200:
            raise UsageError("found no usable name, expected a short text")
        return name

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables this axis sets."""
        return (self.name,)

    @model_validator(mode="after")
    def _fits(self) -> "_Axis":
        every = (Strategy.AUTO, *self.fitting)
        if self.strategy not in every:
            names = ", ".join(every)
            raise UsageError(f"strategy {self.strategy} does not fit this axis; expected {names}")
        return self


class _InFile(_Axis):
    """A value that may also stand in a configuration: in this line of a file of the working
    directory. The command then runs in a copy of that directory, in which the file says the value.
    """

    file: str | None = None
    line: Count | None = None

    @model_validator(mode="after")
    def _both(self) -> "_InFile":
        if (self.file is None) != (self.line is None):
            raise UsageError("file and line belong together: where the value stands")
        return self


class EnvAxis(_InFile):
    """A variable that holds a number, or one of a few choices."""

    kind: Literal["env"]
    name: Variable
    type: Literal["int", "float", "choice"] | None = None
    initial: Number | str | None = None
    floor: Number | None = None
    step: Number | None = None
    tolerance: Real | None = None
    choices: Annotated[tuple[Number | str, ...] | None, BeforeValidator(tuple_of)] = None

    fitting = (Strategy.BINARY, Strategy.LINEAR)

    @model_validator(mode="after")
    def _whole(self) -> "EnvAxis":
        if self.is_choice:
            self._check_choices()
        else:
            self._check_numbers()
        return self

    @property
    def is_choice(self) -> bool:
        return self.type == "choice" or (self.type is None and self.choices is not None)

    @property
    def is_float(self) -> bool:
        given = (self.initial, self.floor, self.step)
        return self.type == "float" or (
            self.type is None and any(isinstance(value, float) for value in given)
        )

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
        for name in ("initial", "floor"):
            value = getattr(self, name)
            if value is None:
                raise UsageError(f"the key {name} is required for a number")
            if isinstance(value, str):
                raise UsageError(f"{name} is {value!r}, expected a number; remove the quotes")
        if self.type == "int":
            for name in ("initial", "floor", "step"):
                if isinstance(getattr(self, name), float):
                    raise UsageError(f"{name} is {getattr(self, name)}, expected a whole number")


class _InPlace(_Axis):
    """With `in_place` the command runs in a copy of its working directory."""

    in_place: bool = False


class FileSubsetAxis(_InPlace):
    """Which lines of a file are needed, or rows, elements or entries, as its ending says. The path
    of the reduced copy is given through the variable `name`.
    """

    kind: Literal["file_subset"]
    name: Variable
    initial: Text
    # So many first lines always stay; None: the header of a CSV file, if it has one.
    header: Annotated[int | None, Field(ge=0)] = None
    comments: str | None = None  # lines that begin so always stay
    floor: Annotated[int, Field(ge=0)] = 1

    @field_validator("comments")
    @classmethod
    def _some(cls, mark: str | None) -> str | None:
        if mark is not None and not mark.strip():
            raise UsageError("found an empty text, expected what comments begin with, such as '#'")
        return mark


class DirSubsetAxis(_InPlace):
    """Which files of a folder are needed. The variable `name` holds the reduced folder."""

    kind: Literal["dir_subset"]
    name: Variable
    initial: Text
    floor: Annotated[int, Field(ge=0)] = 1


class ListAxis(_InFile):
    """Which parts of a variable that holds `a,b,c` are needed."""

    kind: Literal["list"]
    name: Variable
    initial: Text
    separator: Text = ","
    floor: Annotated[int, Field(ge=0)] = 1

    @model_validator(mode="before")
    @classmethod
    def _text(cls, given: object) -> object:
        """`[a, b]` is the same as `a,b`, with whatever separator the variable wants."""
        if not isinstance(given, dict) or not isinstance(given.get("initial"), list):
            return given
        items, mark = given["initial"], given.get("separator", ",")
        if isinstance(mark, str) and all(isinstance(item, str) for item in items):
            return {**given, "initial": mark.join(items)}
        return given


class WindowAxis(_Axis):
    """A range of steps, given through two variables: where it starts, and how many steps it has."""

    kind: Literal["window"]
    start: Variable
    length: Variable
    initial: Annotated[tuple[int, int], BeforeValidator(tuple_of)]
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


class WorldSizeAxis(_Axis):
    """How many ranks: in the launcher's options, and in the variable `name`."""

    kind: Literal["world_size"]
    initial: Count
    floor: Count = 1

    fitting = (Strategy.BINARY, Strategy.LINEAR)

    @property
    def variables(self) -> tuple[str, ...]:
        return (self.name,) if is_variable(self.name) else ()


class RanksAxis(_Axis):
    """Which ranks are needed. The variable `name` holds those kept, `0,3`."""

    kind: Literal["ranks"]
    name: Variable
    initial: Count
    floor: Count = 1


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
