"""What was seen on the stack of the failure, in the place of what made it: the failing statement
of a function by itself, the values of variables, one turn of a loop.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from aorta.reduce.source.program import WITH, Edit, Program, UserFrame
from aorta.reduce.source.tree import (
    DEFINITIONS,
    all_blocks,
    as_text,
    blocks_of,
    defined_by,
    function_at,
    has_run,
    is_in,
    own_nodes,
    path_to,
    statements,
    used_by,
    yields,
)


def from_inside(program: Program) -> Iterator[Edit]:
    """The failing statement of a function on the stack by itself, the innermost function first:
    its variables, or the function's parameters, as they were seen.
    """
    frames = [frame for frame in program.facts.frames if frame.function[0] != "<"]
    for depth, frame in reversed(list(enumerate(frames))):
        for is_whole in (False, True):
            make = partial(_inside, program, frame, is_whole)
            yield Edit(f"{depth} {is_whole}", make)


def _inside(program: Program, frame: UserFrame, is_whole: bool) -> str | None:
    """`is_whole`: with what the function did before, from its parameters on."""
    tree = ast.parse(program.text)
    scope = function_at(tree, frame.function, frame.line)
    way = path_to(scope, frame.line) if scope is not None else []
    if scope is None or not way:
        return None
    done, failing = _line_to(program, way)
    if any(map(yields, [*done, failing])):
        return None
    names = {one.arg for one in [*scope.args.args, *scope.args.kwonlyargs]}
    if not is_whole:
        names = names.union(*map(defined_by, done))
    seen = [
        _assigned({name: value})
        for name, value in frame.values.items()
        if name in names and (_is_made(value) or program.may_stand(value))
    ]
    lines = {frame.line for frame in program.facts.frames}
    before = [
        node
        for node in tree.body
        if isinstance(node, DEFINITIONS) or not any(is_in(node, line) for line in lines)
    ]
    return as_text(_needed([*before, *seen, *(done if is_whole else []), failing]))


def _is_made(value: str) -> bool:
    """Whether it is a call of a class of the user's."""
    return value.partition("(")[0].isidentifier() and value.endswith(")")


def _line_to(
    program: Program, way: Sequence[tuple[list[ast.stmt], int]]
) -> tuple[list[ast.stmt], ast.stmt]:
    """What a function did before its failing statement, a loop once, and that statement; a check
    stays under its condition.
    """
    found: list[ast.stmt] = []
    for block, index in way:
        found += block[:index]
        node = block[index]
        if isinstance(node, ast.If) and ast.unparse(node.test) in program.kept:
            return found, node
        if block is not way[-1][0] and isinstance(node, ast.For):
            found.append(_first_of(node))
        elif block is not way[-1][0] and isinstance(node, WITH):
            found += _bound_by(node)
    return found, _as_plain(node)


def _as_plain(node: ast.stmt) -> ast.stmt:
    """A statement that may stand at the top level, of a compound one the head."""
    if isinstance(node, ast.Return):
        return ast.Expr(node.value or ast.Constant(None))
    for block in blocks_of(node):
        block[:] = [ast.Pass()]
    return node


def values_seen(program: Program) -> Iterator[Edit]:
    """What an assignment was seen to make, instead of how it is made."""
    every = statements(program.tree)
    for frame in program.facts.frames:
        scope = function_at(program.tree, frame.function, frame.line)
        if scope is None and frame.function != "<module>":
            continue
        inside = {id(node) for node in statements(scope or program.tree)}
        names = [n for n in own_nodes(scope or program.tree) if isinstance(n, ast.Name)]
        bound = [n.id for n in names if isinstance(n.ctx, ast.Store)]
        for number, node in enumerate(every):
            values = _values_for(program, node, frame) if id(node) in inside else {}
            # Bound twice, what was seen may be what another statement made.
            if values and all(bound.count(name) == 1 for name in values):
                make = partial(_replaced, program.text, number, [_assigned(values)])
                yield Edit(ast.unparse(node), make)


