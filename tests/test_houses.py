"""Three packages, one visible core: the smaller ones use public names, and asyncqn knows nothing of them."""

from __future__ import annotations

import ast
import importlib
import json
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import resolve_name

import pytest
from conftest import python

import asyncqn as aq
from asyncqn.checks import first_calls
from asyncqn.cli.program import command_modules
from asyncqn.core.problem import is_ours, read_only
from asyncqn.models import PROBLEMS

SOURCE = Path(__file__).resolve().parent.parent / "src"
HOUSES = ("asyncqn_recommender", "asyncqn_paper")
DOORS = (
    "asyncqn",
    "asyncqn.algorithms",
    "asyncqn.algorithms.exact.inverse",
    "asyncqn.algorithms.pair_memory",
    "asyncqn.algorithms.safeguard",
    "asyncqn.cli",
    "asyncqn.errors",
    "asyncqn.kernels",
    "asyncqn.lab",
    "asyncqn.models.remote",
    "asyncqn.models.sparse_layout",
    "asyncqn.parameters",
    "asyncqn.stages",
    "asyncqn.storage",
    "asyncqn.times",
    "asyncqn.types",
)
"""Modules whose `__all__` is public."""


def imports(path: Path, typing: bool = True) -> Iterator[tuple[int, str, str | None]]:
    """(line, module, name) of every import of a file, also inside functions and, if `typing`, for type checkers."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    blocks = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
    ]
    left_out = {
        inner
        for block in ([] if typing else blocks)
        for statement in block.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if node in left_out:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports by a relative name"
            yield from (
                (node.lineno, node.module or "", alias.name) for alias in node.names
            )


def is_public(module: str, name: str | None) -> bool:
    if name is None:
        return module == "asyncqn"
    if module not in DOORS:
        return False
    # Packages get the names of their stubs as asyncqn does; nobody else needs that function.
    for_packages = ("__version__", "lazy_names")
    return name in for_packages or name in resolve_name(module).__all__


@pytest.mark.parametrize("house", HOUSES)
def test_a_house_imports_only_public_names_of_asyncqn(house: str) -> None:
    wrong = [
        f"{path.relative_to(SOURCE)}:{line} imports {name} of {module}"
        for path in sorted((SOURCE / house).rglob("*.py"))
        for line, module, name in imports(path)
        if module.partition(".")[0] == "asyncqn" and not is_public(module, name)
    ]
    assert wrong == []


@pytest.mark.parametrize("door", DOORS)
def test_every_public_name_exists_and_is_explained(door: str) -> None:
    module = resolve_name(door)
    for name in module.__all__:
        thing = getattr(module, name)
        if callable(thing) and getattr(thing, "__module__", "").startswith("asyncqn"):
            assert (thing.__doc__ or "").strip(), f"{door}.{name} has no docstring"


def test_asyncqn_imports_no_house_and_the_recommender_not_the_paper() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)}:{line} imports {module}"
        for package, forbidden in (
            ("asyncqn", HOUSES),
            ("asyncqn_recommender", ("asyncqn_paper",)),
        )
        for path in sorted((SOURCE / package).rglob("*.py"))
        for line, module, _ in imports(path)
        if module.partition(".")[0] in forbidden
    ]
    assert wrong == []


def test_importing_asyncqn_loads_no_house() -> None:
    modules = "asyncqn, asyncqn.core, asyncqn.models, asyncqn.cli.main"
    code = f"import sys, {modules}; print(*(name for name in {HOUSES!r} if name in sys.modules))"
    done = python("-c", code)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


def test_entry_points_name_what_exists() -> None:
    for group in ("asyncqn.problems", "asyncqn.algorithms", "asyncqn.tables"):
        assert entry_points(group=group), "is the distribution installed again?"
        for entry in entry_points(group=group):
            assert callable(entry.load()), entry
    for entry in entry_points(group="asyncqn.commands"):
        importlib.import_module(entry.value)


def test_a_saved_run_names_a_factorization_by_the_word_it_always_had(
    tmp_path: Path,
) -> None:
    """Runs of version 0.2 name it so, and are read where the house is installed."""
    rows = [f"{u},{i},{(u * i) % 5 + 1}" for u in range(12) for i in range(9)]
    (tmp_path / "ratings.csv").write_text("user,item,rating\n" + "\n".join(rows) + "\n")
    problem = PROBLEMS["matrix-factorization"].from_stored(
        str(tmp_path / "ratings.csv"), rank=2
    )
    engine = aq.Simulator(aq.Cluster(workers=2))
    run = aq.minimize(problem, aq.AsyncSGD(h=1e-4, batch=4), engine=engine, commits=5)
    folder = run.save(tmp_path / "run")
    reference = json.loads((folder / "run.json").read_text())["manifest"]["problem"][
        "reference"
    ]
    assert reference["kind"] == "matrix-factorization"
    assert aq.replay(folder).theta.tobytes() == run.theta.tobytes()


def test_the_program_has_at_most_fourteen_commands_at_its_first_level() -> None:
    names = list(command_modules())
    assert len(names) <= 14, names
    assert {"recommender", "reproduce"} <= set(names), (
        "is the distribution installed again?"
    )


@pytest.mark.parametrize(
    "kind", [entry.name for entry in entry_points(group="asyncqn.problems")]
)
def test_problems_of_a_house_are_trusted_as_those_of_asyncqn(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No read-only views, which numba would compile again for, and no comparison before a run."""
    problem = PROBLEMS[kind].example("float64")
    assert read_only(problem) is problem
    assert is_ours(type(problem))
    monkeypatch.setattr(
        first_calls, "compare_functions", lambda *_: pytest.fail("compared")
    )
    first_calls.check_first_calls(problem, aq.starting_point(problem))
