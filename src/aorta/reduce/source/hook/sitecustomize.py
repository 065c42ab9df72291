"""Found by the user's own interpreter, before the user's program: writes down what of the user's
files runs, with the values of simple type that a shorter program can be made of.

`AORTA_TRIAL_DIR` is where: `AORTA_SOURCE_FACTS` is a file in it that is appended to, one JSON
document a line, by every process of the program; `AORTA_SOURCE_ROOT` the folder, there or anywhere,
that the user's files lie below. Where the interpreter has a `sitecustomize` of its own,
that one is run. Python 3.8 or later.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dis import findlinestarts

TYPE_CHECKING = False  # without `typing`, which the program may not import
if TYPE_CHECKING:
    from types import CodeType, FrameType, TracebackType
    from typing import Any
HERE = os.path.dirname(os.path.abspath(__file__))
MOST_ITEMS, MOST_CHARACTERS = 40, 400
NOT_THE_USERS = ("/site-packages/", "/dist-packages/", "/.venv/", "/lib/python3")
MOST_MADE = 500
MOST_NUMBERS = 16  # of an array that is written out
TRACEBACK = "Traceback (most recent call last):"
MADE: dict[int, tuple[object, str | None]] = {}  # by id; held, so that an id stays its own
PLAIN = (type(None), bool, int, str, bytes)


class Observer:
    """Writes a line the first time something is seen."""

    def __init__(self) -> None:
        self.trial = os.environ["AORTA_TRIAL_DIR"]
        self.root = os.path.realpath(self.inside("AORTA_SOURCE_ROOT")) + os.sep
        self.file = -1
        self.names: dict[str, str] = {}  # of code: the user's file, or nothing
        self.unseen: dict[CodeType, set[int]] = {}  # lines
        self.opened: set[str] = set()
        self.stop_monitoring: Any = lambda: None

    def write(self, **line: Any) -> None:
        if self.file < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self.file = os.open(self.inside("AORTA_SOURCE_FACTS"), flags, 0o600)
        os.write(self.file, (json.dumps(line) + "\n").encode())

    def inside(self, variable: str) -> str:
        return os.path.join(self.trial, os.environ[variable])

    def user_file(self, name: str) -> str:
        """Its name below the root; empty for a library's."""
        known = self.names.get(name)
        if known is None:
            path = os.path.realpath(name)
            inside = name[:1] != "<" and path.startswith(self.root)
            inside = inside and path != os.path.realpath(__file__)
            inside = inside and not any(m in path for m in NOT_THE_USERS)
            known = self.names[name] = path[len(self.root) :] if inside else ""
        return known

    def on_begin(self, file: str, frame: FrameType) -> None:
        """A module, function or class of the user's begins."""
        if frame.f_code.co_name == "__init__" and len(MADE) < MOST_MADE:
            self.on_made(frame)
        if frame.f_code.co_name == "<module>":
            names = frame.f_globals
            package = names.get("__package__") or ""
            self.write(module=[str(names.get("__name__")), file, str(package)], argv=sys.argv)

    def on_call(self, frame: FrameType, _event: str, _argument: object) -> Any:
        """For `sys.settrace`; a line that was seen is not looked at again."""
        code = frame.f_code
        file = self.user_file(code.co_filename)
        if not file:
            return None
        self.on_begin(file, frame)
        if code not in self.unseen:
            self.unseen[code] = {line for _, line in findlinestarts(code) if line}
        unseen = self.unseen[code]

        def on_event(frame: FrameType, event: str, _argument: object) -> Any:
            if event == "line" and frame.f_lineno in unseen:
                unseen.remove(frame.f_lineno)
                self.write(line=[file, frame.f_lineno])
            if not unseen:
                frame.f_trace_lines = False  # a long loop is not looked at turn by turn
            return on_event

        return on_event

    def monitor(self) -> None:
        """With `sys.monitoring`, which reports a line once. Raises `AttributeError` before Python
        3.12, `ValueError` where a coverage tool uses it.
        """
        monitoring = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        tool, events = monitoring.COVERAGE_ID, monitoring.events
        monitoring.use_tool_id(tool, "aorta")

        def on_start(code: CodeType, _offset: int) -> Any:
            file = self.user_file(code.co_filename)
            if not file:
                return monitoring.DISABLE
            return self.on_begin(file, sys._getframe(1))  # noqa: SLF001

        def on_line(code: CodeType, line: int) -> Any:
            file = self.user_file(code.co_filename)
            if file:
                self.write(line=[file, line])
            return monitoring.DISABLE

        monitoring.register_callback(tool, events.PY_START, on_start)
        monitoring.register_callback(tool, events.LINE, on_line)
        monitoring.set_events(tool, events.PY_START | events.LINE)
        self.stop_monitoring = lambda: monitoring.set_events(tool, 0)

    @staticmethod
    def on_made(frame: FrameType) -> None:
        """An object of the user's is made: the Python that makes one like it."""
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount]
        if not names or code.co_flags & 0x0C or code.co_kwonlyargcount:
            return  # it takes what is not named
        made = frame.f_locals[names[0]]
        if id(made) not in MADE and "__init__" in vars(type(made)):
            texts = [expression(frame.f_locals[name]) for name in names[1:]]
            whole = "%s(%s)" % (type(made).__name__, ", ".join(map(str, texts)))
            MADE[id(made)] = (made, None if None in texts else whole)

    def on_audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or not isinstance(arguments[0], str):
            return
        name = arguments[0]
        reads = "r" in str(arguments[1]) or (arguments[1] is None and not (arguments[2] or 0) & 3)
        if reads and name not in self.opened:
            self.opened.add(name)
            file = "" if name.endswith(".pyc") else self.user_file(name)
            if file and os.path.isfile(name):
                self.write(opened=file)

    def on_exception(self, wrong: BaseException) -> None:
        wrong = first_cause(wrong)
        frames: list[dict[str, Any]] = []
        trace = wrong.__traceback__
        said = str(wrong)
        if TRACEBACK in said:
            frames, said = self.in_worker(said)
            trace = None
        while trace is not None:
            frames.append(self.frame(trace, wrong))
            trace = trace.tb_next
        last = max((i for i, frame in enumerate(frames) if frame["file"]), default=-1)
        self.write(
            raised={
                "type": type(wrong).__name__,
                "message": said,
                "frames": [frame for frame in frames if frame["file"]],
                "in_library": last + 1 < len(frames),
            }
        )

    def in_worker(self, text: str) -> tuple[list[dict[str, Any]], str]:
        """The frames and the message of a traceback that another process wrote."""
        import re

        text = text[text.rindex(TRACEBACK) :].rstrip('\n"')
        found = re.findall(r'^  File "(.+)", line (\d+), in (.+)$', text, re.MULTILINE)
        frames = [
            {"file": self.user_file(file), "function": name, "line": int(line)}
            for file, line, name in found
        ]
        return frames, text.splitlines()[-1].partition(": ")[2]

    def frame(self, trace: TracebackType, wrong: BaseException) -> dict[str, Any]:
        code = trace.tb_frame.f_code
        file = self.user_file(code.co_filename)
        if not file:
            return {"file": ""}
        position = None
        if hasattr(code, "co_positions"):
            found = list(code.co_positions())[trace.tb_lasti // 2]
            position = None if None in found else found
        variables = {name: expression(value) for name, value in trace.tb_frame.f_locals.items()}
        operands: list[str] = []
        largest = None
        try:
            column: Any = position[2] if position else sys.maxsize
            read = read_at(trace.tb_frame, (trace.tb_lineno, column))
            operands = sorted(kind_of(value, wrong) for value in read)
            largest = largest_of(read) if isinstance(wrong, IndexError) else None
        except Exception:
            pass  # no source, or an object of the user's that does not want to be seen
        return {
            "operands": operands,
            "largest": largest,
            "file": file,
            "function": code.co_name,
            "line": trace.tb_lineno,
            "position": position,
            "values": {name: text for name, text in variables.items() if text is not None},
        }


UNDEFINED = object()


def read_at(frame: FrameType, place: tuple[int, int]) -> list[Any]:
    """What each name, attribute and item that the statement there reads was when it failed;
    nothing of one in a lambda or comprehension, which has a frame of its own.
    """
    if frame.f_code.co_name[0] == "<" and frame.f_code.co_name != "<module>":
        return []
    import ast
    import linecache

    source = "".join(linecache.getlines(frame.f_code.co_filename))
    around = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.stmt)
        and (node.lineno, node.col_offset) <= place <= (node.end_lineno or 0, sys.maxsize)
    ]
    # Of several in one line the inner one comes last.
    failing = max(reversed(around), key=lambda node: (node.lineno, -(node.end_lineno or 0)))
    own = {node.arg for node in ast.walk(failing) if isinstance(node, ast.arg)}
    for part in ast.walk(failing):
        if isinstance(part, ast.comprehension):
            own |= {node.id for node in ast.walk(part.target) if isinstance(node, ast.Name)}
    if isinstance(failing, ast.AugAssign):
        failing.target.ctx = ast.Load()
    names = {**frame.f_builtins, **frame.f_globals, **frame.f_locals}

    def value_of(node: Any) -> Any:
        if isinstance(node, ast.Name):
            return names.get(node.id, UNDEFINED)
        base = value_of(node.value)
        if isinstance(node, ast.Attribute):
            return getattr(base, node.attr, UNDEFINED)
        is_item = type(base) is dict and isinstance(node.slice, ast.Constant)
        return base.get(node.slice.value, UNDEFINED) if is_item else ...

    def reads_of(node: Any) -> list[Any]:
        inner, found = node, []
        while isinstance(inner, (ast.Attribute, ast.Subscript)):
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id not in own and isinstance(node.ctx, ast.Load):
            found = [value_of(node)]
            if not isinstance(node, ast.Subscript):
                return found
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (ast.stmt, ast.ExceptHandler)):
                found += reads_of(child)
        return [value for value in found if value is not ...]

    return reads_of(failing)


