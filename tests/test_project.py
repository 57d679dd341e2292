"""Promises of the project itself: pinned versions, clean text, rooms that look downward, a light import."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import python
from test_houses import imports

import asyncqn as aq
from asyncqn.types import ALGORITHM_EXTRAS, PROBLEM_EXTRAS

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "asyncqn"
GENERATED = {"__pycache__", "results.json"}
# At the root only what we write ourselves: a log or a notebook of the user is none of our business.
AT_ROOT = ("*.md", "*.toml", "constraints.txt", "Makefile", "LICENSE", ".gitignore")

OF_THE_PACKAGE = {"__version__", "lazy_names"}
"""Names that the package itself defines."""


def rooms_of_the_design() -> dict[str, int]:
    """The rank of every room, by the table in DESIGN.md; the package's own names have the lowest."""
    text = (ROOT / "DESIGN.md").read_text(encoding="utf-8")
    table = text.split("<!-- rooms -->")[1].split("<!-- /rooms -->")[0]
    rows = [line.split("|") for line in table.splitlines() if re.match(r"\| \d", line)]
    ranks = {
        room: int(row[1]) for row in rows for room in re.findall(r"`([\w.]+)`", row[2])
    }
    return ranks | dict.fromkeys(OF_THE_PACKAGE, 0)


# A room may import itself, the rooms of lower rank, and those of its own rank.
RANK = rooms_of_the_design()

# Beyond the ranks: what a module must not know although it stands lower.
FORBIDDEN = {
    "kernels": {"errors", "types"},
    "core": {"types", "storage", "registry"},
    "cluster": {"models", "algorithms"},
    "algorithms": {"models"},
    "models": {"algorithms"},
}

# Not scipy: numba itself imports it wherever it is installed.
HEAVY = (
    "mpi4py",
    "ray",
    "torch",
    "jax",
    "optuna",
    "matplotlib",
    "pyarrow",
    "pandas",
    "sklearn",
)


def texts() -> Iterator[tuple[Path, str]]:
    """Every text file of the project, generated ones left out."""
    folders = [
        ROOT / name
        for name in ("src", "tests", "benchmarks", "docs", "examples", ".ci")
    ]
    at_root = [path for pattern in AT_ROOT for path in sorted(ROOT.glob(pattern))]
    inside = [path for folder in folders for path in sorted(folder.rglob("*"))]
    for path in [*at_root, *inside]:
        parts = path.relative_to(ROOT).parts
        if (
            not path.is_file()
            or GENERATED & set(parts)
            or any(p.endswith(".egg-info") for p in parts)
        ):
            continue
        try:
            yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # pictures and the like


def lines_matching(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def module_name(path: Path) -> str:
    """`engines.simulator` for src/asyncqn/engines/simulator.py, `engines` for its __init__."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def imports_of_ours(path: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of each import of asyncqn at run time, without the name of the package."""
    for line, module, name in imports(path, typing=False):
        target = module if name is None else f"{module}.{name}"
        if target == "asyncqn" or target.startswith("asyncqn."):
            yield line, target.removeprefix("asyncqn").removeprefix(".")


def rank(name: str) -> int:
    """The rank of a module's room; the package as a whole has that of `minimize`."""
    room = name.partition(".")[0]
    return RANK[room] if room in RANK else RANK["minimize"]


def covers(module: str, inside: str) -> bool:
    return inside == module or inside.startswith(module + ".")


def test_constraints_are_names_and_exact_versions_only() -> None:
    pinned = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.!]*")
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert lines
    assert [line for line in lines if not pinned.fullmatch(line)] == []
    assert not any(line.lower().startswith("nvidia") for line in lines), (
        "torch comes for processors alone"
    )


def test_no_file_names_a_package_registry_or_a_home_folder() -> None:
    # Put together from halves, so that this file does not match itself.
    halves = [
        ("files.python", "hosted"),
        ("--index", "-url"),
        ("--extra-index", "-url"),
        ("/sim", "ple/"),
        ("find", "-links"),
        ("trusted", "-host"),
        ("file:/", "//"),
        ("/ho", "me/"),
        ("/Us", "ers/"),
        ("/ro", "ot/"),
    ]
    pattern = re.compile("|".join(re.escape(left + right) for left, right in halves))
    assert lines_matching(pattern) == []


def test_rooms_look_only_downward() -> None:
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = module_name(path)
        for line, target in imports_of_ours(path):
            higher = rank(target) > rank(name)
            barred = any(
                covers(module, name) and covers(bar, target)
                for module, bars in FORBIDDEN.items()
                for bar in bars
            )
            if higher or barred:
                wrong.append(
                    f"src/asyncqn/{path.relative_to(SOURCE)}:{line} imports asyncqn.{target}"
                )
    assert wrong == []


def test_no_room_is_over_its_budget() -> None:
    """Lines, tokens per line and habits of every room; `python .ci/budget.py` prints the table."""
    done = python(ROOT / ".ci" / "budget.py")
    over = [line for line in done.stdout.splitlines() if line.startswith("over: ")]
    assert (done.returncode, over) == (0, []), done.stderr


LONGEST_FUNCTION = 80


