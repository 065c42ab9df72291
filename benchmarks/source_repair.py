"""What was planted in a program put back in the script made of it, whatever its variables are called
there: the check of `python -m benchmarks source`. `--fixed-by` itself looks for what is written alike.
"""

import ast
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from aorta.reduce.source.repair import Fix
from aorta.reduce.source.tree import blocks_of, root_of, tail, written


def repaired(script: str, fixes: Sequence[Fix]) -> str | None:
    """The script with what was wrong put right; None where it holds nothing of that."""
    tree = ast.parse(script)
    found = [_put_right(tree, fix) for fix in fixes]
    return written(tree) if any(found) else None


def _put_right(tree: ast.Module, fix: Fix) -> bool:
    for wrong, right in fix:
        put = _PutRight(wrong, right)
        mended = put.visit(deepcopy(tree))
        alone = isinstance(wrong[0], (ast.Constant, ast.Name))
        if put.places and not (alone and put.places > 1):
            tree.body = mended.body
            return True
    return False


class _PutRight(ast.NodeTransformer):
    """Puts `right`, with the variables as they are called there, wherever `wrong` stands."""

    def __init__(self, wrong: Sequence[ast.AST], right: Sequence[ast.AST]) -> None:
        self.wrong, self.right = wrong, right
        self.places = 0

    def visit(self, node: ast.AST) -> Any:
        if isinstance(self.wrong[0], ast.stmt):
            for block in blocks_of(node):
                for at in range(len(block) - len(self.wrong), -1, -1):
                    run = block[at : at + len(self.wrong)]
                    if (new := self._instead_of(run)) is not None:
                        block[at : at + len(run)] = new
        elif isinstance(node, ast.expr) and (new := self._instead_of([node])) is not None:
            return new[0]
        return self.generic_visit(node)

    def _instead_of(self, nodes: Sequence[ast.AST]) -> list[Any] | None:
        called: dict[str, ast.AST] = {}
        pairs = zip(self.wrong, nodes, strict=True)
        if not all(_is_alike(wrong, node, called) for wrong, node in pairs):
            return None
        self.places += 1
        return [_Called(called).visit(deepcopy(node)) for node in self.right]


def _is_alike(wrong: Any, node: Any, called: dict[str, ast.AST]) -> bool:
    """Whether it is the same but for what variables are called: a name may be another name, an
    attribute of something or a constant; an attribute may be of something else.
    """
    if isinstance(wrong, (ast.Name, ast.Attribute)) and isinstance(node, ast.expr):
        is_chain = isinstance(root_of(node), ast.Name)
        same = is_chain and tail(wrong) == tail(node)
        if not same and not (
            isinstance(wrong, ast.Name) and (is_chain or isinstance(node, ast.Constant))
        ):
            return False
        known = called.setdefault(ast.unparse(wrong), node)
        _note_owners(wrong, node, called)
        return ast.unparse(known) == ast.unparse(node)
    if type(wrong) is not type(node):
        return False
    if isinstance(wrong, ast.Call) and tail(wrong.func) != tail(node.func):
        return False
    if isinstance(wrong, ast.AST):
        fields = [f for f in wrong._fields if f not in {"ctx", "kind", "type_comment"}]
        return all(_is_alike(getattr(wrong, f), getattr(node, f), called) for f in fields)
    if isinstance(wrong, list):
        pairs = zip(wrong, node, strict=False)
        return len(wrong) == len(node) and all(_is_alike(a, b, called) for a, b in pairs)
    return bool(wrong == node)


def _note_owners(wrong: ast.expr, node: ast.expr, called: dict[str, ast.AST]) -> None:
    """Where `batch.T` stands for `X.T`, `batch` stands for `X`."""
    while isinstance(wrong, ast.Attribute) and isinstance(node, ast.Attribute):
        if wrong.attr != node.attr:
            return
        wrong, node = wrong.value, node.value
        called.setdefault(ast.unparse(wrong), node)


class _Called(ast.NodeTransformer):
    def __init__(self, called: dict[str, ast.AST]) -> None:
        self.called = called

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return deepcopy(self.called.get(node.id, node))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        known = self.called.get(ast.unparse(node))
        return deepcopy(known) if known is not None else self.generic_visit(node)
