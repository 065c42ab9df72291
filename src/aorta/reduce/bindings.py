"""Binds an axis to the workload: its value as variables and files, for trials and reproducer."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aorta.core.axis import Axis, Point, Value, as_single

Placed = dict[str, str | Path]
"""Variables. A `Path` was laid out in the folder and moves with it; a text stands for itself."""

NONSENSE = "aorta-checks-whether-this-is-read"


@dataclass(frozen=True)
class AxisBinding:
    """One axis, and how its value becomes variables (`texts`), or a file or folder (`write`)."""

    axis: Axis
    # The variables that hold the value itself.
    texts: Callable[[Value], Mapping[str, str]] = field(default=lambda _value: {}, repr=False)
    # The value as a file or folder without links, its parent is there. None: variables alone.
    write: Callable[[Value, Path], None] | None = field(default=None, repr=False)
    source: Path | None = None  # the file or folder that is reduced
    digest: str = ""  # changes when what the axis reduces has changed
    inside: str | None = None  # its name in the working directory, if the command finds it there
    position: int = 0  # in the file that holds it beside other values


def plain_binding(axis: Axis, *names: str) -> AxisBinding:
    """Numbers and choices: the value is the variable's text."""
    return AxisBinding(axis, lambda value: dict.fromkeys(names, str(as_single(value))))


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
) -> tuple[Placed, Placed]:
    """Every axis of the point: its variables, and what was changed in `place`, a copy of the
    working directory, for a command that finds it there. Other files and folders lie in `folder`;
    what has the name of another, or one that is `taken`, in a folder of its own. `NONSENSE` as a
    value becomes a text, or a file that is not there. Raises OSError.
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
        is_nonsense = value == NONSENSE
        texts = binding.texts(binding.axis.initial if is_nonsense else value)
        laid |= dict.fromkeys(texts, NONSENSE) if is_nonsense else texts
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
        if not is_nonsense or texts:
            binding.write(value, target)
    return variables, inside


def settings_of(bindings: Sequence[AxisBinding], point: Point) -> dict[str, str]:
    """The variables of a point that are no files: the same in every trial of it."""
    texts = (binding.texts(point[binding.axis.name]) for binding in bindings)
    return {name: text for of_axis in texts for name, text in of_axis.items()}
