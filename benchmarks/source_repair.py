"""What was planted in a program put back in the script made of it, whatever its variables are called
there: the check of `python -m benchmarks source`. `--fixed-by` itself looks for what is written alike.
"""

import ast
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from aorta.reduce.source import repair
from aorta.reduce.source.repair import Fix
from aorta.reduce.source.tree import root_of, tail


def repaired(script: str, fixes: Sequence[Fix]) -> str | None:
    return repair.repaired(script, fixes, _WhateverTheNames)


class _WhateverTheNames(repair.PutRight):
    """Puts `right`, with the variables as they are called there, wherever `wrong` stands."""

    def instead_of(self, nodes: Sequence[ast.AST]) -> list[Any] | None:
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
