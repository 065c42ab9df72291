"""Which variables the imports read: those they ask for by name, those that begin as a loop wants
it, or all there are.

`{k: v for k, v in os.environ.items() if k.startswith("TQDM_")}` takes every variable into its hand
and keeps those of one prefix: nothing comes of the others, whatever they hold. A loop counts as
such if its source says so, the code that runs is what this source compiles to, and what it runs
over is `os.environ` itself. Every other sight of more than one variable is a sight of all of them.
"""

from __future__ import annotations

import _warnings
import os
import sys

TYPE_CHECKING = False  # without `typing`, which the program may not import
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType
    from typing import Any

ALL = "*"
_ONLY_AST = 0x400  # of compile(), as `ast` names it
_OPTIMIZED = 0x1  # of a code's flags: that of a function, whose variables are its own
_COMPREHENSIONS = ("ListComp", "SetComp", "DictComp", "GeneratorExp")
_SHOW_VARIABLES = {"locals", "vars", "dir", "eval", "exec"}
_ABSTRACT = sys.modules["_collections_abc"]
_KEYS, _ITEMS = (_ABSTRACT.KeysView.__iter__.__code__, _ABSTRACT.ItemsView.__iter__.__code__)
_VIEWS = (_KEYS, _ITEMS, _ABSTRACT.ValuesView.__iter__.__code__)


