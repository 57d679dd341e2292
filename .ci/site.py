"""What `make docs` adds to docs/: the pages at the project's root, and links that lead out of docs/.

mkdocs calls these hooks; mkdocs.yml has the navigation, and mkdocstrings makes the reference of the docstrings.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
ROOT_PAGES = ("README.md", "DESIGN.md", "CONTRIBUTING.md", "CHANGELOG.md")
SHOWN = (".md", ".png", ".svg")
"""Suffixes of files below docs/ that the site has; a link to any other file becomes its words."""
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages at the project's root, in the folder project/ of the site."""
    for name in ROOT_PAGES:
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, f"project/{name}", content=with_links(text, ROOT, "../")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite the links of a page of docs/."""
    path = page.file.src_uri
    if path.startswith("project/"):
        return markdown
    return with_links(markdown, (ROOT / "docs" / path).parent, "../" * path.count("/"))


def with_links(markdown: str, folder: Path, up: str) -> str:
    """Make links to files of the repository links within the site, or words where the site lacks the file.

    `folder` is where the text stands in the repository, and `up` leads from its page to the first page of the site.
    """

    def rewritten(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        path, mark, anchor = target.partition("#")
        if "://" in target or not path:
            return match[0]
        goal = (folder / path).resolve()
        if goal.is_relative_to(ROOT / "docs") and goal.suffix in SHOWN:
            place = goal.relative_to(ROOT / "docs").as_posix()
        elif goal.parent == ROOT and goal.name in ROOT_PAGES:
            place = f"project/{goal.name}"
        else:
            return words
        return f"{picture}[{words}]({up}{place}{mark}{anchor})"

    return LINK.sub(rewritten, markdown)
