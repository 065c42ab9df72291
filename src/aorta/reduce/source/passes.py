"""Ways to make a program smaller by its structure: plain functions from a program to candidates,
the biggest saving first.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, wraps
from itertools import islice
from typing import Any

from aorta.reduce.source.inline import prune
from aorta.reduce.source.program import Edit, Pass, Program, UserFrame
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
    names_read,
    path_to,
    replace_statement,
    statements,
    tail,
    tidy,
    used_by,
    without_users,
    written,
    yields,
)

_MOST_RUNS = 20  # of one list
_LARGE = 100  # a smaller number may be the one that another does not fit
_OF_WORKERS = {"num_workers", "persistent_workers", "prefetch_factor", "worker_init_fn"}
_TYPES = {"dtype", "device"}  # may be what is wrong
_SAYS = {"print", "debug", "info", "warning", "basicConfig", "flush"}
# The lists of a node that may be shorter.
_LISTS: dict[type[ast.AST], tuple[tuple[str, ...], ...]] = {
    ast.ClassDef: (("decorator_list",), ("bases",)),
    ast.FunctionDef: (("decorator_list",),),
    ast.Call: (("keywords",),),
    ast.List: (("elts",),),
    ast.Dict: (("keys", "values"),),
}


def _at_once(change: Callable[[Program, ast.Module], None]) -> Pass:
    """A pass of one edit, which `change` makes in the program's tree."""

    @wraps(change)
    def step(program: Program) -> Iterator[Edit]:
        def made() -> str:
            tree = ast.parse(program.text)
            change(program, tree)
            return tidy(written(tree))

        yield "", made

    return step


@_at_once
def never_executed(program: Program, tree: ast.Module) -> None:
    if program.facts.executed:
        prune(tree, program.facts.executed, program.facts.frames)


@_at_once
def in_one_process(_program: Program, tree: ast.Module) -> None:
    """Loaders without workers: what fails in them then fails where it can be looked at."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.keywords = [k for k in node.keywords if k.arg not in _OF_WORKERS]


@_at_once
def without_effect(program: Program, tree: ast.Module) -> None:
    """What binds names and attributes that nothing reads, prints, or checks what did not fail."""
    every = statements(tree)
    kept = {id(every[number]) for number in program.on_the_way}
    left = len(every) + 1
    while len(statements(tree)) < left:
        left, read = len(statements(tree)), names_read(tree)
        keep_if(tree, partial(_is_needed, kept, read))


def _is_needed(kept: set[int], read: set[str], node: ast.stmt) -> bool:
    return id(node) in kept or _has_effect(node, read)


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


@_at_once
def results_left_out(program: Program, tree: ast.Module) -> None:
    """What statements on the stack would have bound, where nothing behind them reads it: what a
    function returned before it was cut may not be taken apart there.
    """
    every = statements(tree)
    for node in (every[number] for number in program.on_the_way - program.in_loops):
        if isinstance(node, ast.Assign) and not defined_by(node) & program.read_behind:
            replace_statement(tree, node, [ast.Expr(node.value)])


def _replaced(text: str, number: int, new: Sequence[ast.stmt]) -> str:
    tree = ast.parse(text)
    replace_statement(tree, statements(tree)[number], new)
    return as_text(tree.body)


def unwrapped(program: Program) -> Iterator[Edit]:
    """Each compound statement by the one block of it that ran, a `try` by its body, a loop by one
    turn. Not an `if` in a loop: repaired, the loop would go on, and choose anew.
    """
    for number, node in enumerate(statements(program.tree)):
        blocks = [node.body] if isinstance(node, ast.Try) else list(blocks_of(node))
        ran = [b for b in blocks if any(has_run(n, program.facts.executed) for n in b)]
        chooses = isinstance(node, ast.If) and number in program.in_loops
        leaves = any(isinstance(n, (ast.Break, ast.Continue)) for n in statements(node))
        if len(ran) == 1 and not (chooses or leaves or isinstance(node, DEFINITIONS)):
            inner = [*_given(node), *ran[0]]
            head = ast.unparse(node).partition("\n")[0]
            yield head, partial(_replaced, program.text, number, inner)


def statements_left_out(program: Program) -> Iterator[Edit]:
    """Runs of statements of one block, longest first, with what then reads undefined names."""
    every = statements(program.tree)
    numbers = {id(node): number for number, node in enumerate(every)}
    runs: dict[tuple[int, ...], int] = {}
    returned = program.read_behind
    for block in all_blocks(program.tree):
        free = [node for node in block if numbers[id(node)] not in program.on_the_way]
        # What a function gives back is looked for by its caller, or the function goes whole.
        free = [n for n in free if not isinstance(n, ast.Return) or n.value is None]
        free = [n for n in free if not defined_by(n) & returned and not yields(n)]
        for run in _runs([numbers[id(node)] for node in free]):
            runs[run] = sum(1 + len(statements(every[number])) for number in run)
    for chosen in sorted(runs, key=lambda run: (-runs[run], run)):
        key = "\n".join(ast.unparse(every[number]) for number in chosen)
        yield key, partial(_left_out, program, chosen)


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All of them, their halves, quarters and so on down to each."""
    length = len(numbers)
    while length:
        yield from (tuple(numbers[at : at + length]) for at in range(0, len(numbers), length))
        length //= 2


