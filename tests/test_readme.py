"""README.md and the pages below docs/ are executed: ```python blocks, and console blocks that ask for it.

The convention (also in CONTRIBUTING.md): every ```python block runs, those of a page in one namespace and
one empty folder; a ```console or ```bash block runs when the line before it is `<!-- run -->`, and
then each of its `asyncqn ...` lines (with or without a leading `$ `) must exit with 0.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import types
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import python

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PAGES = {
    page.relative_to(ROOT).as_posix(): page
    for page in [README, *sorted((ROOT / "docs").rglob("*.md"))]
}
FENCE = re.compile(
    r"^(?P<mark><!-- run -->[ \t]*\n+)?^```(?P<language>\w+)[^\n]*\n(?P<body>.*?)^```[ \t]*$",
    re.M | re.S,
)


class Block(NamedTuple):
    language: str
    line: int
    body: str
    marked: bool


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a Markdown text that name a language; `line` is that of the body's first."""
    return [
        Block(
            m["language"],
            text.count("\n", 0, m.start("body")) + 1,
            m["body"],
            m["mark"] is not None,
        )
        for m in FENCE.finditer(text)
    ]


def commands(block: Block) -> list[str]:
    """The `asyncqn` commands of a console block, continued lines joined."""
    lines = block.body.replace("\\\n", " ").splitlines()
    plain = [line.strip().removeprefix("$ ").strip() for line in lines]
    return [line for line in plain if line.split(" ", 1)[0] == "asyncqn"]


def run_python(found: list[Block], name: str) -> None:
    """Execute Python blocks in one namespace; a traceback names the page and the right line."""
    module = types.ModuleType("readme")
    sys.modules["readme"] = module
    try:
        for block in found:
            code = compile("\n" * (block.line - 1) + block.body, name, "exec")
            exec(code, module.__dict__)
    finally:
        del sys.modules["readme"]


def of(page: Path, *languages: str) -> list[Block]:
    """The blocks of a page in one of these languages."""
    return [
        block
        for block in blocks(page.read_text(encoding="utf-8"))
        if block.language in languages
    ]


WITH_PYTHON = [name for name, page in PAGES.items() if of(page, "python")]
WITH_COMMANDS = [
    name
    for name, page in PAGES.items()
    if any(b.marked for b in of(page, "console", "bash"))
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", WITH_PYTHON)
def test_every_python_block_of_a_page_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_python(of(PAGES[name], "python"), str(PAGES[name]))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_every_marked_command_of_a_page_succeeds(name: str, tmp_path: Path) -> None:
    marked = [block for block in of(PAGES[name], "console", "bash") if block.marked]
    for command in (c for block in marked for c in commands(block)):
        program = Path(sys.executable).parent / "asyncqn"
        arguments = shlex.split(command, comments=True)[1:]
        done = subprocess.run(
            [program, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def test_the_readme_and_every_guide_that_shows_code_is_executed() -> None:
    guides = {name for name in PAGES if name.startswith("docs/guide/")}
    shows = {
        name
        for name in guides
        if "import asyncqn" in PAGES[name].read_text(encoding="utf-8")
    }
    assert {"README.md", *shows} <= set(WITH_PYTHON)


def test_the_first_example_needs_what_its_line_installs_and_the_answer_is_short(
    tmp_path: Path,
) -> None:
    text = README.read_text(encoding="utf-8")
    first = of(README, "python")[0]
    before = text[: text.index(first.body)]
    assert "`pip install .`" in before, "no extra"
    extras = ("pandas", "polars", "matplotlib", "pyarrow", "sklearn", "scipy", "torch")
    blocked = f"import sys; sys.modules.update(dict.fromkeys({extras}))\n"
    done = python("-c", blocked + first.body, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True")
    screen = text[: text.index("\n## ")]
    assert len(screen.split()) <= 400
    for word in ("Is it for me?", "When not?", "[all]", "CPU wheel", "![", "make demo"):
        assert word in screen