def test_no_function_is_longer_than_a_screen() -> None:
    """Lines of the body; a signature and a docstring do not make a function hard to follow."""
    long = []
    for path in sorted(SOURCE.parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            documented = ast.get_docstring(node, clean=False) is not None
            body = node.body[documented:]
            lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
            if lines > LONGEST_FUNCTION:
                place = f"src/{path.relative_to(SOURCE.parent)}:{node.lineno}"
                long.append(f"{place} {node.name}: {lines}")
    assert long == []


def test_every_room_has_a_rank() -> None:
    rooms = {path.stem for path in SOURCE.glob("[!.]*") if path.suffix in ("", ".py")}
    assert rooms - {"__pycache__"} <= set(RANK)
    assert set(RANK) - OF_THE_PACKAGE <= rooms


ROOMS = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_it_is_for_and_imports_only_what_it_says(room: str) -> None:
    said = ast.get_docstring(
        ast.parse((SOURCE / room / "__init__.py").read_text(encoding="utf-8"))
    )
    assert said is not None
    meaning, _, allowed = said.partition("\n\nMay import: ")
    assert meaning.endswith("."), "one sentence of meaning, then 'May import: ...'"
    used = {
        target.split(".")[0]
        for path in (SOURCE / room).rglob("*.py")
        for _, target in imports_of_ours(path)
    }
    assert allowed, "the second paragraph begins with 'May import: '"
    assert (
        sorted(used - {"", room, *OF_THE_PACKAGE} - set(re.findall(r"\w+", allowed)))
        == []
    )


def test_extras_are_asked_for_in_one_place() -> None:
    """Only `core.algorithm.extra` looks for what a problem or an algorithm may lack."""
    names = {*PROBLEM_EXTRAS, *ALGORITHM_EXTRAS} - {"dtype"}  # arrays have a dtype, too
    asked = re.compile(
        r"(?:get|has)attr\([^()]*,\s*[\"'](?:" + "|".join(sorted(names)) + r")[\"']"
    )
    wrong = [line for line in lines_matching(asked) if line.startswith("src/")]
    assert wrong == []


def test_importing_asyncqn_imports_no_optional_package() -> None:
    code = f"import sys, asyncqn; print(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = python("-c", code)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


# What the idea calls: norms and fingerprints, random rows and normals; and what compiles.
KERNELS_OF_THE_CORE = {
    "vectors",
    "random",
    "shuffling",
    "jit",
    "numba_internals",
}
MODULES_OF_THE_CORE = 25


def test_importing_the_core_loads_the_idea_and_little_else() -> None:
    code = """
import pkgutil, sys, asyncqn.core
from importlib import import_module

for module in pkgutil.iter_modules(asyncqn.core.__path__, "asyncqn.core."):
    # This one reads the logs of other systems; no run needs it.
    if module.name != "asyncqn.core.log":
        import_module(module.name)
print(*(name for name in sys.modules if name.partition(".")[0] == "asyncqn"))
"""
    done = python("-c", code)
    loaded = done.stdout.split()
    assert "asyncqn.core.execute" in loaded
    assert len(loaded) <= MODULES_OF_THE_CORE, loaded
    rooms = {name.split(".")[1] for name in loaded if "." in name}
    assert rooms <= {"core", "errors", "parameters", "kernels"}
    kernels = {
        name.split(".")[2] for name in loaded if name.startswith("asyncqn.kernels.")
    }
    assert kernels <= KERNELS_OF_THE_CORE


def test_the_readme_of_the_core_names_every_file_in_reading_order() -> None:
    core = SOURCE / "core"
    files = {path.name for path in core.glob("*.py")} - {"__init__.py"}
    readme = (core / "README.md").read_text(encoding="utf-8")
    order = "problem algorithm schedule stages part_order assignment streams master worker execute stopping outcome"
    assert re.findall(r"^\| \[(\w+)\.py\]", readme, re.M) == order.split()
    assert set(re.findall(r"\]\((\w+\.py)\)", readme)) == files


def test_from_minimize_to_the_arithmetic_it_is_the_five_hops_of_the_design() -> None:
    """The files on the way to `step` and `apply`, as the stacks of a run on threads show them."""
    design = (ROOT / "DESIGN.md").read_text(encoding="utf-8")
    rows = [
        line.split("|")
        for line in design.split("<!-- walk -->")[1].split("<!-- /walk")[0].splitlines()
    ]
    to_step, to_apply = (
        [
            file
            for row in rows
            if len(row) > 4
            for file in re.findall(r"^ `([\w/]+)\.py`", row[column])
        ]
        for column in (2, 4)
    )
    stacks: dict[str, list[str]] = {}

    def note(what: str) -> None:
        frame, files = sys._getframe(2), []
        while frame is not None:
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(SOURCE):
                files.insert(0, path.relative_to(SOURCE).with_suffix("").as_posix())
            frame = frame.f_back
        stacks[what] = list(dict.fromkeys(files))

    class Noting(aq.AsyncSGD):
        def step(self, *arguments: Any) -> Any:
            note("step")
            return super().step(*arguments)

        def apply(self, *arguments: Any) -> Any:
            note("apply")
            return super().apply(*arguments)

    problem = aq.LinearGaussian.random(dim=3, n_data=20, seed=0)
    aq.minimize(problem, Noting(h=1e-3, batch=5), engine=aq.Threads(1), commits=5)
    assert len(to_step) == 5, "and the algorithm: five hops"
    assert stacks["step"] == to_step[2:], "a thread begins with hop 2"
    assert stacks["apply"] == [*to_step[2:4], *to_apply[1:]], (
        "an update is sent by the worker's loop"
    )
    assert to_apply[0] == to_step[2]


def test_groups_of_tests_reach_the_program_that_spreads_them(
    request: pytest.FixtureRequest,
) -> None:
    # pytest 9.2 with xdist 3.8 loses them without a word: files are torn apart, two Ray clusters start.
    in_groups = getattr(request.config.option, "loadgroup", False)
    assert not in_groups or request.node.nodeid.endswith("@test_project")