def _left_out(program: Program, run: Sequence[int]) -> str | None:
    tree = ast.parse(program.text)
    every = statements(tree)
    kept = {id(every[number]) for number in program.on_the_way}
    gone = {id(every[number]) for number in run}
    keep_if(tree, lambda node: id(node) not in gone)
    text = without_users(tree, kept, attributes_set(program.tree))
    return tidy(text) if text is not None else None


def files_as_texts(text: str, content: str) -> Iterator[str]:
    """With the content of a file in the place of one that is opened or read there."""
    for number, node in enumerate(ast.walk(ast.parse(text))):
        made = {"open": "io.StringIO", "read_text": "str"}
        if isinstance(node, ast.Call) and tail(node.func) in made:
            new = ast.parse(f"{made[tail(node.func)]}({content!r})", mode="eval").body
            yield _changed(text, number, vars(new))


def _changed(text: str, number: int, fields: Mapping[str, Any]) -> str:
    tree = ast.parse(text)
    vars(list(ast.walk(tree))[number]).update(fields)
    return as_text(tree.body)


def parts_left_out(program: Program) -> Iterator[Edit]:
    """Decorators, bases, keywords, entries of lists and dicts; of many, larger parts alone."""
    for number, node in _free_nodes(program):
        for names in _LISTS.get(type(node), ()):
            parts = getattr(node, names[0])
            free = [n for n, p in enumerate(parts) if getattr(p, "arg", "") not in _TYPES]
            for out in islice(_runs(free), _MOST_RUNS):
                left = [n for n in range(len(parts)) if n not in out]
                fields = {name: [getattr(node, name)[n] for n in left] for name in names}
                key = f"{names} {out} {[part and ast.unparse(part) for part in parts]}"
                yield key, partial(_changed, program.text, number, fields)


def _free_nodes(program: Program) -> list[tuple[int, ast.AST]]:
    """With their numbers. Not those of a `return` that never ran."""
    kept = {id(part) for node in program.never_returned for part in ast.walk(node)}
    return [(n, node) for n, node in enumerate(ast.walk(program.tree)) if id(node) not in kept]


def integers_smaller(program: Program) -> Iterator[Edit]:
    """Each large one by two, else by its half, and so on down. A size of one would fit any."""
    for number, node in _free_nodes(program):
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value >= _LARGE:
            for value in (2, node.value // 2):
                make = partial(_changed, program.text, number, {"value": value})
                yield f"{number} {node.value} {value}", make


def modules_as_identity(program: Program) -> Iterator[Edit]:
    """Each module of torch's, or of the user's, that is made by one that does nothing."""
    classes = [node for node in program.tree.body if isinstance(node, ast.ClassDef)]
    users = {node.name for node in classes if "Module" in map(tail, node.bases)}
    identity = vars(ast.parse("torch.nn.Identity()", mode="eval").body)
    for number, node in enumerate(ast.walk(program.tree)):
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        is_torchs = called.startswith(("nn.", "torch.nn.")) and "Identity" not in called
        if called in users or is_torchs:
            make = partial(_changed, program.text, number, identity)
            yield f"{number} {ast.unparse(node)}", make


# -- with values that were seen


def configurations_as_seen(program: Program) -> Iterator[Edit]:
    """Namespaces alone: a dict may be a row of the data."""
    return _as_seen(program, ("argparse.", "types."), ast.expr)


def values_as_seen(program: Program) -> Iterator[Edit]:
    return _as_seen(program, ("",), ast.Call)


def _as_seen(program: Program, prefixes: tuple[str, ...], maker: type[ast.expr]) -> Iterator[Edit]:
    """What a variable of a function on the stack was seen to be, in the place of what made it."""
    numbers = {id(node): number for number, node in enumerate(statements(program.tree))}
    for frame in program.facts.frames:
        scope = function_at(program.tree, frame.function, frame.line) or program.tree
        stored = Counter(name for node in statements(scope) for name in defined_by(node))
        for node in statements(scope):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=made) if isinstance(made, maker):
                    value = frame.values.get(name, "")
                    may_stand = program.may_stand(value) and value.startswith(prefixes)
                    if value and may_stand and stored[name] == 1:
                        seen = ast.parse(f"{name} = {value}").body
                        make = partial(_replaced, program.text, numbers[id(node)], seen)
                        yield ast.unparse(node), make


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
    parts = [p for p in ast.walk(node) if isinstance(p, (ast.Attribute, ast.Subscript))]
    stored = [part for part in parts if isinstance(part.ctx, ast.Store)]
    return defined_by(node).union(*map(used_by, stored))
