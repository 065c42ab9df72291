"""Ways to make a program smaller by its structure: plain functions from a program to candidates,
the biggest saving first.
"""

import ast
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

from aorta.reduce.source.inline import prune
from aorta.reduce.source.program import Edit, Program
from aorta.reduce.source.tree import (
    all_blocks,
    as_text,
    attributes_set,
    defined_by,
    keep_if,
    names_read,
    replace_statement,
    statements,
    tail,
    tidy,
    without_users,
    written,
    yields,
)

_MOST_RUNS = 20  # of one list
_OF_WORKERS = {"num_workers", "persistent_workers", "prefetch_factor", "worker_init_fn"}
_SAYS = {"print", "debug", "info", "warning", "basicConfig", "flush"}
# The lists of a node that may be shorter; those of a dict go together.
_LISTS: dict[type[ast.AST], tuple[str, ...]] = {
    ast.ClassDef: ("decorator_list", "bases"),
    ast.FunctionDef: ("decorator_list",),
    ast.Call: ("keywords",),
    ast.Dict: ("keys",),
    ast.List: ("elts",),
}


def never_executed(program: Program) -> Iterator[Edit]:
    def made() -> str:
        tree = ast.parse(program.text)
        prune(tree, program.facts.executed, program.facts.frames)
        return tidy(written(tree))

    if program.facts.executed:
        yield "", made


def in_one_process(program: Program) -> Iterator[Edit]:
    """Loaders without workers: what fails in them then fails where it can be looked at."""

    def made() -> str:
        tree = ast.parse(program.text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                node.keywords = [k for k in node.keywords if k.arg not in _OF_WORKERS]
        return tidy(written(tree))

    yield "", made


def without_effect(program: Program) -> Iterator[Edit]:
    """What binds names and attributes that nothing reads, prints, or checks what did not fail."""

    def made() -> str:
        tree = ast.parse(program.text)
        every = statements(tree)
        kept = {id(every[number]) for number in program.on_the_way}
        left = len(every) + 1
        while len(statements(tree)) < left:
            left, read = len(statements(tree)), names_read(tree)
            keep_if(tree, lambda n, read=read: id(n) in kept or _has_effect(n, read))  # type: ignore[misc]
        return tidy(written(tree))

    yield "", made


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


def results_left_out(program: Program) -> Iterator[Edit]:
    """What statements on the stack would have bound, where nothing behind them reads it: what a
    function returned before it was cut may not be taken apart there.
    """

    def made() -> str:
        tree = ast.parse(program.text)
        every = statements(tree)
        for node in (every[number] for number in program.on_the_way - program.in_loops):
            if isinstance(node, ast.Assign) and not defined_by(node) & program.read_behind:
                replace_statement(tree, node, [ast.Expr(node.value)])
        return tidy(written(tree))

    yield "", made


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
            tree = ast.parse(text)
            call = list(ast.walk(tree))[number]
            assert isinstance(call, ast.Call)
            call.func = ast.parse(made[tail(node.func)], mode="eval").body
            call.args, call.keywords = [ast.Constant(content)], []
            yield as_text(tree.body)


def parts_left_out(program: Program) -> Iterator[Edit]:
    """Decorators, bases, keywords, entries of lists and dicts; of many, larger parts alone."""
    kept = {id(part) for node in program.never_returned for part in ast.walk(node)}
    for number, node in enumerate(ast.walk(program.tree)):
        for name in _LISTS.get(type(node), ()) if id(node) not in kept else ():
            parts = getattr(node, name)
            # Types of numbers and devices may be what is wrong.
            free = [n for n, p in enumerate(parts) if not _is_type_of_numbers(p)]
            for out in islice(_runs(free), _MOST_RUNS):
                key = f"{name} {out} {[ast.unparse(p) if p else '**' for p in parts]}"
                yield key, partial(_shortened, program.text, number, name, out)


def _is_type_of_numbers(part: ast.AST | None) -> bool:
    return isinstance(part, ast.keyword) and part.arg in {"dtype", "device"}


def _shortened(text: str, number: int, name: str, out: Sequence[int]) -> str:
    tree = ast.parse(text)
    node = list(ast.walk(tree))[number]
    for field in (name, "values") if name == "keys" else (name,):
        setattr(node, field, [p for n, p in enumerate(getattr(node, field)) if n not in out])
    return tidy(written(tree))
