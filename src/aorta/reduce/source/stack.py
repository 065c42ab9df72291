"""The failing statement of a function by itself, with what was seen on the stack in the place of
what made it; and a compound statement by what of it ran.
"""

import ast
from collections.abc import Iterator, Sequence
from functools import partial

from aorta.reduce.source.program import Edit, Program, UserFrame
from aorta.reduce.source.tree import (
    DEFINITIONS,
    as_text,
    blocks_of,
    defined_by,
    function_at,
    has_run,
    is_in,
    path_to,
    replace_statement,
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
            yield f"{depth} {is_whole}", make


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
        ast.parse(f"{name} = {value}").body[0]
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
        if block is not way[-1][0]:
            found += _given(node)
    if isinstance(node, ast.Return):
        return found, ast.Expr(node.value or ast.Constant(None))
    for block in blocks_of(node):
        block[:] = [ast.Pass()]
    return found, node


def _replaced(text: str, number: int, new: Sequence[ast.stmt]) -> str:
    tree = ast.parse(text)
    replace_statement(tree, statements(tree)[number], new)
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
            inner = [*_given(node), *ran[0]]
            head = ast.unparse(node).partition("\n")[0]
            yield head, partial(_replaced, program.text, number, inner)


def _given(node: ast.stmt) -> list[ast.stmt]:
    """What the head of a statement binds: the context of a `with`, the first turn of a loop."""
    match node:
        case ast.With(items=items) | ast.AsyncWith(items=items):
            named = [(item.optional_vars, item.context_expr) for item in items]
            return [ast.Assign([name], value) for name, value in named if name is not None]
        case ast.For(target=target, iter=items) | ast.AsyncFor(target=target, iter=items):
            return ast.parse(f"{ast.unparse(target)} = next(iter({ast.unparse(items)}))").body
    return []


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
