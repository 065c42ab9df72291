"""The check the other way: what a known fix changes in the program is changed in the script too,
which must then end well.

A fix is read as pairs of Python trees, from whole statements down to the expression that differs.
The largest that the script still holds, as it was written, is put right there.
"""

import ast
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from copy import deepcopy
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from aorta.core.errors import UsageError
from aorta.reduce.source.tree import blocks_of, written
from aorta.runtimes.programs import heard

Level = tuple[Sequence[ast.AST], Sequence[ast.AST]]  # what is wrong, and what is right
Fix = tuple[Level, ...]  # of one difference, the outermost first


def fixes_of_patch(patch: Path, root: Path) -> list[Fix]:
    """What a unified diff changes in the Python files below `root`. Raises `UsageError` where it
    cannot be applied there.
    """
    named = [
        line.split()[1] for line in patch.read_text("utf-8").splitlines() if line[:4] == "+++ "
    ]
    files = [name.partition("/")[2] for name in named if name.endswith(".py")]
    with tempfile.TemporaryDirectory(prefix="aorta-fix-") as made:
        for name in files:
            target = Path(made, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            if (root / name).is_file():
                shutil.copy(root / name, target)
        done = heard(("git", "apply", "--include=*.py", str(patch.resolve())), cwd=made)
        if done.returncode or not files:
            why = done.stderr.strip().partition("\n")[0] or "it changes no Python file"
            raise UsageError(f"cannot be applied to {root}: {why}", where=str(patch))
        texts = [((root / n).read_text("utf-8"), Path(made, n).read_text("utf-8")) for n in files]
    return [fix for before, after in texts for fix in fixes_between(before, after)]


def fixes_between(before: str, after: str) -> list[Fix]:
    return list(_differences(ast.parse(before), ast.parse(after), ()))


def _differences(wrong: ast.AST, right: ast.AST, above: Fix) -> Iterator[Fix]:
    here: Fix = above
    if isinstance(wrong, (ast.expr, ast.stmt)):
        here = (*above, ([wrong], [right]))
    if type(wrong) is not type(right):
        yield here
        return
    below: list[Fix] = []
    for name in wrong._fields:
        old, new = getattr(wrong, name), getattr(right, name)
        if isinstance(old, list) and len(old) != len(new):
            is_block = isinstance((old or new)[0], ast.stmt)
            below.append((*here, _run(old, new)) if is_block else here)
            continue
        pairs = zip(old, new, strict=True) if isinstance(old, list) else [(old, new)]
        for one, other in pairs:
            if isinstance(one, ast.AST) and isinstance(other, ast.AST):
                if ast.dump(one) != ast.dump(other):
                    below += _differences(one, other, here)
            elif one != other:
                below.append(here)
    yield from below if len(below) < 2 or not isinstance(wrong, ast.expr) else [here]


def _run(old: list[ast.AST], new: list[ast.AST]) -> Level:
    """The statements of one block that differ; where some are only added, with a neighbour."""
    before, after = ([ast.dump(node) for node in nodes] for nodes in (old, new))
    steps = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    changed = [step for step in steps if step[0] != "equal"]
    (_, first, _, first_new, _), (_, _, last, _, last_new) = changed[0], changed[-1]
    if first == last and first:
        first, first_new = first - 1, first_new - 1
    elif first == last and old:
        last, last_new = last + 1, last_new + 1
    return old[first:last], new[first_new:last_new]


class PutRight(ast.NodeTransformer):
    """Puts `right` wherever `wrong` stands."""

    def __init__(self, wrong: Sequence[ast.AST], right: Sequence[ast.AST]) -> None:
        self.wrong, self.right = wrong, right
        self.places = 0

    def visit(self, node: ast.AST) -> Any:
        if isinstance(self.wrong[0], ast.stmt):
            for block in blocks_of(node):
                for at in range(len(block) - len(self.wrong), -1, -1):
                    run = block[at : at + len(self.wrong)]
                    if (new := self.instead_of(run)) is not None:
                        block[at : at + len(run)] = new
        elif isinstance(node, ast.expr) and (new := self.instead_of([node])) is not None:
            return new[0]
        return self.generic_visit(node)

    def instead_of(self, nodes: Sequence[ast.AST]) -> list[Any] | None:
        """What takes their place; None where they are not what was wrong."""
        if _text(nodes) != _text(self.wrong):
            return None
        self.places += 1
        return [deepcopy(node) for node in self.right]


def repaired(script: str, fixes: Sequence[Fix], put_right: type[PutRight] = PutRight) -> str | None:
    """The script with what was wrong put right; None where it holds nothing of that."""
    tree = ast.parse(script)
    found = [_put_right(tree, fix, put_right) for fix in fixes]
    return written(tree) if any(found) else None


def _put_right(tree: ast.Module, fix: Fix, put_right: type[PutRight]) -> bool:
    for wrong, right in fix:
        put = put_right(wrong, right)
        mended = put.visit(deepcopy(tree))
        alone = isinstance(wrong[0], (ast.Constant, ast.Name))
        if put.places and not (alone and put.places > 1):
            tree.body = mended.body
            return True
    return False


def _text(nodes: Sequence[ast.AST]) -> list[str]:
    return [ast.unparse(node) for node in nodes]
