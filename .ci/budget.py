"""Measure every room of the project against its budget: size, density and habits of the code.

    python .ci/budget.py [--lower] [ROOM ...]

`.ci/budget.toml` holds what each room may have; tests/test_project.py fails when a room has more.  `--lower`
writes the present numbers where they are lower, never higher.  It adds new rooms and drops rooms that
are gone; with names of rooms it changes those alone.  The file also holds the targets, which are only shown.
"""

from __future__ import annotations

import argparse
import ast
import functools
import io
import math
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGET = ROOT / ".ci" / "budget.toml"
MOST_ARGUMENTS = 8
LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
# From Python 3.12 on an f-string is many tokens; it counts as one everywhere.
FSTRING_START = getattr(tokenize, "FSTRING_START", None)
FSTRING_END = getattr(tokenize, "FSTRING_END", None)


@dataclass
class Room:
    """Size and habits of the Python files of one room."""

    lines: int = 0
    code_lines: int = 0
    tokens: int = 0
    comments: int = 0
    parallel_assignments: int = 0
    nested_conditionals: int = 0
    long_signatures: int = 0

    @property
    def tokens_per_line(self) -> float:
        """Tokens per line of code."""
        return self.tokens / max(self.code_lines, 1)

    @property
    def comments_per_1000_tokens(self) -> float:
        """Comments per 1,000 tokens of code."""
        return 1000 * self.comments / max(self.tokens, 1)

    def budget(self) -> dict[str, float]:
        """The numbers that have a limit; tokens per line are rounded up to one decimal."""
        return {
            "lines": self.lines,
            "tokens_per_line": math.ceil(self.tokens_per_line * 10) / 10,
            "parallel_assignments": self.parallel_assignments,
            "nested_conditionals": self.nested_conditionals,
            "long_signatures": self.long_signatures,
        }

    def add(self, path: Path) -> None:
        """Count one file."""
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        self.lines += len(source.splitlines())
        self._count_tokens(source, docstring_lines(tree))
        self.parallel_assignments += sum(is_parallel(node) for node in ast.walk(tree))
        self.nested_conditionals += sum(is_nested_conditional(node) for node in ast.walk(tree))
        self.long_signatures += sum(count_arguments(node) > MOST_ARGUMENTS for node in functions(tree))

    def _count_tokens(self, source: str, docstrings: set[int]) -> None:
        lines: set[int] = set()
        open_strings = 0
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                self.comments += 1
            elif token.type not in LAYOUT and token.start[0] not in docstrings:
                self.tokens += open_strings == 0
                open_strings += (token.type == FSTRING_START) - (token.type == FSTRING_END)
                lines.update(range(token.start[0], token.end[0] + 1))
        self.code_lines += len(lines)


def docstring_lines(tree: ast.AST) -> set[int]:
    """The lines of all strings that are statements: docstrings, also those of constants."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def is_parallel(node: ast.AST) -> bool:
    """Whether a statement assigns three or more values to as many names (`a, b, c = 1, 2, 3`)."""
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Tuple)
        and any(isinstance(target, ast.Tuple) and len(target.elts) >= 3 for target in node.targets)
    )


def is_nested_conditional(node: ast.AST) -> bool:
    """Whether a conditional expression is a part of another one."""
    return isinstance(node, ast.IfExp) and any(
        isinstance(part, ast.IfExp) for part in (node.test, node.body, node.orelse)
    )


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions but `minimize` and the constructors of public classes."""
    constructors = {
        id(function)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        for function in node.body
        if isinstance(function, ast.FunctionDef) and function.name == "__init__"
    }
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if id(node) not in constructors and node.name != "minimize":
            yield node


