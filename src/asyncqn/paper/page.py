"""docs/results: the claims with one verdict each, the figures, and the settings behind every verdict."""

from __future__ import annotations

from pathlib import Path

from asyncqn.paper.claims import HOLDS, VERDICTS
from asyncqn.paper.judgement import COLOUR_NAMES, COLOURS, Row, counts, judged
from asyncqn.paper.page_words import GLOSSARY, HEAD, MEANINGS, SETTINGS
from asyncqn.paper.reproduce import Result
from asyncqn.storage import write_whole


def write_page(results: list[Result], path: Path) -> None:
    """`path` with the claims and figures, beside it sensitivity.md and the pictures."""
    rows = judged(results)
    write_whole(path, page(results, rows))
    write_whole(path.parent / "sensitivity.md", sensitivity(rows))
    for result in results:
        for figure in result.figures:
            name = f"{figure}.png"
            write_whole(path.parent / "figures" / name, (result.folder / name).read_bytes())
    for word, name in COLOUR_NAMES.items():
        write_whole(path.parent / "figures" / f"{name}.svg", square(COLOURS[word]))


def square(colour: str) -> str:
    """A verdict's colour as a picture: pages on a code host may not style text, and fonts may lack signs."""
    size = "width='14' height='14'"
    return f"<svg xmlns='http://www.w3.org/2000/svg' {size}><rect {size} rx='3' fill='{colour}'/></svg>\n"


def sign(word: str) -> str:
    """The square of a verdict, with its colour in words for those who do not see it."""
    return f"![{COLOUR_NAMES[word]}](figures/{COLOUR_NAMES[word]}.svg)"


def page(results: list[Result], rows: list[Row]) -> str:
    """The text of reproduction.md."""
    lines = [HEAD]
    headline = [f"- {point}" for result in results for point in result.headline]
    if headline:
        lines += ["## What must be true for the paper's order to appear", "", *headline, ""]
    lines += ["## Claims", "", counts(rows), ""]
    lines += [f"- {sign(word)} **{word}**: {MEANINGS[word]}." for word in VERDICTS]
    lines.append("")
    lines += _table([row for row in rows if not row.claim.own])
    own = [row for row in rows if row.claim.own]
    if own:
        lines += ["", "Checks of our own:", "", *_table(own)]
    lines += ["", "## Words", ""]
    lines += [f"- **{name}**: {meaning}." for name, meaning in GLOSSARY.items()]
    for result in results:
        lines += ["", f"## {result.name}: {result.title}", "", result.about, ""]
        for figure in result.figures:
            lines += [f"![{result.title}](figures/{figure}.png)", ""]
        lines += [provenance(result)]
    return "\n".join(lines) + "\n"


def _table(rows: list[Row]) -> list[str]:
    lines = ["| claim | in | verdict | why |", "|---|---|---|---|"]
    for row in rows:
        verdict = f"{sign(row.verdict.word)} **{_cell(row.words)}**"
        why = f"{_cell(row.verdict.because)} ([settings](sensitivity.md#{row.claim.id}))"
        lines.append(f"| {_cell(row.claim.text)} | {row.claim.where} | {verdict} | {why} |")
    return lines


def sensitivity(rows: list[Row]) -> str:
    """The text of sensitivity.md: one section per claim."""
    lines = [SETTINGS]
    for row in rows:
        lines += [f"## {row.claim.id}", "", f"{row.claim.text} ({row.claim.where})."]
        axes = ", ".join(row.claim.open)
        lines += ["", f"Open: {axes}." if axes else "The paper leaves nothing open.", ""]
        deciding = f" Decided by {', '.join(row.verdict.deciding)}." if row.verdict.deciding else ""
        lines += [f"{sign(row.verdict.word)} **{row.words}**.{deciding}", ""]
        lines += ["| setting | outcome | because |", "|---|---|---|"]
        for found in row.outcomes:
            word = found.verdict if found.verdict == HOLDS else f"**{found.verdict}**"
            lines.append(f"| {_cell(found.setting)} | {word} | {_cell(found.because)} |")
        lines.append("")
    return "\n".join(lines)


def provenance(result: Result, left: str = "`", right: str = "`") -> str:
    """What made the tables, for the foot of a section."""
    m = result.manifest
    versions = ", ".join(f"{name} {number}" for name, number in m["versions"].items())
    note = f" ({m['note']})" if m.get("note") else ""
    extent = f" ({m['extent']})" if m.get("extent") else ""
    took = (
        f"{m['processor_seconds']:.0f} s of processor time" if "processor_seconds" in m else "time not kept"
    )
    return (
        f"{left}{m['command']}{right}, {m['size']} size{extent}, seed {m['seed']}, {took}; code "
        f"{left}{m['code']}{right}{note}; {versions}."
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
