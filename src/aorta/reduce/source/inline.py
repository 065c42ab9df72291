"""The modules of the user's as one file: each module's statements stand where it was first
imported, and names that two modules define are kept apart.
"""

import ast
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import resolve_name
from itertools import accumulate, chain
from typing import Any

from aorta.reduce.source.program import UserFrame, UserModule
from aorta.reduce.source.tree import (
    DEFINITIONS,
    IMPORTS,
    Function,
    all_blocks,
    blocks_of,
    defined_by,
    function_at,
    has_run,
    mend_blocks,
    own_nodes,
    path_to,
    statements,
    used_by,
    written,
    yields,
)

MAIN = "__main__"
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, *_COMPREHENSIONS)
_COMPUTES_NOTHING = (ast.Name, ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.expr_context)


@dataclass
class _Module:
    """One module on its way into the file. `calls` are its global names, as the file calls them;
    `modules` those that stand for a module of the user's.
    """

    about: UserModule
    tree: ast.Module
    calls: dict[str, str] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    emitted: bool = False


def inlined(
    modules: Sequence[UserModule],
    sources: Mapping[str, str],
    argv: Sequence[str],
    beside: Collection[str] = (),
) -> str:
    """One file out of the entry module, named `__main__`, and those that it imports; `beside` are
    modules that stay files, which it finds.
    """
    inside = [m for m in modules if m.name not in beside]
    made = _File({m.name: _Module(m, ast.parse(sources[m.file])) for m in inside})
    body = made.flattened(MAIN)
    future = [n for n in body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
    head: list[ast.stmt] = list({ast.dump(node): node for node in future}.values())
    roots = sorted({_root_of(m) for m in modules if m.name in beside} - {""})
    lines = [f"sys.path.insert(0, {root!r})" for root in roots]
    lines += [f"sys.argv = {list(argv)!r}"] if len(argv) > 1 else []
    if lines:
        head += ast.parse("\n".join(["import sys", *lines])).body
    if made.needs_types:
        head += ast.parse("import types").body
    return written(ast.Module([*head, *(node for node in body if node not in future)], []))


def _root_of(module: UserModule) -> str:
    """The folder that a module's name begins in, below the working directory."""
    parts = module.file.split("/")
    depth = module.name.count(".") + (1 if parts[-1] != "__init__.py" else 2)
    return "/".join(parts[: len(parts) - depth])


def prune(tree: ast.Module, lines: Collection[int], frames: Sequence[UserFrame]) -> None:
    """Take out, in place, what never ran; a function that was never called keeps its name. One of
    `frames`, which were active at the failure, keeps what it would have returned, and stays a
    generator: repaired, its caller goes on with that.
    """
    ran = set(lines)
    ends = {id(node) for frame in frames for node in _return_behind(tree, frame, ran)}
    active = [function_at(tree, frame.function, frame.line) for frame in frames]
    generators = [scope for scope in active if scope is not None and yields(scope)]
    for node in list(ast.walk(tree)):
        if isinstance(node, Function) and not any(has_run(inner, ran) for inner in node.body):
            node.body = [ast.Pass(lineno=node.lineno, end_lineno=node.lineno)]
    for block in list(all_blocks(tree)):
        block[:] = [
            n
            for n in block
            if has_run(n, ran) or isinstance(n, (ast.Global, ast.Nonlocal)) or id(n) in ends
        ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            node.handlers = [handler for handler in node.handlers if handler.body]
    for scope in generators:
        if not yields(scope):
            scope.body.append(ast.Expr(ast.Yield()))
    mend_blocks(tree)


def _return_behind(tree: ast.Module, frame: UserFrame, ran: set[int]) -> list[ast.Return]:
    """What the function would have come to behind the statement that it failed in; nothing where
    that computes anything, or reads what did not run: it might fail itself.
    """
    scope = function_at(tree, frame.function, frame.line)
    if scope is None:
        return []
    way = path_to(scope, frame.line)
    later = [node for block, index in reversed(way) for node in block[index + 1 :]]
    found = [node for node in later if isinstance(node, ast.Return) and node.value][:1]
    bound = {node.arg for node in ast.walk(scope.args) if isinstance(node, ast.arg)}
    simple = [node for node in statements(scope) if not list(blocks_of(node))]
    bound = bound.union(*(defined_by(node) for node in simple if has_run(node, ran)))
    parts = [part for node in found for part in ast.walk(node)]
    plain = all(isinstance(part, (ast.Return, *_COMPUTES_NOTHING)) for part in parts)
    return found if plain and used_by(ast.Module(list(found), [])) <= bound else []


def _run_by(node: ast.Import | ast.ImportFrom, package: str) -> list[str]:
    """The modules that may run because of an import, packages before what is in them."""
    if isinstance(node, ast.Import):
        return [part for alias in node.names for part in _prefixes(alias.name)]
    base = resolved(node, package)
    return [*_prefixes(base), *(f"{base}.{alias.name}" for alias in node.names)]


def resolved(node: ast.ImportFrom, package: str) -> str:
    """The absolute name of what is imported from."""
    if not node.level or not package:
        return node.module or ""
    return resolve_name("." * node.level + (node.module or ""), package)


def _prefixes(name: str) -> Iterable[str]:
    return accumulate(name.split("."), "{}.{}".format)


class _File:
    def __init__(self, modules: dict[str, _Module]) -> None:
        self.modules = modules
        self.taken: dict[str, str] = {}  # a global name of the file -> the module it is from
        self.needs_types = False

    def flattened(self, name: str) -> list[ast.stmt]:
        """The statements of a module, those of modules that it imports first before its own."""
        module = self.modules[name]
        module.emitted = True
        self._own_names(module)
        body: list[ast.stmt] = []
        for statement in module.tree.body:
            nodes = [statement]
            match statement:
                case ast.If(test=ast.Compare(left=ast.Name(id="__name__")), body=guarded):
                    nodes = guarded if name == MAIN else []
            for node in nodes:
                body += self._statement(module, node)
        return body

    def _statement(self, module: _Module, node: ast.stmt) -> list[ast.stmt]:
        body: list[ast.stmt] = []
        for inner in [node, *statements(node)]:
            for wanted in self.imported(module, inner) if isinstance(inner, IMPORTS) else ():
                if not self.modules[wanted].emitted:
                    body += self.flattened(wanted)
        renamed = _Renamer(self, module).visit(ast.Module([node], []))
        return body + [n for n in renamed.body if not isinstance(n, ast.Pass)]

    def _own_names(self, module: _Module) -> None:
        """What its top level defines; imports of a user's module are none."""
        defined, libraries = set[str](), dict[str, str]()
        for node in module.tree.body:
            if not isinstance(node, IMPORTS):
                defined |= defined_by(node)
            elif not self.imported(module, node):
                libraries |= {name: ast.dump(node) for name in defined_by(node)}
        for name in sorted(defined | libraries.keys()):
            # The same import in two modules is one thing; two other definitions are not.
            identity = libraries.get(name, module.about.name)
            called = name
            while self.taken.get(called, identity) != identity:
                called = f"{module.about.name.rpartition('.')[2].strip('_')}_{called}"
            self.taken[called] = identity
            module.calls[name] = called

    def imported(self, module: _Module, node: ast.Import | ast.ImportFrom) -> list[str]:
        """The user's modules that run because of this import."""
        names = dict.fromkeys(_run_by(node, module.about.package))
        return [name for name in names if name in self.modules]


class _Renamer(ast.NodeTransformer):
    """A statement of one module with its global names as the file calls them."""

    def __init__(self, file: _File, module: _Module) -> None:
        self.file, self.module = file, module
        self.locals: list[set[str]] = []

    # -- scopes

    def visit(self, node: ast.AST) -> Any:
        return self._scope(node) if isinstance(node, _SCOPES) else super().visit(node)

    def _scope(self, node: Any) -> Any:
        """A function, lambda or comprehension; its defaults and decorators are read outside."""
        own = self._bound_in(node)
        if isinstance(node, Function):
            node.name = node.name if self.locals else self.module.calls.get(node.name, node.name)
            node.decorator_list = [self.visit(part) for part in node.decorator_list]
            node.returns = node.returns and self.visit(node.returns)
        if hasattr(node, "args"):
            node.args = self.visit(node.args)
        self.locals.append(own)
        if isinstance(node, Function):
            self.generic_visit(inside := ast.Module(node.body, []))
            node.body = inside.body
        elif isinstance(node, ast.Lambda):
            node.body = self.visit(node.body)
        else:
            self.generic_visit(node)
        self.locals.pop()
        return node

    def _bound_in(self, node: Any) -> set[str]:
        """The names of a scope; what it imports of the user's is none."""
        names = {n.arg for n in ast.walk(getattr(node, "args", node)) if isinstance(n, ast.arg)}
        outside: set[str] = set()
        for one in own_nodes(node):
            if isinstance(one, (ast.Global, ast.Nonlocal)):
                outside |= set(one.names)
            elif isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                names.add(one.id)
            elif isinstance(one, (ast.ExceptHandler, *DEFINITIONS)):
                names.add(one.name or "")
            elif isinstance(one, IMPORTS) and not self.file.imported(self.module, one):
                names |= defined_by(one)
        return names - outside

    def visit_Global(self, node: ast.Global) -> ast.AST:
        return ast.Global([self.module.calls.get(name, name) for name in node.names])

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if not self.locals:
            node.name = self.module.calls.get(node.name, node.name)
        names = set().union(*(defined_by(inner) for inner in node.body))
        body, node.body = node.body, []
        self.generic_visit(node)
        for inner in body:
            # A class's own names are seen by its statements, and not by its functions.
            self.locals.append(set() if isinstance(inner, Function) else names)
            visited = self.visit(inner)
            self.locals.pop()
            node.body += visited if isinstance(visited, list) else [visited]
        return node

    def _is_local(self, name: str) -> bool:
        return any(name in names for names in self.locals)

    # -- names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if self._is_local(node.id):
            return node
        about = self.module.about
        special = {"__name__": about.name, "__file__": about.file}  # it runs where its files lie
        if node.id in special and about.name != MAIN:
            return ast.Constant(special[node.id])
        if node.id in self.module.modules:
            return self._object(self.module.modules[node.id])
        return ast.Name(self.module.calls.get(node.id, node.id), node.ctx)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        module = self._module_of(node.value)
        if module is None:
            return self.generic_visit(node)
        about = self.file.modules[module]
        if f"{module}.{node.attr}" in self.file.modules:
            return self._object(f"{module}.{node.attr}")
        if node.attr in about.calls:
            return ast.Name(about.calls[node.attr], node.ctx)
        if node.attr in about.modules:
            return self._object(about.modules[node.attr])
        return ast.Attribute(self._object(module), node.attr, node.ctx)

    def _module_of(self, node: ast.expr) -> str | None:
        """The user's module that an expression such as `package.module` stands for."""
        if isinstance(node, ast.Name) and not self._is_local(node.id):
            return self.module.modules.get(node.id)
        if isinstance(node, ast.Attribute):
            outer = self._module_of(node.value)
            if outer is not None:
                inner = f"{outer}.{node.attr}"
                return inner if inner in self.file.modules else None
        return None

    def _object(self, module: str) -> ast.expr:
        """A module as a value: an object with its names."""
        self.file.needs_types = True
        calls = self.file.modules[module].calls
        names = [ast.keyword(n, ast.Name(c, ast.Load())) for n, c in sorted(calls.items())]
        made = ast.parse("types.SimpleNamespace", mode="eval").body
        return ast.Call(made, [], names)

    def visit_Import(self, node: ast.Import) -> ast.AST:
        kept = []
        for alias in node.names:
            if alias.name not in self.file.modules:
                kept.append(alias)
                continue
            first = alias.name if alias.asname else alias.name.partition(".")[0]
            self.module.modules[alias.asname or first] = first
        return self._as_called(ast.Import(kept)) if kept else ast.Pass()

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | list[ast.stmt]:
        base = resolved(node, self.module.about.package)
        kept: list[ast.alias] = []
        body: list[ast.stmt] = []
        for alias in node.names:
            name = alias.asname or alias.name
            package = self.file.modules.get(base)
            is_bound = package is not None and alias.name in package.calls
            if f"{base}.{alias.name}" in self.file.modules and not is_bound:
                self.module.modules[name] = f"{base}.{alias.name}"
            elif base not in self.file.modules:
                kept.append(alias)
            elif alias.name == "*":
                other = self.file.modules[base]
                self.module.calls |= {n: c for n, c in other.calls.items() if n[0] != "_"}
                self.module.modules |= other.modules
            else:
                body += self._bound(base, alias.name, name)
        if kept:
            whole = ast.ImportFrom(base if node.level else node.module, kept, 0)
            body.append(self._as_called(whole))
        return body or ast.Pass()

    def _bound(self, base: str, wanted: str, name: str) -> list[ast.stmt]:
        """`from base import wanted as name`: the other name, or an assignment."""
        other = self.file.modules[base]
        if wanted in other.modules:
            self.module.modules[name] = other.modules[wanted]
            return []
        found = other.calls.get(wanted, wanted)
        if not self._is_local(name) and name not in self.module.calls:
            self.module.calls[name] = found
            return []
        target = self.module.calls.get(name, name) if not self._is_local(name) else name
        if target == found:
            return []
        return [ast.Assign([ast.Name(target, ast.Store())], ast.Name(found, ast.Load()))]

    def _as_called(self, node: ast.Import | ast.ImportFrom) -> ast.stmt:
        for alias in node.names:
            bound = alias.asname or alias.name.partition(".")[0]
            called = bound if self._is_local(bound) else self.module.calls.get(bound, bound)
            if called != bound and (alias.asname or "." not in alias.name):
                alias.asname = called
        return node


def closed(modules: Sequence[UserModule], sources: Mapping[str, str], stays: set[str]) -> set[str]:
    """With every module that one of them imports: what a file beside the script imports lies there
    too, or it would be there twice.
    """
    about = {module.name: module for module in modules}
    found, waiting = set(stays), list(stays)
    while waiting:
        module = about[waiting.pop()]
        nodes = ast.walk(ast.parse(sources[module.file]))
        imports = [_run_by(node, module.package) for node in nodes if isinstance(node, IMPORTS)]
        new = about.keys() & set(chain.from_iterable(imports)) - found - {MAIN}
        found |= new
        waiting += new
    return found


def unreached(modules: Sequence[UserModule], sources: Mapping[str, str]) -> set[str]:
    """Modules that ran and that no import statement names: they are imported by their text."""
    return {module.name for module in modules} - closed(modules, sources, {MAIN})
