"""The way to the failure as a straight line: the functions on the stack as their statements, and of
these what the failing one needs.
"""

import ast
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product

from aorta.reduce.source.program import WITH, Edit, Program, UserFrame
from aorta.reduce.source.tree import (
    DEFINITIONS,
    Function,
    as_text,
    defined_by,
    function_at,
    is_in,
    own_nodes,
    path_to,
    position,
    used_by,
)

_CALLED = ("forward", "__call__")


def flattened(program: Program) -> Iterator[Edit]:
    """Down to the innermost function first: what fails in it fails the same way without it."""
    frames = [f for f in program.facts.frames if f.function == "<module>" or f.function[0] != "<"]
    if not frames or frames[0].function != "<module>":
        return
    for needed, depth, values in product((True, False), range(len(frames), 0, -1), (True, False)):
        make = partial(_straight, program, frames[:depth], values, needed)
        yield Edit(f"{depth} {values} {needed}", make)


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
    level = _level(program, scope, frame, False) if scope else None
    plain = _as_plain(program, level[1]) if level else None
    if scope is None or level is None or plain is None:
        return None
    done = level[0]
    names = {one.arg for one in [*scope.args.args, *scope.args.kwonlyargs]}
    if not is_whole:
        names |= set().union(*(defined_by(node) for node in done), set())
    seen = [
        ast.parse(f"{name} = {value}").body[0]
        for name, value in frame.values.items()
        if name in names and (_is_made(value) or program.may_stand(value))
    ]
    lines = {frame.line for frame in program.facts.frames}
    before = [n for n in tree.body if not any(is_in(n, line) for line in lines) or _defines(n)]
    return as_text(_needed([*before, *seen, *(done if is_whole else []), plain]))


def _is_made(value: str) -> bool:
    """Whether it is a call of a class of the user's."""
    return value.partition("(")[0].isidentifier() and value.endswith(")")


def _defines(node: ast.stmt) -> bool:
    return isinstance(node, DEFINITIONS)


# Of one function of the stack: what ran before its failing statement, and that statement.
_Level = tuple[list[ast.stmt], ast.stmt]


def _straight(
    program: Program, frames: Sequence[UserFrame], values: bool, needed: bool
) -> str | None:
    """A loop is one turn."""
    body: list[ast.stmt] = []
    last: ast.stmt | None = None
    for number, frame in enumerate(frames):
        tree = ast.parse(program.text)
        scope = function_at(tree, frame.function, frame.line) if number else tree
        level = _level(program, scope, frame, values) if scope else None
        if level is None:
            return None
        if number and isinstance(scope, Function):
            bound = _bound(scope, last, frames[number - 1])
            if bound is None:
                return None
            body += bound
        before, last = level
        body += before
    plain = _as_plain(program, last) if last is not None else None
    if plain is None:
        return None
    line = [*body, plain]
    return as_text(_needed(line) if needed else line)


def _level(program: Program, scope: ast.AST, frame: UserFrame, values: bool) -> _Level | None:
    way = path_to(scope, frame.line)
    own = ast.walk(scope) if isinstance(scope, Function) else ()
    if not way or any(isinstance(n, (ast.Yield, ast.YieldFrom, ast.Await)) for n in own):
        return None
    found: list[ast.stmt] = []
    for block, index in way:
        found += [with_value(program, n, frame) if values else n for n in block[:index]]
        node = block[index]
        if node is way[-1][0][way[-1][1]] or _is_kept_condition(program, node):
            return found, node
        if isinstance(node, ast.For):
            found.append(one_turn(program, node, frame) if values else first_of(node))
        elif isinstance(node, WITH):
            found += bound_by(node)
    return None


def one_turn(program: Program, node: ast.For | ast.AsyncFor, frame: UserFrame) -> ast.stmt:
    """What the failing turn of a loop was given, where that is known and may stand for what made
    it; else what the first turn is given.
    """
    values = seen_for(node.target, frame)
    if values and all(program.may_stand(value) for value in values.values()):
        return _assigned(values)
    return first_of(node)


def seen_for(target: ast.expr, frame: UserFrame) -> dict[str, str]:
    """The names that an assignment to it binds, with the values seen; empty where one is not."""
    parts = [n for n in ast.walk(target) if isinstance(n, (ast.Name, ast.Attribute, ast.Subscript))]
    names = [part.id for part in parts if isinstance(part, ast.Name) and part.id in frame.values]
    return {name: frame.values[name] for name in names} if len(names) == len(parts) else {}


def _assigned(values: dict[str, str]) -> ast.Assign:
    made = ast.parse(f"{', '.join(values)} = {', '.join(values.values())}").body[0]
    assert isinstance(made, ast.Assign)
    return made


def first_of(node: ast.For | ast.AsyncFor) -> ast.stmt:
    return ast.parse(f"{ast.unparse(node.target)} = next(iter({ast.unparse(node.iter)}))").body[0]


def bound_by(node: ast.With | ast.AsyncWith) -> list[ast.stmt]:
    return [
        ast.Assign([item.optional_vars], item.context_expr)
        for item in node.items
        if item.optional_vars is not None
    ]


