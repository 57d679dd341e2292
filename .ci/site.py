"""What `make docs` adds to docs/: every public name with its docstring, and the pages at the project's root.

mkdocs calls these hooks.  The reference is made here and not by a plugin: our docstrings are prose with tested
examples, which are shown as they are.  The navigation is made of docs/index.md, whose sections list all pages.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, InclusionLevel

ROOT = Path(__file__).resolve().parent.parent
ROOT_PAGES = {
    "README.md": "Overview",
    "DESIGN.md": "Design",
    "CONTRIBUTING.md": "Contributing",
    "CHANGELOG.md": "Changes",
}
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def on_config(config: Any) -> Any:
    """The navigation: the headings and links of docs/index.md, in their order."""
    sections: dict[str, list[Any]] = {}
    title = ""
    for line in (ROOT / "docs" / "index.md").read_text("utf-8").splitlines():
        if line.startswith("## "):
            title = line[3:].strip()
        for words, target in (
            LINK.findall(line) if title in ("Guides", "Reference", "Explanation", "Results") else ()
        ):
            page = target.partition("#")[0]
            if page.endswith(".md") and not page.startswith(".."):
                sections.setdefault(title, []).append({words[:1].upper() + words[1:]: page})
    sections.setdefault("Reference", []).insert(1, {"Public names, in full": "reference/names.md"})
    project = [{title: f"project/{name}"} for name, title in ROOT_PAGES.items()]
    config.nav = [{"Home": "index.md"}, *({k: v} for k, v in sections.items()), {"Project": project}]
    return config


def on_files(files: Any, config: Any) -> Any:
    """The generated pages."""
    for name in ROOT_PAGES:
        text = (ROOT / name).read_text("utf-8")
        files.append(File.generated(config, f"project/{name}", content=LINK.sub(_from_root, text)))
    files.append(File.generated(config, "reference/names.md", content=names_page()))
    for path in example_files():
        page = File.generated(config, f"examples/{path.stem}.md", content=example_page(path))
        page.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(page)
    return files


MAX_CLICKS = 2
SEARCHED = ("stale", "replay", "posterior", "SLURM")
"""Words that a visitor searches for, each of which must lead to a guide or an explanation."""


def on_post_build(config: Any) -> None:
    """Fail if a page is too far from the first one, or if the search does not find what visitors look for."""
    site = Path(config.site_dir)
    clicks = clicks_from_home(site)
    far = sorted(page for page in pages(site) if clicks.get(page, MAX_CLICKS + 1) > MAX_CLICKS)
    if far:
        raise PluginError(f"more than {MAX_CLICKS} clicks from the first page: {', '.join(far)}")
    for word in SEARCHED:
        if not any(page.startswith(("guide/", "explanation/")) for page in found_by_search(site, word)):
            raise PluginError(f"the search finds no guide or explanation for {word!r}")


def pages(site: Path) -> list[str]:
    """Every page of the built site, by its path; 404.html is shown for addresses that do not exist."""
    return [path.relative_to(site).as_posix() for path in site.rglob("*.html") if path.name != "404.html"]


def clicks_from_home(site: Path) -> dict[str, int]:
    """How many links lead from index.html to each page.  Links of the text count; the navigation does not."""
    clicks, queue = {"index.html": 0}, ["index.html"]
    for page in queue:
        html = (site / page).read_text("utf-8")
        text = re.search(r"<article.*?</article>", html, re.S)
        for target in re.findall(r'href="([^"#]+)', text[0] if text else html):
            path = (site / page).parent.joinpath(target).resolve()
            if "://" in target or not path.is_file() or path.suffix != ".html":
                continue
            name = path.relative_to(site.resolve()).as_posix()
            if name not in clicks:
                clicks[name] = clicks[page] + 1
                queue.append(name)
    return clicks


def found_by_search(site: Path, word: str) -> set[str]:
    """The pages whose titles or texts have a word that begins with `word`, as the search of the site looks for it."""
    entries = json.loads((site / "search" / "search_index.json").read_text("utf-8"))["docs"]
    pattern = re.compile(rf"\b{re.escape(word)}", re.I)
    return {e["location"].partition("#")[0] for e in entries if pattern.search(f"{e['title']} {e['text']}")}


def example_files() -> list[Path]:
    """The programs to start from."""
    return sorted(path for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".sh"))


def example_page(path: Path) -> str:
    """The source of a program, highlighted, under what its docstring says."""
    text, language = path.read_text("utf-8"), {".py": "python", ".sh": "bash"}[path.suffix]
    said = ast.get_docstring(ast.parse(text)) if path.suffix == ".py" else None
    summary = (said or "").split("\n\n")[0].replace("\n", " ")
    return f"# {path.name}\n\n{summary}\n\n```{language} title=\"examples/{path.name}\"\n{text}```\n"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links that leave docs/ go to the generated pages, or become words where they lead to code."""

    def follow(match: re.Match[str]) -> str:
        words, target = match.groups()
        path, hash_, anchor = target.partition("#")
        if not path.startswith("..") or "://" in target:
            return match[0]
        goal = (ROOT / "docs" / page.file.src_uri).parent.joinpath(path).resolve()
        if goal.is_relative_to(ROOT / "docs"):
            return match[0] if goal.suffix in (".md", ".png", ".svg") else words
        up = "../" * page.file.src_uri.count("/")
        if goal in example_files():
            return f"[{words}]({up}examples/{goal.stem}.md)"
        return f"[{words}]({up}project/{goal.name}{hash_}{anchor})" if goal.name in ROOT_PAGES else words

    plain = LINK.sub(follow, markdown)
    if page.file.src_uri == "reference/api.md":  # a generated page, to which no file of docs/ can link
        plain += "\n\n[Every name with its docstring](names.md)\n"
    return re.sub(r"(?<!!)\[([^\]]*)\]\([^)\s]+\.(?:csv|json)\)", r"\1", plain)


