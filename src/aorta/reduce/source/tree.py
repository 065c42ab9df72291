"""A Python program as a tree of statements: names that are defined and used, parts left out, and
what nothing refers to any more taken away. Nothing here runs the program.
"""

import ast
import builtins
import math
import re
import symtable
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TypeGuard

BLOCKS = ("body", "orelse", "finalbody")
Function = ast.FunctionDef | ast.AsyncFunctionDef
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IMPORTS = (ast.Import, ast.ImportFrom)
_PLAIN_BASE = re.compile(r"object|ABC|Generic\[\]|\w*(Module|Dataset|Error|Exception|Warning)")
_KNOWN = frozenset(dir(builtins)).union(
    ("__file__", "__builtins__", "__class__", "__annotations__", "__module__", "__qualname__")
)


def written(tree: ast.Module) -> str:
    """The program as text; each simple statement stands in one line."""
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def count_lines(text: str) -> int:
    """Lines that say something: neither empty nor a comment."""
    lines = (line.strip() for line in text.splitlines())
    return sum(1 for line in lines if line and not line.startswith("#"))


def blocks_of(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The statement lists directly in a node, those of exception handlers and cases too."""
    for name in BLOCKS:
        block = getattr(node, name, None)
        if isinstance(block, list) and block:
            yield block
    for name in ("handlers", "cases"):
        for inner in getattr(node, name, ()):
            yield inner.body


def all_blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Every statement list, outer ones first."""
    for block in blocks_of(tree):
        yield block
        for statement in block:
            yield from all_blocks(statement)


def statements(tree: ast.AST) -> list[ast.stmt]:
    """In the order of the text: the number of a statement names it in every parse of the text."""
    return [node for block in blocks_of(tree) for one in block for node in (one, *statements(one))]


def is_in(node: ast.stmt | ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def statement_at(tree: ast.AST, line: int, place: Sequence[int] | None) -> ast.stmt | None:
    """The innermost; of several in one line the last that begins before the place."""
    at = (place[0], place[2]) if place else (line, math.inf)
    around = (node for node in statements(tree) if is_in(node, line))
    found = [node for node in around if (node.lineno, node.col_offset) <= at]
    return found[-1] if found else None


def has_run(node: ast.stmt, executed: Collection[int]) -> bool:
    """Whether one of its lines was executed."""
    return any(line in executed for line in range(node.lineno, (node.end_lineno or 0) + 1))


def root_of(node: ast.expr) -> ast.expr:
    """What an attribute, or an attribute of that, is of."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node


def defined_by(statement: ast.stmt) -> set[str]:
    """The names that a statement binds in its own scope."""
    if isinstance(statement, DEFINITIONS):
        return {statement.name}
    if isinstance(statement, IMPORTS):
        return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
    found: set[str] = set()
    for node in own_nodes(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, (*DEFINITIONS, *IMPORTS)):
            found |= defined_by(node)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            found.add(node.name)
    return found


def used_by(node: ast.AST) -> set[str]:
    """Every name that is read in it, at any depth."""
    return {
        inner.id
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and not isinstance(inner.ctx, ast.Store)
    }


def names_read(tree: ast.AST) -> set[str]:
    """Names and attributes that are read in it, and texts, by which they may be looked up."""
    attributes = {node.attr for node in ast.walk(tree) if _is_read(node)}
    return used_by(tree) | attributes | _named_in_texts(tree)


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """What is in a node without the insides of functions and classes."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, (*DEFINITIONS, ast.Lambda)):
            yield from own_nodes(child)


def yields(node: ast.AST) -> bool:
    """Whether a function is a generator, or a statement gives a value back from one."""
    return any(isinstance(part, (ast.Yield, ast.YieldFrom)) for part in own_nodes(node))


def undefined(text: str) -> set[str]:
    """Names that are read and that nothing defines; of what is no program, its text."""
    try:
        tree, table = ast.parse(text), symtable.symtable(text, "program", "exec")
    except SyntaxError:  # such as a `nonlocal` whose assignment is left out
        return {text}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    if any(alias.name == "*" for node in imports for alias in node.names):
        return set()
    top = {symbol.get_name() for symbol in table.get_symbols() if _is_bound(symbol)}
    missing: set[str] = set()
    waiting = [table]
    while waiting:
        scope = waiting.pop()
        waiting += scope.get_children()
        for symbol in scope.get_symbols():
            if symbol.is_declared_global() and symbol.is_assigned():
                top.add(symbol.get_name())
            outside = symbol.is_global() or (scope is table and not _is_bound(symbol))
            if symbol.is_referenced() and outside:
                missing.add(symbol.get_name())
    return missing - top - _KNOWN


def _is_bound(symbol: symtable.Symbol) -> bool:
    return symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()


def keep_if(tree: ast.AST, keep: Callable[[ast.stmt], bool]) -> None:
    """Take statements out, in place; a block that must not be empty gets a `pass`."""
    for block in list(all_blocks(tree)):
        block[:] = [node for node in block if keep(node)]
    mend_blocks(tree)


def replace_statement(tree: ast.AST, old: ast.stmt, new: Sequence[ast.stmt]) -> None:
    block = next(block for block in all_blocks(tree) if old in block)
    at = block.index(old)
    block[at : at + 1] = new


def mend_blocks(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and not body and not isinstance(node, ast.Module):
            body.append(ast.Pass())
        if isinstance(node, ast.Try) and not (node.handlers or node.finalbody):
            node.finalbody = [ast.Pass()]


def without_users(tree: ast.Module, kept: Collection[int], attributes: set[str]) -> str | None:
    """The program without the statements that read what nothing defines: names, and those of
    `attributes`, which it defined before; None where one of `kept`, by `id`, would have to go.
    Changes the tree.
    """
    for _ in range(12):
        said = written(tree)
        names, lost = undefined(said), attributes - attributes_set(tree)
        lost &= {node.attr for node in ast.walk(tree) if _is_read(node)}
        if not names and not lost:
            return said
        gone = {id(node) for node in statements(tree) if header_uses(node, names, lost)}
        out = [node for node in statements(tree) if id(node) in gone]
        # What a function gives back is looked for by its caller.
        if not out or any(id(n) in kept or isinstance(n, ast.Return) for n in out):
            return None
        keep_if(tree, lambda node, gone=gone: id(node) not in gone)  # type: ignore[misc]
    return None


def attributes_set(tree: ast.Module) -> set[str]:
    """Names that the program gives to attributes: methods, and what is assigned to."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.ClassDef):
            found = found.union(*(defined_by(inner) for inner in node.body))
        elif isinstance(node, ast.keyword) and node.arg:
            found.add(node.arg)
    return found


def _is_read(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)


def header_uses(node: ast.stmt, names: set[str], attributes: set[str]) -> bool:
    """Whether the statement itself reads one of them, apart from what is in its blocks."""
    inside = {id(part) for block in blocks_of(node) for one in block for part in ast.walk(one)}
    own = [part for part in ast.walk(node) if id(part) not in inside]
    reads = any(isinstance(part, ast.Name) and part.id in names for part in own)
    return reads or any(_is_read(part) and part.attr in attributes for part in own)


def tidy(text: str) -> str:
    """Without docstrings, annotations, needless `pass`, and definitions that nothing names."""
    tree = ast.parse(text)
    fields = {id(node.body) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for block in all_blocks(tree):
        block[:] = [node for node in block if not _is_said_alone(node)] or block[:1]
        if id(block) not in fields:  # a class may be made of what its fields are said to be
            block[:] = map(_unannotated, block)
    for node in ast.walk(tree):
        if isinstance(node, Function) and not node.decorator_list:  # which may go by what they say
            node.returns = None
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    argument.annotation = None
    once = {ast.dump(node): node for node in reversed(tree.body) if isinstance(node, IMPORTS)}
    tree.body = [n for n in tree.body if not isinstance(n, IMPORTS) or once[ast.dump(n)] is n]
    before, made = "", written(tree)
    while made != before:
        _drop_unused(tree)
        before, made = made, written(tree)
    return made


def _unannotated(node: ast.stmt) -> ast.stmt:
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return ast.copy_location(ast.Assign([node.target], node.value), node)
    return node


def _is_said_alone(node: ast.stmt) -> bool:
    """A docstring, a `pass`, or a name or number that stands for nothing."""
    part = node.value if isinstance(node, ast.Expr) else node
    return isinstance(part, (ast.Constant, ast.Name, ast.Pass))


def _drop_unused(tree: ast.Module) -> None:
    texts = _named_in_texts(tree)
    used = used_by(tree) | texts
    for node in ast.walk(tree):
        if isinstance(node, IMPORTS) and getattr(node, "module", "") != "__future__":
            node.names = [
                alias
                for alias in node.names
                if alias.name == "*" or (alias.asname or alias.name.partition(".")[0]) in used
            ]
    keep_if(tree, lambda node: not (isinstance(node, IMPORTS) and not node.names))
    uses = {id(node): used_by(node) for node in tree.body}
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}

    def is_needed(node: ast.stmt) -> bool:
        if not isinstance(node, DEFINITIONS) or node.decorator_list or node.name in texts:
            return True
        if isinstance(node, ast.ClassDef) and not _does_nothing(node, classes):
            return True
        return any(node.name in names for other, names in uses.items() if other != id(node))

    tree.body = [node for node in tree.body if is_needed(node)]


def _does_nothing(made: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> bool:
    """Whether no call in it, no metaclass and no base hears of this class: they may refuse it."""
    parts = (p for node in made.body if not isinstance(node, DEFINITIONS) for p in own_nodes(node))
    if any(isinstance(part, (ast.Call, ast.Subscript)) for part in parts):
        return False
    others = {name: node for name, node in classes.items() if node is not made}
    bases = [others.get(tail(base)) for base in made.bases]
    heard = {name for base in bases if base for node in base.body for name in defined_by(node)}
    return not (made.keywords or "__init_subclass__" in heard) and all(
        _does_nothing(known, others) if known else bool(_PLAIN_BASE.fullmatch(tail(base)))
        for base, known in zip(made.bases, bases, strict=True)
    )


def _named_in_texts(tree: ast.AST) -> set[str]:
    """Names may be looked up by their text: `globals()[name]`, `getattr(module, "Model")`."""
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 80
    }


def function_at(tree: ast.Module, name: str, line: int) -> Function | None:
    """The innermost function of this name that has this line."""
    found = [n for n in ast.walk(tree) if isinstance(n, Function) and n.name == name]
    around = [n for n in found if is_in(n, line)]
    return around[-1] if around else None


def path_to(root: ast.AST, line: int) -> list[tuple[list[ast.stmt], int]]:
    """The way from a function or program to the innermost statement in a line: at each step the
    block, and which of its statements it goes on in.
    """
    for block in blocks_of(root):
        for index, node in enumerate(block):
            if is_in(node, line):
                inner = [] if isinstance(node, DEFINITIONS) else path_to(node, line)
                return [(block, index), *inner]
    return []


def as_text(body: Sequence[ast.stmt]) -> str:
    """A tidy program, with an import of each module that values are written with."""
    text = written(ast.Module(list(body), []))
    known = set().union(*(defined_by(node) for node in body), set())
    needed = used_by(ast.parse(text)) & {"torch", "numpy", "argparse", "types", "pathlib", "io"}
    added = [ast.Import([ast.alias(name)]) for name in sorted(needed - known)]
    at = next((i for i, n in enumerate(body) if getattr(n, "module", "") != "__future__"), 0)
    return tidy(written(ast.Module([*body[:at], *added, *body[at:]], [])))


def tail(node: ast.expr) -> str:
    """The last name of an expression: however `self` is called elsewhere, `self.table` ends so."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case ast.Call(func=called):
            return f"{tail(called)}()"
        case ast.Subscript(value=value):
            return f"{tail(value)}[]"
    return type(node).__name__


place_of = attrgetter("lineno", "end_lineno", "col_offset", "end_col_offset")


def tail_at(tree: ast.Module, place: Sequence[int]) -> str:
    """That of the expression there: what is called, subscripted or read."""
    parts = (node for node in ast.walk(tree) if isinstance(node, ast.expr))
    return next((tail(node) for node in parts if place_of(node) == tuple(place)), "")
