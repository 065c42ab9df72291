"""The axes of a reduction spec as they are written, kind by kind, and what each is to the search.
What they stand for on disk is `bindings`' affair.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from aorta.core import axis as axes
from aorta.core.axis import Axis, AxisKind, Strategy, SubsetAxis
from aorta.core.documents import UNKNOWN_KIND, StrictModel
from aorta.core.errors import UsageError
from aorta.core.names import is_variable

MAX_ITEMS = 1_000_000


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


class _Axis(StrictModel):
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
    choices: Annotated[tuple[Number | str, ...] | None, BeforeValidator(tuple_of)] = None
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


class DirSubsetAxis(_Subset):
    """Which files of a folder are needed. The variable `name` holds the reduced folder; `in_place`
    as for a file.
    """

    kind: Literal["dir_subset"]
    name: Variable
    initial: Text
    in_place: bool = False


class ListAxis(_Subset):
    """Which parts of a variable that holds `a,b,c` are needed."""

    kind: Literal["list"]
    name: Variable
    floor: Annotated[int, Field(ge=0)] = 1
    initial: Text
    separator: Text = ","

    def items(self) -> tuple[str, ...]:
        return tuple(filter(None, (part.strip() for part in self.initial.split(self.separator))))


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

    def axis(self) -> Axis:
        start, length = self.initial
        return axes.window(
            self.name, start, length, floor=self.floor, tolerance=self.tolerance, **self.hints
        )


class WorldSizeAxis(_Axis):
    """How many ranks: in the launcher's options, and in the variable `name`."""

    kind: Literal["world_size"]
    initial: Count
    floor: Count = 1

    fitting = (Strategy.BINARY, Strategy.LINEAR)

    @property
    def variables(self) -> tuple[str, ...]:
        return (self.name,) if is_variable(self.name) else ()

    def axis(self) -> Axis:
        kind, strategy = AxisKind.WORLD_SIZE, self.strategy
        return axes.number(
            self.name, self.initial, self.floor, kind=kind, strategy=strategy, **self.hints
        )


class RanksAxis(_Subset):
    """Which ranks are needed. The variable `name` holds those kept, `0,3`."""

    kind: Literal["ranks"]
    name: Variable
    initial: Count


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