def _values_for(program: Program, node: ast.stmt, frame: UserFrame) -> Mapping[str, str]:
    """Those that may stand for a call whose result is assigned; empty where they may not."""
    if not isinstance(node, ast.Assign) or ast.unparse(node) in program.kept:
        return {}
    is_made = any(isinstance(part, ast.Call) for part in ast.walk(node.value))
    return _seen_for(program, node.targets[0], frame) if is_made else {}


def _seen_for(program: Program, target: ast.expr, frame: UserFrame) -> Mapping[str, str]:
    """The names that an assignment to it binds, with the values seen; empty where one of them was
    not, or may not stand for what made it.
    """
    parts = [n for n in ast.walk(target) if isinstance(n, (ast.Name, ast.Attribute, ast.Subscript))]
    names = [part.id for part in parts if isinstance(part, ast.Name)]
    values = {name: frame.values[name] for name in names if name in frame.values}
    known = len(values) == len(parts) and all(map(program.may_stand, values.values()))
    return values if known else {}


def _replaced(text: str, number: int, new: Sequence[ast.stmt]) -> str:
    tree = ast.parse(text)
    old = statements(tree)[number]
    for block in all_blocks(tree):
        if old in block:
            at = block.index(old)
            block[at : at + 1] = new
    return as_text(tree.body)


def unwrapped(program: Program) -> Iterator[Edit]:
    """Each compound statement by the one block of it that ran, a loop by one turn. Not an `if` in a
    loop: repaired, the loop would go on, and choose anew.
    """
    for number, node in enumerate(statements(program.tree)):
        ran = [b for b in blocks_of(node) if any(has_run(n, program.facts.executed) for n in b)]
        chooses = isinstance(node, ast.If) and number in program.in_loops
        leaves = any(isinstance(n, (ast.Break, ast.Continue)) for n in statements(node))
        if len(ran) == 1 and not (chooses or leaves or isinstance(node, DEFINITIONS)):
            inner = [*_given(program, node), *ran[0]]
            head = ast.unparse(node).partition("\n")[0]
            yield Edit(head, partial(_replaced, program.text, number, inner))


def _given(program: Program, node: ast.stmt) -> list[ast.stmt]:
    """What the head of a statement binds: the context of a `with`; what the failing turn of a loop
    was given, where that is known and may stand for what made it, else what the first turn is.
    """
    if isinstance(node, WITH):
        return _bound_by(node)
    if not isinstance(node, (ast.For, ast.AsyncFor)):
        return []
    frames = [frame for frame in program.facts.frames if is_in(node, frame.line)]
    values = _seen_for(program, node.target, frames[-1]) if frames else {}
    return [_assigned(values) if values else _first_of(node)]


def _assigned(values: Mapping[str, str]) -> ast.stmt:
    return ast.parse(f"{', '.join(values)} = {', '.join(values.values())}").body[0]


def _first_of(node: ast.For | ast.AsyncFor) -> ast.stmt:
    return ast.parse(f"{ast.unparse(node.target)} = next(iter({ast.unparse(node.iter)}))").body[0]


def _bound_by(node: ast.With | ast.AsyncWith) -> list[ast.stmt]:
    return [
        ast.Assign([item.optional_vars], item.context_expr)
        for item in node.items
        if item.optional_vars is not None
    ]


def _needed(line: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Of a straight line the statements that make what the last one needs, and the last one."""
    *before, failing = line
    needed = used_by(failing)
    made = [failing]
    for node in reversed(before):
        if _changed_by(node) & needed:
            made.insert(0, node)
            needed |= used_by(node)
    return made


def _changed_by(node: ast.stmt) -> set[str]:
    """The names that a statement binds, or whose attributes or items it sets."""
    names = defined_by(node)
    for part in ast.walk(node):
        if isinstance(part, (ast.Attribute, ast.Subscript)) and isinstance(part.ctx, ast.Store):
            inner: ast.expr = part
            while isinstance(inner, (ast.Attribute, ast.Subscript)):
                inner = inner.value
            names |= {inner.id} if isinstance(inner, ast.Name) else set()
    return names
