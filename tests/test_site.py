"""The checks of the built site in `make docs`: distance from the first page, and what the search finds."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def hooks() -> Any:
    spec = importlib.util.spec_from_file_location(
        "site_hooks", ROOT / ".ci" / "site.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Config:
    def __init__(self, site_dir: Path) -> None:
        self.site_dir = str(site_dir)


def build(site: Path, links: dict[str, list[str]], text: str) -> Config:
    """A site whose pages have these links in their text, and one entry of the search index."""
    for page, targets in links.items():
        (site / page).parent.mkdir(parents=True, exist_ok=True)
        body = "".join(f'<a href="{target}">x</a>' for target in targets)
        nav = '<nav><a href="guide/c.html">navigation</a></nav>'
        (site / page).write_text(f"{nav}<article>{body}</article>", encoding="utf-8")
    (site / "search").mkdir()
    entries = {"docs": [{"location": "guide/a.html#x", "title": "Guide", "text": text}]}
    (site / "search" / "search_index.json").write_text(
        json.dumps(entries), encoding="utf-8"
    )
    return Config(site)


WORDS = "Staleness, replayed runs, a posterior, slurm."
NEAR = {
    "index.html": ["guide/a.html"],
    "guide/a.html": ["b.html#x", "c.html"],
    "guide/b.html": [],
    "guide/c.html": [],
}
FAR = {**NEAR, "guide/a.html": ["b.html"], "guide/b.html": ["c.html"]}


def test_a_site_whose_pages_are_near_and_found_passes(
    hooks: Any, tmp_path: Path
) -> None:
    config = build(tmp_path, NEAR, WORDS)
    assert hooks.clicks_from_home(tmp_path) == {
        "index.html": 0,
        "guide/a.html": 1,
        "guide/b.html": 2,
        "guide/c.html": 2,
    }
    hooks.on_post_build(config)


def test_a_page_three_clicks_away_or_without_a_link_is_refused(
    hooks: Any, tmp_path: Path
) -> None:
    with pytest.raises(hooks.PluginError, match=r"2 clicks .*guide/c\.html"):
        hooks.on_post_build(build(tmp_path / "far", FAR, WORDS))
    with pytest.raises(hooks.PluginError, match=r"2 clicks .*guide/b\.html"):
        hooks.on_post_build(
            build(tmp_path / "alone", {**NEAR, "guide/a.html": ["c.html"]}, WORDS)
        )


@pytest.mark.parametrize("word", ["stale", "replay", "posterior", "SLURM"])
def test_a_word_that_no_guide_has_is_refused(
    hooks: Any, tmp_path: Path, word: str
) -> None:
    others = " ".join(w for w in hooks.SEARCHED if w != word)
    with pytest.raises(
        hooks.PluginError, match=f"no guide or explanation for '{word}'"
    ):
        hooks.on_post_build(build(tmp_path, NEAR, others))