def count_arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The number of arguments that a caller may pass, `self` and `cls` left out."""
    every = function.args
    named = [argument.arg for argument in (*every.posonlyargs, *every.args, *every.kwonlyargs)]
    return sum(name not in ("self", "cls") for name in named)


def houses() -> dict[str, list[str]]:
    """The rooms of each part of the project that has a target."""
    rooms = sorted(path.name for path in (ROOT / "src" / "asyncqn").iterdir() if any(path.glob("**/*.py")))
    return {
        "asyncqn": ["top", *rooms],
        "asyncqn_recommender": ["asyncqn_recommender"],
        "asyncqn_paper": ["asyncqn_paper"],
        "tests": ["tests"],
        "benchmarks": ["benchmarks"],
    }


def files_of(room: str) -> Iterable[Path]:
    """The Python files of a room."""
    if room == "top":
        return (ROOT / "src" / "asyncqn").glob("*.py")
    outside = {"tests": ROOT / "tests", "benchmarks": ROOT / "benchmarks"}
    packages = {name: ROOT / "src" / name for name in ("asyncqn_recommender", "asyncqn_paper")}
    folder = {**outside, **packages}.get(room, ROOT / "src" / "asyncqn" / room)
    return folder.rglob("*.py")


@functools.cache
def measure() -> dict[str, Room]:
    """Every room with its numbers."""
    rooms = {}
    for room in (room for names in houses().values() for room in names):
        rooms[room] = Room()
        for path in sorted(files_of(room)):
            rooms[room].add(path)
    return rooms


def measure_docs() -> dict[str, float]:
    """Words and megabytes of the documentation."""
    pages = [
        path for path in (ROOT / "docs").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    words = sum(len(path.read_text(encoding="utf-8").split()) for path in pages if path.suffix == ".md")
    size = sum(path.stat().st_size for path in pages)
    return {"words": words, "megabytes": math.ceil(size / 1e5) / 10}


def present() -> dict[str, dict[str, float]]:
    """What each room has now, in the terms of its budget."""
    return {**{name: room.budget() for name, room in measure().items()}, "docs": measure_docs()}


def comments_of_source(rooms: dict[str, Room]) -> float:
    """Comments per 1,000 tokens of all rooms in src."""
    source = [room for name, room in rooms.items() if name not in ("tests", "benchmarks")]
    return 1000 * sum(room.comments for room in source) / sum(room.tokens for room in source)


def read() -> dict[str, dict[str, dict[str, float]]]:
    """The targets and the budgets in the file."""
    return tomllib.loads(BUDGET.read_text(encoding="utf-8"))


def excesses() -> list[str]:
    """One sentence for each number of a room that is above its budget."""
    written = read().get("room", {})
    sentences = []
    for room, numbers in present().items():
        if room not in written:
            sentences.append(f"{room} has no budget: python .ci/budget.py --lower {room}")
            continue
        for key, number in numbers.items():
            if number > written[room][key]:
                sentences.append(f"{room}: {key} is {number}, its budget is {written[room][key]}")
    return sentences


def lower(only: list[str]) -> None:
    """Write the present numbers where they are lower than the file's, for all rooms or some."""
    before = read().get("room", {})
    after = {}
    for room, numbers in present().items():
        if only and room not in only:
            if room in before:
                after[room] = before[room]
            continue
        limits = before.get(room, numbers)
        after[room] = {key: min(number, limits.get(key, number)) for key, number in numbers.items()}
    if only:
        after |= {room: limits for room, limits in before.items() if room not in after and room not in only}
    head = BUDGET.read_text(encoding="utf-8").partition("[room.")[0]
    groups = [
        "\n".join([f"[room.{room}]", *(f"{key} = {limit}" for key, limit in after[room].items())])
        for room in sorted(after)
    ]
    BUDGET.write_text(head + "\n\n".join(groups) + "\n", encoding="utf-8")


def show() -> None:
    """Print the table of rooms, the sums that have a target, and the excesses."""
    rooms = measure()
    heads = ("lines", "tokens/line", "parallel", "nested", "> 8 args", "comments/1000")
    print(f"{'room':<20}" + "".join(f"{head:>14}" for head in heads))
    for name, room in rooms.items():
        numbers = asdict(room)
        counts = [numbers[key] for key in ("parallel_assignments", "nested_conditionals", "long_signatures")]
        print(
            f"{name:<20}{room.lines:>14,}{room.tokens_per_line:>14.1f}"
            + "".join(f"{count:>14}" for count in counts)
            + f"{room.comments_per_1000_tokens:>14.1f}"
        )
    target = read()["target"]
    print()
    sums = {house: sum(rooms[room].lines for room in names) for house, names in houses().items()}
    sums["src"] = sum(number for house, number in sums.items() if house.startswith("asyncqn"))
    for house, number in sums.items():
        print(f"{house:<20}{number:>14,} lines, target {target[house]['lines']:,}")
    for key, amount in measure_docs().items():
        print(f"{'docs':<20}{amount:>14,} {key}, target {target['docs'][key]:,}")
    floor = target["src"]["comments_per_1000_tokens"]
    print(f"{'src':<20}{comments_of_source(rooms):>14.1f} comments per 1,000 tokens, at least {floor}")
    for sentence in excesses():
        print("over:", sentence)


def main() -> int:
    """Print the table, or lower the budgets; the exit code is 1 when a room is over its budget."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help="rooms whose budget --lower rewrites")
    parser.add_argument("--lower", action="store_true", help="rewrite .ci/budget.toml where a room has less")
    arguments = parser.parse_args()
    if arguments.lower:
        lower(arguments.rooms)
    else:
        show()
    return int(bool(excesses()))


if __name__ == "__main__":
    sys.exit(main())