def largest_of(values: list[Any]) -> int | None:
    """The largest integer among them, and in arrays of integers; None where there is none."""
    arrays = [v for v in values if "int" in str(getattr(v, "dtype", "")) and 0 not in v.shape]
    integers = [v for v in values if type(v) is int]
    return max([*integers, *(int(array.max()) for array in arrays)], default=None)


def kind_of(value: Any, wrong: BaseException) -> str:
    """Its kind, shape and type, or that it is not there. What a container holds counts where that
    is what was asked for in vain.
    """
    if value is UNDEFINED:
        return "undefined"
    kind = type(value)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return "%s %s %s" % (tuple(value.shape), value.dtype, getattr(value, "device", ""))
    parameters = getattr(value, "_parameters", None)
    if isinstance(parameters, dict):
        shapes = ["%s %s" % (n, tuple(p.shape)) for n, p in parameters.items() if p is not None]
        return "%s(%s)" % (kind.__name__, ", ".join(shapes))
    if getattr(wrong, "obj", None) is value and hasattr(value, "__dict__"):
        return "object with %s" % ", ".join(sorted(vars(value)))
    if kind is dict and isinstance(wrong, KeyError):
        # A representation may hold an address, which is another one in every run.
        keys = [expression(k) or getattr(k, "__name__", "?") for k in list(value)[:MOST_ITEMS]]
        return "dict of %d: %s" % (len(value), ", ".join(map(str, keys)))
    if kind in (list, tuple) and isinstance(wrong, IndexError):
        return "%s of %d" % (kind.__name__, len(value))
    return kind.__name__ if kind.__module__ == "builtins" else "object"