def with_value(program: Program, node: ast.stmt, frame: UserFrame) -> ast.stmt:
    """An assignment of what was seen, where that may stand for what made it; else the statement."""
    if isinstance(node, ast.Assign) and ast.unparse(node) not in program.kept:
        scope = function_at(program.tree, frame.function, frame.line) or program.tree
        bound = [n.id for n in own_nodes(scope) if isinstance(n, ast.Name) and _is_stored(n)]
        values = seen_for(node.targets[0], frame)
        if any(bound.count(name) > 1 for name in values):
            return node  # what was seen may be what another statement made
        made = any(isinstance(part, ast.Call) for part in ast.walk(node.value))
        if made and values and all(map(program.may_stand, values.values())):
            return _assigned(values)
    return node


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _is_kept_condition(program: Program, node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in program.kept


def _as_plain(program: Program, node: ast.stmt) -> ast.stmt | None:
    """A statement that may stand at the top level."""
    if _is_kept_condition(program, node):
        return node
    if isinstance(node, ast.Return):
        return ast.Expr(node.value) if node.value is not None else None
    if isinstance(node, ast.For):
        return ast.parse(f"next(iter({ast.unparse(node.iter)}))").body[0]
    if isinstance(node, (ast.If, ast.While)):
        return ast.Expr(node.test)
    if isinstance(node, WITH):
        return ast.Expr(node.items[0].context_expr)
    return node


def _bound(
    function: ast.FunctionDef | ast.AsyncFunctionDef, caller: ast.stmt | None, frame: UserFrame
) -> list[ast.stmt] | None:
    """The parameters of a function as assignments of what its caller's statement gives it; None
    where it is not called plainly there.
    """
    call = _call_of(function.name, caller, frame)
    if call is None or function.name == "__init__":
        return None
    given = list(call.args)
    parameters = function.args.args
    if _is_method(call, function):
        of = call.func
        whole = of.value if isinstance(of, ast.Attribute) and of.attr == function.name else of
        given = [whole, *given]
    return assignments(function, given, call.keywords) if len(parameters) >= len(given) else None


def _names(call: ast.Call, name: str) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == name


def _is_method(call: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    takes_self = bool(function.args.args) and function.args.args[0].arg == "self"
    return takes_self and (_names(call, function.name) or function.name in _CALLED)


def _call_of(name: str, caller: ast.stmt | None, frame: UserFrame) -> ast.Call | None:
    calls = [n for n in ast.walk(caller) if isinstance(n, ast.Call)] if caller is not None else []
    for call in calls:
        if frame.position == position(call):
            return call
    named = [c for c in calls if _names(c, name) or getattr(c.func, "id", "") == name]
    return named[0] if len(named) == 1 and frame.position is None else None


def assignments(
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    given: Sequence[ast.expr],
    keywords: Sequence[ast.keyword],
) -> list[ast.stmt] | None:
    """Every parameter with its argument or default; None where that is not plain."""
    said = function.args
    plain = not (said.vararg or said.kwarg or said.posonlyargs)
    starred = any(isinstance(one, ast.Starred) for one in given)
    if not plain or starred or any(keyword.arg is None for keyword in keywords):
        return None
    values = dict(zip([one.arg for one in said.args], given, strict=False))
    values |= {str(keyword.arg): keyword.value for keyword in keywords}
    tail = said.args[len(said.args) - len(said.defaults) :]
    for argument, default in zip(tail, said.defaults, strict=True):
        values.setdefault(argument.arg, default)
    for argument, standard in zip(said.kwonlyargs, said.kw_defaults, strict=True):
        if standard is not None:
            values.setdefault(argument.arg, standard)
    names = [argument.arg for argument in [*said.args, *said.kwonlyargs]]
    if not all(name in values for name in names):
        return None
    bound = [(name, values[name]) for name in names if ast.unparse(values[name]) != name]
    clash = any(name in used_by(value) for name, _ in bound for _, value in bound)
    if not clash:
        return [ast.Assign([ast.Name(name, ast.Store())], value) for name, value in bound]
    targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name, _ in bound]
    together = ast.Tuple([value for _, value in bound], ast.Load())
    return [ast.Assign([ast.Tuple(targets, ast.Store())], together)]


def _needed(line: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Of a straight line the statements that make what the last one needs, and the last one."""
    *before, failing = line
    needed = used_by(failing)
    made = [failing]
    for node in reversed(before):
        if changed_by(node) & needed:
            made.insert(0, node)
            needed |= used_by(node)
    return made


def changed_by(node: ast.stmt) -> set[str]:
    """The names that a statement binds, or whose attributes or items it sets."""
    names = defined_by(node)
    for part in ast.walk(node):
        if isinstance(part, (ast.Attribute, ast.Subscript)) and isinstance(part.ctx, ast.Store):
            inner: ast.expr = part
            while isinstance(inner, (ast.Attribute, ast.Subscript)):
                inner = inner.value
            names |= {inner.id} if isinstance(inner, ast.Name) else set()
    return names
