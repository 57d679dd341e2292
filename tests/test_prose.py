"""The prose check of `make lint` finds what its rules name, and nothing in code or formulas."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def prose() -> Any:
    spec = importlib.util.spec_from_file_location("prose", ROOT / ".ci" / "prose.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.register()
    return module


def rules_broken(prose: Any, path: Path, text: str) -> set[str]:
    path.write_text(text, encoding="utf-8")
    return {offence.rule for offence in prose.offences(path)}


HABITS = [
    ("speed-up", "It is four times sooner.", "Its speed-up is four."),
    (
        "polling",
        "Seconds between two looks at the file.",
        "The polling interval of the file, in seconds.",
    ),
    ("problem", "The potential has a gradient.", "The problem has a gradient."),
    ("update", "Each answer is a commit.", "Each update is a commit."),
    ("continue", "The run goes on without it.", "The run continues without it."),
    ("receive", "The worker is told the version.", "The worker receives the version."),
    ("bits", "It replays to the bit.", "It replays bit for bit."),
    ("count", "It takes so many of them.", "It takes three of them."),
    ("stands", "How a run ends that stands so.", "The outcome of a run."),
    ("fragment", "Where is the code? Nowhere.", "There is no code."),
    ("one's own", "Its number is its own.", "It has a separate number."),
    (
        "its like",
        "Use LogisticRegression or its like.",
        "Use LogisticRegression or a similar class.",
    ),
    ("whoever", "Whoever writes the file.", "A process that writes the file."),
    ("repeated", "It is the the last.", "It is the last."),
    (
        "long sentence",
        "It is one word " + "and one more " * 20 + "in all.",
        "It is short.",
    ),
    (
        "proselint redundancy.misc.after_the_deadline",
        "The others follow after it.",
        "The others follow it.",
    ),
]


@pytest.mark.parametrize(
    ("rule", "wrong", "right"), HABITS, ids=[habit[0] for habit in HABITS]
)
def test_a_habit_is_found_on_a_page_and_in_a_docstring_and_its_rewrite_passes(
    prose: Any, tmp_path: Path, rule: str, wrong: str, right: str
) -> None:
    assert rule in rules_broken(prose, tmp_path / "page.md", f"# Title\n\n{wrong}\n")
    assert rule in rules_broken(
        prose, tmp_path / "module.py", f'"""Title.\n\n{wrong}\n"""\n'
    )
    assert rules_broken(prose, tmp_path / "page.md", f"# Title\n\n{right}\n") == set()


def test_a_summary_line_is_no_subordinate_clause(prose: Any, tmp_path: Path) -> None:
    page = tmp_path / "module.py"
    assert rules_broken(prose, page, 'def f():\n    """How a run ends."""\n') == {
        "summary"
    }
    assert (
        rules_broken(prose, page, 'def f():\n    """Return the outcome."""\n') == set()
    )


def test_code_links_and_examples_are_not_prose(prose: Any, tmp_path: Path) -> None:
    page = "# A\n\n`it goes on`\n\n    h H H g goes on\n\n```text\nit goes on\n```\n\n[word](it-goes-on.md)\n"
    assert rules_broken(prose, tmp_path / "page.md", page) == set()
    module = '"""Title.\n\n>>> "it goes on"\n\'it goes on\'\n"""\nx = "it goes on"\n'
    assert rules_broken(prose, tmp_path / "module.py", module) == set()


def test_an_offence_beyond_the_accepted_number_is_new_and_accepting_raises_no_number(
    prose: Any, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text("It goes on.\n\nThey go on.\n", encoding="utf-8")
    found = prose.offences(page)
    assert [offence.line for offence in found] == [1, 3]
    assert prose.new(found, {"page.md": {"continue": 2}}) == []
    assert prose.new(found, {"page.md": {"continue": 1}}) == found
    assert prose.lowered(found, {"page.md": {"continue": 1}}) == {
        "page.md": {"continue": 1}
    }
    assert prose.lowered(found, {"page.md": {"continue": 3, "bits": 1}}) == {
        "page.md": {"continue": 2}
    }
    assert prose.lowered(found, {}) == {}