class Recording(os._Environ):  # type: ignore[type-arg]
    """Remembers what was asked. `os.environ` is of this class while the host imports, and then
    not.
    """

    asked: set[str] = set()
    prefixes: set[str] = set()

    @classmethod
    def begin(cls) -> None:
        os.environ.__class__ = os.environb.__class__ = cls

    @classmethod
    def end(cls) -> None:
        os.environ.__class__ = os.environb.__class__ = os._Environ

    def __getitem__(self, name: Any) -> Any:
        # What a view asks for, a loop asks for, and `__iter__` knows of that.
        if sys._getframe(1).f_code not in _VIEWS:
            Recording.asked.add(os.fsdecode(name) if type(name) is bytes else name)
        return os._Environ.__getitem__(self, name)

    def __iter__(self) -> Iterator[Any]:
        loop = _Loop(sys._getframe())
        try:
            self._note(loop.prefixes())
            for key in list(self._data):  # type: ignore[attr-defined]
                self._note(loop.prefixes())  # that of this moment: the loop may change it
                yield self.decodekey(key)
        finally:
            loop.frame = None  # which holds this very iterator

    def __len__(self) -> int:
        Recording.asked.add(ALL)
        return os._Environ.__len__(self)

    def __bool__(self) -> bool:
        return True  # no trial is without variables

    def __repr__(self) -> str:
        Recording.asked.add(ALL)
        return os._Environ.__repr__(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """For `copy`: the copy is of the class that a cold start would give it."""
        Recording.asked.add(ALL)
        how: Any = os._Environ.__reduce_ex__(self, protocol)
        make, arguments, *state = how
        return (make, (os._Environ, *arguments[1:]), *state)

    @staticmethod
    def _note(prefixes: tuple[str, ...] | None) -> None:
        if prefixes is None:
            Recording.asked.add(ALL)
        else:
            Recording.prefixes.update(prefixes)


class _Loop:
    """The loop that runs over the variables, if it is one that asks each name for its beginning
    before all else.
    """

    known: dict[tuple[str, CodeType, int], list[dict[str, Any]]] = {}

    def __init__(self, iterator: FrameType) -> None:
        view, self.frame = _driver(iterator)
        self.asks: list[dict[str, Any]] | None = None
        try:
            self.asks = self._read(view or iterator, None if view is None else view.f_code)
        except Exception:
            pass  # raised here, it would be the library's own; not to know is to know nothing

    def prefixes(self) -> tuple[str, ...] | None:
        """What names are asked for at this moment; None if that cannot be told."""
        frame = self.frame
        if frame is None or self.asks is None or _driver(sys._getframe(1))[1] is not frame:
            return None
        found: list[str] = []
        for ask in self.asks:
            value = _value_of(ask["prefix"], frame)
            values = value if type(value) is tuple else (value,)
            if any(type(one) is not str for one in values):
                return None
            found += values
        return tuple(found)

    def _read(self, driven: FrameType, view: CodeType | None) -> list[dict[str, Any]] | None:
        """Everything that stands where this loop does, as long as it is all of the one kind."""
        frame = self.frame
        if frame is None or _instruction(frame) != _FOR_ITER:
            return None
        code, line = frame.f_code, frame.f_lineno
        asks = _Loop.known.get((code.co_filename, code, line))
        if asks is None:
            asks = _Loop.known[code.co_filename, code, line] = _asks_in_source(code, line)
        for ask in asks:
            if not ask or ask["view"] is not view or not _runs_over_environ(ask, frame, driven):
                return None
        return asks or None


def _driver(iterator: FrameType) -> tuple[FrameType | None, FrameType | None]:
    """The view that `items()` gave, if there is one, and who asks it, or else `os.environ`, for the
    next one.
    """
    frame = iterator.f_back
    if frame is not None and frame.f_code in _VIEWS:
        return frame, frame.f_back
    return None, frame


def _instruction(frame: FrameType) -> int:
    return frame.f_code.co_code[frame.f_lasti]


def _for_iter() -> int:
    """The number of the instruction with which this interpreter's loops ask for the next one."""

    def asked() -> Iterator[int]:
        yield _instruction(sys._getframe(1))

    for number in asked():
        return number or -1  # nought is what stands behind instructions, whichever they are
    return -1


_FOR_ITER = _for_iter()


def _runs_over_environ(ask: dict[str, Any], frame: FrameType, driven: FrameType) -> bool:
    code = frame.f_code
    # A comprehension with a frame of its own holds its iterator in its first variable.
    if code.co_varnames[:1] == (".0",):
        return getattr(frame.f_locals.get(".0"), "gi_frame", None) is driven
    if ask["statement"]:  # its names outlive it
        own = set(code.co_varnames) - set(code.co_cellvars)
        if not code.co_flags & _OPTIMIZED or not own.issuperset(ask["names"]):
            return False
    return _value_of(ask["over"], frame) is os.environ


def _value_of(node: Any, frame: FrameType) -> object:
    """A text, several of them, a variable of this frame, or something in a module; None for
    anything else.
    """
    kind = type(node).__name__
    if kind == "Constant":
        return node.value
    if kind == "Tuple":
        return tuple(_value_of(one, frame) for one in node.elts)
    if kind == "Name":
        local = frame.f_locals
        return local[node.id] if node.id in local else frame.f_globals.get(node.id)
    if kind == "Attribute":
        module = _value_of(node.value, frame)
        return vars(module).get(node.attr) if type(module) is type(sys) else None
    return None


def _asks_in_source(code: CodeType, line: int) -> list[dict[str, Any]]:
    """Of each loop that stands on this line what it asks, or {} for one of another kind."""
    try:
        with open(code.co_filename, "rb") as file:
            text = file.read().decode("utf-8").lstrip("\ufeff")
        with _NoWarnings():
            if not _is_in(code, compile(text, code.co_filename, "exec", 0, True)):
                return []
            tree = compile(text, code.co_filename, "exec", _ONLY_AST, True)
    except (OSError, ValueError, SyntaxError):
        return []
    found = []
    for node in _below(tree):
        if type(node).__name__ in _COMPREHENSIONS and node.lineno <= line <= node.end_lineno:
            found.append(_ask_of_comprehension(node))
        elif type(node).__name__ in ("For", "AsyncFor"):
            if node.lineno <= line <= node.iter.end_lineno:
                found.append(_ask_of_statement(node, tree))
    return found


class _NoWarnings:
    """What the compiler has to say of a library was said, or not, when it was installed."""

    def __enter__(self) -> None:
        self.filters: Any = sys.modules.get("warnings", _warnings).filters
        self.filters.insert(0, ("ignore", None, Warning, None, 0))

    def __exit__(self, *_: object) -> None:
        del self.filters[0]


def _is_in(code: CodeType, whole: CodeType) -> bool:
    """Whether this source compiles to the very code that runs."""
    parts = [whole]
    while parts:
        part = parts.pop()
        if part == code:
            return True
        parts += [one for one in part.co_consts if type(one) is type(code)]
    return False


def _ask_of_comprehension(node: Any) -> dict[str, Any]:
    if len(node.generators) != 1 or not node.generators[0].ifs:
        return {}
    only = node.generators[0]
    return {} if only.is_async else _ask(only.target, only.iter, only.ifs[0])


def _ask_of_statement(node: Any, tree: Any) -> dict[str, Any]:
    """`for k in os.environ: if k.startswith(..): ...`, or `if not k.startswith(..): continue` and
    then anything.
    """
    first = node.body[0]
    if type(node).__name__ != "For" or node.orelse:
        return {}
    if type(first).__name__ != "If" or first.orelse:
        return {}
    test = first.test
    if type(test).__name__ == "UnaryOp" and type(test.op).__name__ == "Not":
        if [type(one).__name__ for one in first.body] != ["Continue"]:
            return {}
        test = test.operand
        if type(test).__name__ == "BoolOp":
            return {}
    elif len(node.body) > 1:
        return {}
    ask = _ask(node.target, node.iter, test)
    functions = [
        one
        for one in _below(tree)
        if type(one).__name__ == "FunctionDef" and any(part is node for part in _below(one))
    ]
    if not ask or not functions:
        return {}
    innermost = max(functions, key=lambda one: one.lineno)
    elsewhere = {one.id for one in _below(innermost, node) if type(one).__name__ == "Name"}
    if elsewhere & (_SHOW_VARIABLES | set(ask["names"])):
        return {}
    return {**ask, "statement": True}


def _ask(target: Any, over: Any, test: Any) -> dict[str, Any]:
    """What a loop with this head and this first test asks; {} if it does not begin with a
    prefix.
    """
    view = None
    if type(over).__name__ == "Call":
        kinds = {"keys": _KEYS, "items": _ITEMS}
        view = kinds.get(getattr(over.func, "attr", ""))
        if view is None or over.args or over.keywords:
            return {}
        over = over.func.value
    names = target.elts if type(target).__name__ == "Tuple" else [target]
    if len(names) != (2 if view is _ITEMS else 1) or {type(n).__name__ for n in names} != {"Name"}:
        return {}
    bound = [name.id for name in names]
    prefix = _prefix_in(test, bound[0])
    if prefix is None or {n.id for n in _below(prefix) if type(n).__name__ == "Name"} & set(bound):
        return {}
    return {"names": bound, "view": view, "over": over, "prefix": prefix, "statement": False}


def _prefix_in(test: Any, name: str) -> Any:
    """The one argument of `NAME.startswith`, which must come first."""
    if type(test).__name__ == "BoolOp" and type(test.op).__name__ == "And":
        test = test.values[0]
    if type(test).__name__ != "Call" or len(test.args) != 1 or test.keywords:
        return None
    asked = test.func
    if type(asked).__name__ != "Attribute" or asked.attr != "startswith":
        return None
    return test.args[0] if getattr(asked.value, "id", None) == name else None


def _below(node: Any, without: Any = None) -> Iterator[Any]:
    """This part of a syntax tree and all its parts, but for one."""
    parts = [node]
    while parts:
        part = parts.pop()
        if part is without:
            continue
        yield part
        for field in part._fields:
            value = getattr(part, field, None)
            for one in value if type(value) is list else [value]:
                if hasattr(one, "_fields"):
                    parts.append(one)