def without_ours(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of this file."""
    if trace is None:
        return None
    trace.tb_next = without_ours(trace.tb_next)
    ours = trace.tb_frame.f_code.co_filename == __file__
    return trace.tb_next if ours else trace


def first_cause(wrong: BaseException) -> BaseException:
    while before := wrong.__cause__ or (None if wrong.__suppress_context__ else wrong.__context__):
        wrong = before
    return wrong


class Code:
    """Python that makes a value; within a list or dict it is printed as it is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def expression(value: Any) -> str | None:
    """Python that makes the value, or one like it; None where that is not plain."""
    try:
        text = repr(plain(value))
    except Exception:
        return None  # it is not plain, or does not want to be looked at
    return text if len(text) <= MOST_CHARACTERS else None


def plain(value: Any, depth: int = 0) -> Any:
    """What is printed as that Python. Raises `ValueError` where there is none."""
    kind = type(value)
    module, name = kind.__module__, kind.__name__
    if kind in PLAIN or (kind is float and value - value == 0):
        return value
    if depth > 4:
        raise ValueError(name)
    if kind in (list, tuple) and len(value) <= MOST_ITEMS:
        return kind([plain(item, depth + 1) for item in value])
    if kind is dict and len(value) <= MOST_ITEMS:
        return {plain(k, depth + 1): plain(v, depth + 1) for k, v in value.items()}
    if module.split(".")[0] == "torch":
        return Code(of_torch(value, name))
    if (module, name) == ("numpy", "ndarray") and value.dtype.kind in "fiub":
        dtype = str(value.dtype)
        if is_small(value.size, value):
            return Code("numpy.array(%r, dtype=%r)" % (value.tolist(), dtype))
        filled = value.max().item() if value.size and value.dtype.kind in "iu" else 0
        return Code("numpy.full(%r, %r, dtype=%r)" % (value.shape, filled, dtype))
    if module == "pathlib":
        return Code("pathlib.Path(%r)" % str(value))
    if MADE.get(id(value), (None, None))[1] is not None:
        return Code(str(MADE[id(value)][1]))
    fields = getattr(kind, "_fields", None) if isinstance(value, tuple) else None
    variables = {n: getattr(value, n) for n in fields} if fields else vars(value)
    if type(kind) is not type or not variables or not all(map(str.isidentifier, variables)):
        raise ValueError(name)
    # As good as the object itself, if only its attributes are read.
    inside = ", ".join("%s=%r" % (n, plain(v, depth + 1)) for n, v in variables.items())
    made = "argparse.Namespace" if module == "argparse" else "types.SimpleNamespace"
    return Code("%s(%s)" % (made, inside))


def is_small(size: int, value: Any) -> bool:
    """Whether its numbers, which are finite, may be written out, in one line."""
    is_finite = 0 < size <= MOST_NUMBERS and bool((value - value == 0).all())
    return is_finite and len(repr(value.tolist())) <= 80


def of_torch(value: Any, name: str) -> str:
    if name == "dtype":
        return str(value)
    if name == "device":
        return "torch.device(%r)" % str(value)
    if name == "Size":
        return repr(tuple(value))
    if name != "Tensor" or value.device.type != "cpu":
        raise ValueError(name)
    shape, kind = tuple(value.shape), str(value.dtype)
    if is_small(value.numel(), value):
        return "torch.tensor(%r, dtype=%s)" % (value.tolist(), kind)
    if value.is_floating_point():
        return "torch.zeros(%r, dtype=%s)" % (shape, kind)
    filled = value.max().item() if value.numel() else 0
    return "torch.full(%r, %r, dtype=%s)" % (shape, filled, kind)


def run_the_next_sitecustomize() -> None:
    """The interpreter's own, which this file hides."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != HERE]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


def observe() -> None:
    if "AORTA_SOURCE_FACTS" not in os.environ or "AORTA_TRIAL_DIR" not in os.environ:
        return
    observer = Observer()
    before = sys.excepthook

    def on_uncaught(kind: Any, wrong: Any, trace: Any) -> None:
        sys.settrace(None)
        observer.stop_monitoring()
        wrong.__traceback__ = without_ours(trace)
        try:
            observer.on_exception(wrong)
        except Exception:
            pass  # the program's own words follow, whatever could not be written down
        before(kind, wrong, without_ours(trace))

    sys.excepthook = on_uncaught
    sys.addaudithook(observer.on_audit)
    try:
        observer.monitor()
    except (AttributeError, ValueError):
        threading.settrace(observer.on_call)
        sys.settrace(observer.on_call)


run_the_next_sitecustomize()
observe()
