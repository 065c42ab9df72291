"""Ways to make a program smaller inside its statements."""

import ast
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import partial
from math import isqrt
from operator import is_

from aorta.reduce.source.program import Edit, Program
from aorta.reduce.source.stack import with_value
from aorta.reduce.source.tree import (
    DEFINITIONS,
    all_blocks,
    as_text,
    defined_by,
    function_at,
    root_of,
    statements,
    tail,
    tidy,
    used_by,
    written,
)

_LARGE = 100  # a number that may make it slow
_FEW_ENTRIES = 6


def values_seen(program: Program) -> Iterator[Edit]:
    """What an assignment was seen to make, instead of how it is made."""
    for frame in program.facts.frames:
        scope = function_at(program.tree, frame.function, frame.line)
        if scope is None and frame.function != "<module>":
            continue
        inside = {id(node) for node in statements(scope or program.tree)}
        for number, node in enumerate(statements(program.tree)):
            seen = with_value(program, node, frame) if id(node) in inside else node
            if ast.unparse(seen) != ast.unparse(node):
                yield Edit(ast.unparse(node), partial(_replaced, program.text, number, seen))


def _replaced(text: str, number: int, new: ast.stmt) -> str:
    tree = ast.parse(text)
    old = statements(tree)[number]
    for block in all_blocks(tree):
        block[:] = [new if node is old else node for node in block]
    return as_text(tree.body)


class _Replaced(ast.NodeTransformer):
    """Puts an expression in the place of the calls that fit."""

    def __init__(self, fits: Callable[[ast.Call], bool], value: str) -> None:
        self.fits, self.value = fits, value

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if self.fits(node):
            return ast.parse(self.value, mode="eval").body
        return self.generic_visit(node)


def files_as_texts(text: str, content: str) -> Iterator[str]:
    """With the content of a file in the place of one that is opened or read there."""
    for number, node in enumerate(ast.walk(ast.parse(text))):
        if isinstance(node, ast.Call) and tail(node.func) in {"open", "read_text"}:
            reads = tail(node.func) == "read_text"
            value = repr(content) if reads else f"io.StringIO({content!r})"
            tree = ast.parse(text)
            _Replaced(partial(is_, list(ast.walk(tree))[number]), value).visit(tree)
            head = [] if reads else ast.parse("import io").body
            yield tidy(written(ast.Module([*head, *tree.body], [])))


def modules_as_identity(program: Program) -> Iterator[Edit]:
    """A module of the user's that need not do anything, by torch's that does nothing."""
    for node in program.tree.body:
        bases = [tail(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
        if isinstance(node, ast.ClassDef) and "Module" in bases:
            yield Edit(node.name, partial(_as_identity, program.text, node.name))


def _as_identity(text: str, name: str) -> str:
    tree = ast.parse(text)
    _Replaced(lambda call: getattr(call.func, "id", "") == name, "torch.nn.Identity()").visit(tree)
    return as_text(tree.body)


def parts_left_out(program: Program) -> Iterator[Edit]:
    """Decorators, keywords, halves of lists and dicts, large numbers; one at a time."""
    for change in (_listed, _keywords, _entries, _smaller):
        for number, node in enumerate(ast.walk(program.tree)):
            for count in range(8):
                # A change gives a node new lists, so that one of a copy leaves the node as it is.
                said = change(copy(node), count)
                if not said:
                    break
                make = partial(_changed, program.text, change, number, count)
                yield Edit(f"{change.__name__} {said}", make)


def _changed(text: str, change: Callable[[ast.AST, int], str], number: int, count: int) -> str:
    tree = ast.parse(text)
    change(list(ast.walk(tree))[number], count)
    return tidy(written(tree))


def _listed(node: ast.AST, count: int) -> str:
    """A decorator, or a base of a class."""
    if not isinstance(node, DEFINITIONS):
        return ""
    parts = [*node.decorator_list, *getattr(node, "bases", ())]
    if len(parts) <= count:
        return ""
    gone = parts[count]
    node.decorator_list = [part for part in node.decorator_list if part is not gone]
    if isinstance(node, ast.ClassDef):
        node.bases = [part for part in node.bases if part is not gone]
    return f"{node.name} {ast.unparse(gone)}"


def _entries(node: ast.AST, count: int) -> str:
    """The later half of a literal, then the first; of a few entries then one after the other. A
    single entry of a dict goes, too.
    """
    if isinstance(node, ast.Dict):
        numbers = range(len(node.keys))
    elif isinstance(node, ast.List) and isinstance(node.ctx, ast.Load):
        numbers = range(len(node.elts))
    else:
        return ""
    half = len(numbers) // 2
    ways: list[Sequence[int]] = [numbers[:half], numbers[half:]] if half else []
    if len(numbers) == 1 and isinstance(node, ast.Dict):
        ways = [()]
    if 2 < len(numbers) <= _FEW_ENTRIES:
        ways += [[number for number in numbers if number != out] for out in numbers]
    if count >= len(ways):
        return ""
    said = f"{count} {ast.unparse(node)}"
    if isinstance(node, ast.Dict):
        node.keys = [node.keys[number] for number in ways[count]]
        node.values = [node.values[number] for number in ways[count]]
    else:
        node.elts = [node.elts[number] for number in ways[count]]
    return said


def _keywords(node: ast.AST, count: int) -> str:
    """All of a call, then each; not types of numbers and devices, which may be what is wrong."""
    if not isinstance(node, ast.Call):
        return ""
    free = [k for k in node.keywords if k.arg not in {"dtype", "device"}]
    if not free or count > len(free) or (count == 1 == len(free)):
        return ""
    said = f"{count} {ast.unparse(node)}"
    gone = free if count == 0 else [free[count - 1]]
    node.keywords = [keyword for keyword in node.keywords if keyword not in gone]
    return said


def _smaller(node: ast.AST, count: int) -> str:
    """A large number by one, or by its root."""
    if count > 1 or not isinstance(node, ast.Constant) or type(node.value) is not int:
        return ""
    if not _LARGE <= node.value < 1 << 62:
        return ""
    said = f"{count} {node.value}"
    node.value = 1 if count == 0 else isqrt(node.value)
    return said


def copies_left_out(program: Program) -> Iterator[Edit]:
    """Names of the top level that stand for another name, or an attribute, by that."""
    yield Edit("", partial(_without_copies, program.text))


def _without_copies(text: str) -> str:
    tree = ast.parse(text)
    copies: dict[str, ast.expr] = {}
    body: list[ast.stmt] = []
    for whole in tree.body:
        if isinstance(whole, (*DEFINITIONS, ast.Import, ast.ImportFrom)):
            body.append(whole)
            continue
        node = _Inserted(copies).visit(whole)
        for name in defined_by(node):
            copies = {n: v for n, v in copies.items() if n != name and name not in used_by(v)}
        copied = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if copied and isinstance(root_of(node.value), ast.Name):
            copies[node.targets[0].id] = node.value
        else:
            body.append(node)
    return tidy(written(ast.Module(body, [])))


class _Inserted(ast.NodeTransformer):
    def __init__(self, values: dict[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.values.get(node.id, node) if isinstance(node.ctx, ast.Load) else node
