"""The code of this package that a function can run, as text, found by following names and imports.

Files of experiments hold drawing and verdicts beside what is computed: of `asyncqn_paper`, and of files
outside the package, only the definitions count that the function leads to.  Of all other files everything
counts, with every import in them: those inside functions too, and modules named in strings, as in
registries.  Comments, layout, docstrings and imports for type checkers do not count.  The `__init__` of a
package counts where a name is imported from it.
"""

from __future__ import annotations

import ast
import hashlib
import platform
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import asyncqn

PACKAGES = ("asyncqn", "numpy", "numba", "llvmlite")
"""Those whose version may change a number."""
_BY_DEFINITION = "asyncqn_paper"

Target = tuple[str, str | None]
"""A module, and one of its names or all of it."""


def code_hash(function: Callable[..., Any]) -> str:
    """Hash of what `function` can run, of the package's data that this may read, and of versions."""
    path = Path(function.__code__.co_filename)
    return _hash(function.__module__, function.__name__, path, Path(asyncqn.__file__).parent)


@cache
def _hash(module: str, name: str, path: Path, root: Path) -> str:
    digest = hashlib.sha256()
    for label, text in sorted(reachable(module, name, root, path).items()):
        digest.update(f"{label}\n{text}\n".encode())
    for package in PACKAGES:
        digest.update(f"{package} {version(package)}\n".encode())
    digest.update(platform.python_version().encode())
    return digest.hexdigest()


def reachable(module: str, name: str, root: Path, path: Path | None = None) -> dict[str, str]:
    """Sources by where they stand: what `name` of `module` leads to in the package at `root`.

    path: the file of a module outside the package.
    """
    places, data = _modules(root), list(root.glob("*/*/*.json"))
    files: dict[str, _File] = {}
    if path is not None and module not in places:
        files[module] = _parsed(module, path.read_text(encoding="utf-8"))
    texts: dict[str, str] = {}
    waiting: list[Target] = [(module, name)]
    seen: set[Target] = set()
    while waiting:
        module, wanted = waiting.pop()
        found = places.get(module)
        if found is not None and not f"{module}.".startswith(f"{_BY_DEFINITION}."):
            wanted = None
        if (module, wanted) in seen or (found is None and module not in files):
            continue
        seen.add((module, wanted))
        if module not in files and found is not None:
            files[module] = _parsed(module, found.read_text(encoding="utf-8"))
        part = files[module].part(wanted)
        texts[module if wanted is None else f"{module}:{wanted}"] = part.text
        waiting += [_resolved(target, places) for target in part.leads]
        named = [file for file in data if file.parent.name in part.words]
        texts |= {str(file.relative_to(root)): file.read_text(encoding="utf-8") for file in named}
    return texts


class _Part(NamedTuple):
    """Some definitions of a file, or all of it: the text, where it leads, the strings in it."""

    text: str
    leads: frozenset[Target]
    words: frozenset[str]


class _File:
    """The top level of one module, without what cannot change a number."""

    def __init__(self, module: str, text: str) -> None:
        tree = _Numerical().visit(ast.parse(text))
        self._everything: list[ast.stmt] = tree.body
        self._module = module
        self._parts: dict[str | None, _Part] = {}
        self._imports: dict[str, Target] = {}
        self._named: dict[str, list[ast.stmt]] = {}
        self._loose: list[ast.stmt] = []
        for node in self._everything:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._imports |= dict(_bindings(node))
            elif names := _defined(node):
                for name in names:
                    self._named.setdefault(name, []).append(node)
            else:
                self._loose.append(node)

    def part(self, name: str | None) -> _Part:
        """What defines a name, with statements that define none, which run in any case; None: everything."""
        if name not in self._parts:
            nodes = self._everything if name is None else [*self._named.get(name, []), *self._loose]
            inner = [node for outer in nodes for node in ast.walk(outer)]
            strings = (node.value for node in inner if isinstance(node, ast.Constant))
            words = frozenset(value for value in strings if isinstance(value, str))
            text = "\n".join(map(ast.unparse, nodes))
            self._parts[name] = _Part(text, frozenset(self._leads(inner, words)), words)
        return self._parts[name]

    def _leads(self, nodes: list[ast.AST], words: frozenset[str]) -> Iterator[Target]:
        """What nodes import or name in strings, and the names of this file that they use."""
        yield from ((word.partition(":")[0], None) for word in words if word.startswith("asyncqn."))
        for node in nodes:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                yield from (target for _, target in _bindings(node))
            elif isinstance(node, ast.Name):
                if node.id in self._imports:
                    yield self._imports[node.id]
                elif node.id in self._named:
                    yield self._module, node.id


@cache
def _parsed(module: str, text: str) -> _File:
    return _File(module, text)


class _Numerical(ast.NodeTransformer):
    """Drops docstrings and what is only for type checkers."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if text else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt] | None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return [self.visit(other) for other in node.orelse]
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node


def _bindings(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Target]]:
    """The names that an import binds, and to what."""
    for alias in node.names:
        if isinstance(node, ast.Import):
            yield alias.asname or alias.name.partition(".")[0], (alias.name, None)
        elif node.module is not None:
            yield alias.asname or alias.name, (node.module, alias.name)


def _resolved(target: Target, places: dict[str, Path]) -> Target:
    """`from package import module` means the module."""
    module, name = target
    return (f"{module}.{name}", None) if name and f"{module}.{name}" in places else target


def _modules(root: Path) -> dict[str, Path]:
    """The modules of the package at `root`, and their files."""
    files = {
        ".".join(("asyncqn", *path.relative_to(root).with_suffix("").parts)): path
        for path in root.rglob("*.py")
    }
    return {name.removesuffix(".__init__"): path for name, path in files.items()}


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        targets = [node.target]
    return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
