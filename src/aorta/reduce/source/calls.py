"""Functions in the place of their calls: those of the failing stack, and those called once."""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise

from aorta.reduce.source.program import Edit, Program
from aorta.reduce.source.tree import (
    as_text,
    defined_by,
    function_at,
    is_in,
    own_nodes,
    place_of,
    replace_statement,
    statements,
    tail,
    used_by,
    yields,
)


def calls_inlined(program: Program) -> Iterator[Edit]:
    """The statement that calls a function by what the function does, the innermost call first."""
    numbers = {id(node): number for number, node in enumerate(ast.walk(program.tree))}
    for call, function in (*_on_the_stack(program), *_called_once(program.tree)):
        make = partial(_inlined, program.text, numbers[id(call)], numbers[id(function)])
        yield f"{function.name} {ast.unparse(call)}", make


def _on_the_stack(program: Program) -> Iterator[tuple[ast.Call, ast.FunctionDef]]:
    calls = [node for node in ast.walk(program.tree) if isinstance(node, ast.Call)]
    for caller, callee in reversed(list(pairwise(program.facts.frames))):
        function = function_at(program.tree, callee.function, callee.line)
        for call in calls:
            is_named = is_in(call, caller.line) and tail(call.func) == callee.function
            is_there = place_of(call) == tuple(caller.position) if caller.position else is_named
            if is_there and isinstance(function, ast.FunctionDef):
                yield call, function


def _called_once(tree: ast.Module) -> list[tuple[ast.Call, ast.FunctionDef]]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    count = Counter([*(tail(call.func) for call in calls), *(one.name for one in functions)])
    once = {function.name: function for function in functions if count[function.name] == 2}
    return [(call, once[tail(call.func)]) for call in calls if tail(call.func) in once]


def _inlined(text: str, call_number: int, function_number: int) -> str | None:
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    call, function = nodes[call_number], nodes[function_number]
    assert isinstance(call, ast.Call)
    assert isinstance(function, ast.FunctionDef)
    caller = [n for n in statements(tree) if call in ast.walk(n)][-1]
    scopes = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and caller in ast.walk(n)]
    scope = scopes[-1] if scopes else tree
    taken = {node.id for node in own_nodes(scope) if isinstance(node, ast.Name)}
    taken = taken.union(*map(defined_by, scope.body))
    taken |= {node.arg for node in own_nodes(scope) if isinstance(node, ast.arg)}
    if isinstance(caller, ast.Assign):
        taken -= defined_by(caller) - used_by(caller)
    body = _body_for(call, function, taken)
    if body is None or function in scopes or isinstance(caller, ast.While):
        return None
    last = body.pop() if isinstance(body[-1], ast.Return) else ast.Return()
    result = getattr(last, "value", None) or ast.Constant(None)
    replace_statement(tree, caller, [*body, _Replaced({}, call, result).visit(caller)])
    return as_text(tree.body)


def _body_for(call: ast.Call, function: ast.FunctionDef, taken: set[str]) -> list[ast.stmt] | None:
    """What the function does with these arguments; None where that is not plain. Its variables are
    called otherwise where they are in `taken`.
    """
    values = _arguments(call, function)
    returns = [node for node in own_nodes(function) if isinstance(node, ast.Return)]
    is_plain = all(node is function.body[-1] for node in returns) and not yields(function)
    if values is None or not is_plain or function.decorator_list or function.name == "__init__":
        return None
    own = set().union(*map(defined_by, function.body))
    same = {name for name, value in values.items() if ast.unparse(value) == name}
    clashing = (own | set(values)) & taken - same
    names: dict[str, ast.expr] = {
        **{name: ast.Name(f"{function.name}_{name}", ast.Load()) for name in clashing},
        **{n: v for n, v in values.items() if isinstance(v, ast.Name) and n not in own},
    }
    bound = [
        ast.Assign([names.get(name, ast.Name(name, ast.Store()))], value)
        for name, value in values.items()
        if name not in same and names.get(name) is not value
    ]
    return [*bound, *map(_Replaced(names).visit, function.body)]


def _arguments(call: ast.Call, function: ast.FunctionDef) -> dict[str, ast.expr] | None:
    """Every parameter with its argument or default, in order; None where that is not plain."""
    given, taken = list(call.args), function.args
    if taken.args and taken.args[0].arg == "self":
        owner = call.func  # `model(x)` is `forward`
        if isinstance(owner, ast.Attribute) and owner.attr == function.name:
            owner = owner.value
        given.insert(0, owner)
    names = [one.arg for one in taken.args]
    values = dict(zip(reversed(names), reversed(taken.defaults), strict=False))
    values |= dict(zip(names, given, strict=False))
    values |= {str(keyword.arg): keyword.value for keyword in call.keywords}
    is_plain = not (taken.vararg or taken.kwarg or taken.posonlyargs or taken.kwonlyargs)
    is_plain = is_plain and not any(isinstance(one, ast.Starred) for one in given)
    if not is_plain or set(values) != set(names) or len(given) > len(names):
        return None
    return {name: values[name] for name in names}


class _Replaced(ast.NodeTransformer):
    """Names, and a call, by expressions."""

    def __init__(self, names: Mapping[str, ast.expr], *call_and_value: ast.expr) -> None:
        self.names, self.call_and_value = names, call_and_value

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.names.get(node.id, node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        is_replaced = node in self.call_and_value
        return self.call_and_value[1] if is_replaced else self.generic_visit(node)