def _from_root(match: re.Match[str]) -> str:
    """A link of a page at the root, as it must be in project/."""
    words, target = match.groups()
    if "://" in target or target.startswith("#"):
        return match[0]
    if (ROOT / target) in example_files():
        return f"[{words}](../examples/{Path(target).stem}.md)"
    if target.startswith("docs/"):
        return f"[{words}](../{target.removeprefix('docs/')})"
    return match[0] if target.partition("#")[0] in ROOT_PAGES else words


def names_page() -> str:
    """Every public name: signature, docstring with its example, and the public methods of a class."""
    sys.path.insert(0, str(ROOT / "src"))
    import asyncqn
    import asyncqn_recommender

    parts = ["# Public names, in full\n\nMade of the docstrings; the examples are run by the tests.\n"]
    things = {name: getattr(asyncqn, name) for name in sorted(asyncqn.__all__, key=str.lower)}
    things |= {f"times.{name}": getattr(asyncqn.times, name) for name in asyncqn.times.__all__}
    for name in sorted(asyncqn_recommender.__all__, key=str.lower):
        if callable(thing := getattr(asyncqn_recommender, name)):
            things[f"asyncqn_recommender.{name}"] = thing
    for name, thing in things.items():
        parts.append(f"## {name}\n\n```python\n{_signature(name, thing)}\n```\n\n{_docstring(thing)}\n")
        if not inspect.isclass(thing) or issubclass(thing, Exception):
            continue
        for method, value in vars(thing).items():
            value = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            if not method.startswith("_") and inspect.isfunction(value) and value.__doc__:
                head = _signature(f"{name}.{method}", value)
                parts.append(f"### {name}.{method}\n\n```python\n{head}\n```\n\n{_docstring(value)}\n")
    return "\n".join(parts)


def _signature(name: str, thing: Any) -> str:
    try:
        text = str(inspect.signature(thing))
    except (TypeError, ValueError):
        return name
    text = re.sub(r"'([\w.\[\], |]+)'", r"\1", text)
    return f"{name}{text}" if len(text) < 90 else f"{name}{text.replace(', ', ',' + chr(10) + '    ', 99)}"


def _docstring(thing: Any) -> str:
    """The docstring as Markdown: its examples in blocks, its letters and stars as they are."""
    lines, out, inside = (inspect.getdoc(thing) or "").splitlines(), [], False
    for line in lines:
        begins = line.startswith(">>>")
        if begins and not inside:
            out += ["", "```pycon"]
            inside = True
        elif inside and not line.strip():
            out += ["```", ""]
            inside = False
        out.append(line if inside else re.sub(r"(?<!`)([*_<])(?![^`]*`)", r"\\\1", line))
    return "\n".join([*out, "```"] if inside else out)
