"""Ways to make a program smaller by its structure: plain functions from a program to candidates,
the biggest saving first.
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import partial
from math import isqrt
from operator import is_

from aorta.reduce.source.inline import prune
from aorta.reduce.source.program import LOOPS, WITH, Edit, Program
from aorta.reduce.source.stack import assignments, bound_by, first_of, one_turn, with_value
from aorta.reduce.source.tree import (
    DEFINITIONS,
    all_blocks,
    as_text,
    attributes_set,
    blocks_of,
    defined_by,
    function_at,
    has_run,
    is_in,
    keep_if,
    locals_returned,
    mend_blocks,
    names_read,
    root_of,
    size,
    statements,
    tail,
    tidy,
    used_by,
    without_users,
    written,
)

_LARGE = 100  # a number that may make it slow
_FEW_ENTRIES = 6
_OF_WORKERS = {"num_workers", "persistent_workers", "prefetch_factor", "worker_init_fn"}
_SAYS = {"print", "debug", "info", "warning", "basicConfig", "flush"}
_LEAVES = (ast.Break, ast.Continue)


def never_executed(program: Program) -> Iterator[Edit]:
    def made() -> str:
        tree = ast.parse(program.text)
        prune(tree, program.facts.executed, program.facts.frames)
        return tidy(written(tree))

    if program.facts.executed:
        yield Edit("", made)


def without_effect(program: Program) -> Iterator[Edit]:
    """What binds names and attributes that nothing reads, prints, or checks what did not fail: all
    of it at once, then each kind.
    """
    kinds: tuple[type[ast.stmt], ...] = (ast.Assign, ast.FunctionDef, ast.Expr, ast.Assert)
    for chosen in (kinds, *((kind,) for kind in kinds)):
        names = " ".join(kind.__name__ for kind in chosen)
        yield Edit(names, partial(_without_effect, program, chosen))


def _without_effect(program: Program, kinds: tuple[type[ast.stmt], ...]) -> str:
    tree = ast.parse(program.text)
    every = statements(tree)
    kept = {id(every[number]) for number in program.on_the_way}
    left = len(every) + 1
    while len(statements(tree)) < left:
        left = len(statements(tree))
        read = names_read(tree)
        keep_if(
            tree,
            lambda n, read=read: (  # type: ignore[misc]
                id(n) in kept or not isinstance(n, kinds) or _has_effect(n, read)
            ),
        )
    return tidy(written(tree))


def _has_effect(node: ast.stmt, read: set[str]) -> bool:
    match node:
        case ast.Assign(targets=targets):
            parts = [part for target in targets for part in ast.walk(target)]
            stored = [p for p in parts if isinstance(p, ast.expr)]
            stored = [p for p in stored if isinstance(getattr(p, "ctx", None), ast.Store)]
            return any(isinstance(p, ast.Subscript) or tail(p) in read for p in stored)
        case ast.FunctionDef(name=name, decorator_list=[]):
            return name in read or name == "forward" or name.startswith("__")
        case ast.Expr(value=ast.Call(func=called)):
            return tail(called) not in _SAYS
        case ast.Assert():
            return False
    return True


def in_one_process(program: Program) -> Iterator[Edit]:
    """Loaders without workers: what fails in them then fails where it can be looked at."""

    def made() -> str:
        tree = ast.parse(program.text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                node.keywords = [k for k in node.keywords if k.arg not in _OF_WORKERS]
        return tidy(written(tree))

    yield Edit("", made)


def unwrapped(program: Program) -> Iterator[Edit]:
    """Every `with`, `try` and `if` by what of it ran, at once; then each loop by one turn."""
    yield Edit("all", partial(_unwrapped_all, program))
    for number, node in enumerate(statements(program.tree)):
        if isinstance(node, LOOPS) and not _leaves(node):
            head = ast.unparse(node).partition("\n")[0]
            for with_value in (True, False):
                make = partial(_one_turn, program, number, with_value)
                yield Edit(f"{head} {with_value}", make)


def _unwrapped_all(program: Program) -> str:
    tree = ast.parse(program.text)
    kept = set(map(id, _chosen_each_turn(program, tree)))
    for block in list(all_blocks(tree)):
        done: list[ast.stmt] = []
        for node in block:
            inner = None if id(node) in kept else _inside(node, program.facts.executed)
            done += [node] if inner is None else inner
        block[:] = done
    mend_blocks(tree)
    return tidy(written(tree))


def _chosen_each_turn(program: Program, tree: ast.Module) -> list[ast.stmt]:
    """What chooses anew in each turn of a loop that the failure is in: repaired, the loop would go
    on. Also the conditions of a check of the user's own.
    """
    every = statements(tree)
    loops = [every[n] for n in program.on_the_way if isinstance(every[n], LOOPS)]
    inside = [node for loop in loops for node in statements(loop)]
    checks = [n for n in every if isinstance(n, ast.If) and ast.unparse(n.test) in program.kept]
    return [*(node for node in inside if isinstance(node, ast.If)), *checks]


def _inside(node: ast.stmt, executed: frozenset[int]) -> list[ast.stmt] | None:
    """What of a compound statement ran; None where both branches did, or it is a loop."""
    if isinstance(node, WITH):
        return [*bound_by(node), *node.body]
    if isinstance(node, ast.Try):
        return [*node.body, *node.orelse]
    if isinstance(node, ast.If):
        branches = (node.body, node.orelse)
        ran = [block for block in branches if any(has_run(n, executed) for n in block)]
        return ran[0] if len(ran) == 1 else None
    return None


def _one_turn(program: Program, number: int, with_value: bool) -> str:
    tree = ast.parse(program.text)
    loop = statements(tree)[number]
    inner = list(loop.body)  # type: ignore[attr-defined]
    if isinstance(loop, (ast.For, ast.AsyncFor)):
        frames = [f for f in program.facts.frames if is_in(loop, f.line)]
        use = with_value and frames
        inner.insert(0, one_turn(program, loop, frames[-1]) if use else first_of(loop))
    block = next(block for block in all_blocks(tree) if loop in block)
    at = block.index(loop)
    block[at : at + 1] = inner
    return as_text(tree.body)


def _leaves(node: ast.stmt) -> bool:
    """Whether a `break` or `continue` of this loop is in it."""
    for block in blocks_of(node):
        for inner in block:
            if isinstance(inner, _LEAVES):
                return True
            if not isinstance(inner, (*LOOPS, *DEFINITIONS)) and _leaves(inner):
                return True
    return False


def statements_left_out(program: Program) -> Iterator[Edit]:
    """Runs of statements of one block, longest first, with what then reads undefined names."""
    every = statements(program.tree)
    numbers = {id(node): number for number, node in enumerate(every)}
    runs: dict[tuple[int, ...], int] = {}
    for block in all_blocks(program.tree):
        free = [node for node in block if numbers[id(node)] not in program.on_the_way]
        # What a function gives back is looked for by its caller, or the function goes whole.
        free = [node for node in free if not isinstance(node, ast.Return) or node.value is None]
        length = len(free)
        while length:
            for at in range(0, len(free), length):
                run = free[at : at + length]
                runs[tuple(numbers[id(node)] for node in run)] = sum(map(size, run))
            length //= 2
    for chosen in sorted(runs, key=lambda run: (-runs[run], run)):
        key = "\n".join(ast.unparse(every[number]) for number in chosen)
        yield Edit(key, partial(_left_out, program, chosen))


def _left_out(program: Program, run: Sequence[int]) -> str | None:
    tree = ast.parse(program.text)
    every = statements(tree)
    kept = {id(every[number]) for number in program.on_the_way}
    gone = {id(every[number]) for number in run}
    returned = locals_returned(tree)
    keep_if(tree, lambda node: id(node) not in gone)
    text = without_users(tree, kept, attributes_set(program.tree))
    left = set(map(id, statements(tree)))
    if text is None or any(end in left for end, _ in returned - locals_returned(tree)):
        return None
    return tidy(text)


def functions_inlined(program: Program) -> Iterator[Edit]:
    """A plain function that is called once, as a statement, by its body."""
    for node in program.tree.body:
        if isinstance(node, ast.FunctionDef) and not node.decorator_list:
            yield Edit(node.name, partial(_inlined, program.text, node.name))


def _inlined(text: str, name: str) -> str | None:
    tree = ast.parse(text)
    function = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)
    uses = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name]
    if len(uses) != 1:
        return None
    for block in all_blocks(tree):
        for at, node in enumerate(block):
            call = node.value if isinstance(node, (ast.Expr, ast.Assign)) else None
            if isinstance(call, ast.Call) and call.func is uses[0]:
                body = _body_for(function, call, node)
                if body is None:
                    return None
                block[at : at + 1] = body
                tree.body.remove(function)
                return tidy(written(tree))
    return None


def _body_for(function: ast.FunctionDef, call: ast.Call, node: ast.stmt) -> list[ast.stmt] | None:
    returns = [n for n in statements(function) if isinstance(n, ast.Return)]
    yields = any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in ast.walk(function))
    bound = assignments(function, call.args, call.keywords)
    if yields or bound is None or any(one is not function.body[-1] for one in returns):
        return None
    body = [n for n in function.body if not isinstance(n, (ast.Global, ast.Nonlocal))]
    if returns:
        last = returns[0].value or ast.Constant(None)
        ends = ast.Assign(node.targets, last) if isinstance(node, ast.Assign) else ast.Expr(last)
        body[-1] = ends
    return [*bound, *body]


# -- inside statements


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
    """Decorators, turns, keywords, halves of lists and dicts, large numbers; one at a time. Not
    those of a `return` that never ran: no trial would show that they are needed.
    """
    returns = [node for node in statements(program.tree) if isinstance(node, ast.Return)]
    never_ran = [node for node in returns if not has_run(node, program.facts.executed)]
    kept = {id(part) for node in never_ran for part in ast.walk(node)}
    for change in (_listed, _once, _keywords, _entries, _smaller):
        for number, node in enumerate(ast.walk(program.tree)):
            for count in range(8 if id(node) not in kept else 0):
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


def _once(node: ast.AST, count: int) -> str:
    """The turns of `range(n)`."""
    said = ast.unparse(node) if isinstance(node, ast.Call) else ""
    if count or not isinstance(node, ast.Call) or said == "range(1)":
        return ""
    if tail(node.func) != "range" or len(node.args) != 1:
        return ""
    node.args = [ast.Constant(1)]
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
