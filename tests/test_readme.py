"""README.md is executed: its ```python blocks in order, and the console blocks that ask for it.

The convention (also in CONTRIBUTING.md): every ```python block runs, all in one namespace and one
empty folder; a ```console or ```bash block runs when the line before it is `<!-- run -->`, and
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

README = Path(__file__).resolve().parent.parent / "README.md"
FENCE = re.compile(
    r"^(?P<mark><!-- run -->[ \t]*\n+)?^```(?P<language>\w+)[^\n]*\n(?P<body>.*?)^```[ \t]*$", re.M | re.S
)


class Block(NamedTuple):
    language: str
    line: int
    body: str
    marked: bool


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a Markdown text that name a language; `line` is that of the body's first."""
    return [
        Block(m["language"], text.count("\n", 0, m.start("body")) + 1, m["body"], m["mark"] is not None)
        for m in FENCE.finditer(text)
    ]


def commands(block: Block) -> list[str]:
    """The `asyncqn` commands of a console block, continued lines joined."""
    lines = block.body.replace("\\\n", " ").splitlines()
    plain = [line.strip().removeprefix("$ ").strip() for line in lines]
    return [line for line in plain if line.split(" ", 1)[0] == "asyncqn"]


def run_python(found: list[Block], name: str) -> None:
    """Execute Python blocks in one namespace; a traceback names README.md and the right line."""
    module = types.ModuleType("readme")
    sys.modules["readme"] = module
    try:
        for block in found:
            code = compile("\n" * (block.line - 1) + block.body, name, "exec")
            exec(code, module.__dict__)
    finally:
        del sys.modules["readme"]


SAMPLE = """\
Text.
```python
a = 1
```
<!-- run -->
```console
$ asyncqn show \\
    runs/demo
made-up output
$ make test
```
```bash
asyncqn never
```
```
asyncqn no language
```
```python
b = a + 1
```
"""


def test_blocks_are_found_with_language_line_and_mark() -> None:
    found = blocks(SAMPLE)
    assert [(b.language, b.line, b.marked) for b in found] == [
        ("python", 3, False),
        ("console", 7, True),
        ("bash", 13, False),
        ("python", 19, False),
    ]
    assert [shlex.split(c) for c in commands(found[1])] == [["asyncqn", "show", "runs/demo"]]


def test_blocks_share_a_namespace_and_an_error_names_its_line() -> None:
    python = [b for b in blocks(SAMPLE) if b.language == "python"]
    run_python(python, "sample")
    with pytest.raises(ZeroDivisionError) as caught:
        run_python([*python, Block("python", 40, "c = 0\nb / c\n", False)], "sample")
    assert caught.traceback[-1].lineno + 1 == 41


@pytest.mark.timeout(300)
def test_every_python_block_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_python([b for b in blocks(README.read_text(encoding="utf-8")) if b.language == "python"], str(README))


@pytest.mark.timeout(300)
def test_every_marked_command_of_the_readme_succeeds(tmp_path: Path) -> None:
    found = [b for b in blocks(README.read_text(encoding="utf-8")) if b.language in ("console", "bash")]
    for command in (c for block in found if block.marked for c in commands(block)):
        program = Path(sys.executable).parent / "asyncqn"
        arguments = shlex.split(command, comments=True)[1:]
        done = subprocess.run(
            [program, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=280
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
