"""report.html of a reproduction: one file that opens offline, on a phone too."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from asyncqn.storage import write_whole
from asyncqn_paper.judgement import COLOURS, Row, counts, judged
from asyncqn_paper.page import GLOSSARY, MEANINGS, provenance
from asyncqn_paper.records import read_table
from asyncqn_paper.reproduce import Result

_STYLE = """
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 1.5rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.2rem; }
img { max-width: 100%; height: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 0.92rem; width: 100%; }
td, th { border-bottom: 1px solid #ddd; padding: 0.4rem 0.5rem; text-align: left; vertical-align: top;
  overflow-wrap: anywhere; }
.badge { color: #fff; border-radius: 0.3rem; padding: 0.1rem 0.45rem; font-weight: 600; display: inline-block;
  font-size: 0.88rem; }
code { background: #f2f2f2; padding: 0 0.2rem; overflow-wrap: anywhere; }
figure { margin: 1rem 0; } footer, .about { color: #555; font-size: 0.9rem; } .code td { font-size: 0.75rem; }
.must { border-left: 4px solid #1b4f8a; padding: 0.1rem 1rem; background: #f4f7fb; }
details { margin: 0.4rem 0; } summary { cursor: pointer; }
@media (max-width: 40rem) {
  table.claims, .claims tbody, .claims tr, .claims td, table.settings, .settings tbody, .settings tr,
  .settings td { display: block; width: 100%; }
  .claims th, .settings th { display: none; }
  .claims tr, .settings tr { border: 1px solid #ddd; border-radius: 0.4rem; margin: 0.7rem 0; }
  .claims td, .settings td { border: 0; padding: 0.2rem 0.4rem; }
}
"""


def write_html(results: list[Result], path: Path) -> None:
    """Claims first, then the figures, everything inside one file."""
    rows = judged(results)
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>asyncqn: the paper's claims, judged</title><style>{_STYLE}</style></head><body>",
        "<h1>The paper's claims, judged</h1>",
        *_headline(results),
        f"<h2>Claims</h2><p>{html.escape(counts(rows))}</p>",
        _words("What the verdicts mean", MEANINGS),
        _words("Words", GLOSSARY),
        _claims([row for row in rows if not row.claim.own]),
    ]
    own = [row for row in rows if row.claim.own]
    parts += ["<p>Checks of our own:</p>", _claims(own)] if own else []
    for result in results:
        parts += _section(result)
    parts += ["<h2>The settings behind every verdict</h2>", *map(_settings, rows), "</body></html>"]
    write_whole(path, "\n".join(parts))


def _headline(results: list[Result]) -> list[str]:
    points = [html.escape(point) for result in results for point in result.headline]
    if not points:
        return []
    bold = [re.sub(r"[*]{2}(.+?)[*]{2}", r"<strong>\1</strong>", point) for point in points]
    words = "".join(f"<li>{point}</li>" for point in bold)
    title = "What must be true for the paper's order to appear"
    return [f"<div class='must'><h2>{title}</h2><ul>{words}</ul></div>"]


def _words(title: str, meanings: Mapping[str, str]) -> str:
    items = "".join(
        f"<li><strong>{html.escape(name)}</strong>: {html.escape(meaning.replace('`', ''))}.</li>"
        for name, meaning in meanings.items()
    )
    return f"<details><summary>{title}</summary><ul>{items}</ul></details>"


def _claims(rows: list[Row]) -> str:
    cells = [
        (
            html.escape(row.claim.text),
            html.escape(row.claim.where),
            _badge(row),
            f"{html.escape(row.verdict.because)} <a href='#{html.escape(row.claim.id)}'>settings</a>",
        )
        for row in rows
    ]
    return _table(("claim", "in", "verdict", "why"), cells, "claims")


def _badge(row: Row) -> str:
    return (
        f"<span class='badge' style='background:{COLOURS[row.verdict.word]}'>{html.escape(row.words)}</span>"
    )


def _settings(row: Row) -> str:
    axes = html.escape(", ".join(row.claim.open) or "nothing")
    told = [(found.setting, found.verdict, found.because) for found in row.outcomes]
    cells = [(html.escape(a), f"<b>{html.escape(b)}</b>", html.escape(c)) for a, b, c in told]
    return (
        f"<details><summary>{html.escape(row.claim.text)} {_badge(row)}</summary>"
        f"<p class='about' id='{html.escape(row.claim.id)}'>Open: {axes}.</p>"
        f"{_table(('setting', 'outcome', 'because'), cells, 'settings')}</details>"
    )


def _table(head: Sequence[str], rows: Iterable[Iterable[str]], kind: str) -> str:
    """A table of cells that are escaped already."""
    title = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    cells = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table class='{kind}'><tr>{title}</tr>{cells}</table>"


def _section(result: Result) -> list[str]:
    parts = [f"<h2>{html.escape(result.name)}: {html.escape(result.title)}</h2>"]
    parts.append(f"<p class='about'>{html.escape(result.about)}</p>")
    for figure in result.figures:
        picture = base64.b64encode((result.folder / f"{figure}.png").read_bytes()).decode()
        source = f"data:image/png;base64,{picture}"
        parts.append(f"<figure><img alt='{html.escape(result.title)}' src='{source}'></figure>")
    stem = result.folder / "parameters"
    if stem.with_suffix(".parquet").is_file():
        used = read_table(stem)
        cells = [[html.escape(str(row.get(name))) for name in used[0]] for row in used]
        summary = "<summary>Parameters used, and how they were found</summary>"
        parts.append(f"<details>{summary}{_table(list(used[0]), cells, 'code')}</details>")
    parts.append(f"<footer>{provenance(result, '<code>', '</code>')}</footer>")
    return parts
