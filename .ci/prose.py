"""Check the prose of README, documentation and docstrings; `make lint` runs it.

    python .ci/prose.py [FILE ...] [--accept]

Two sets of rules apply: those of proselint (cliches, redundancy, misspellings, ...), and our own, below, against
habits that make a reader stop.  A file may have as many offences against a rule as `.ci/prose-accepted.json` says,
which lists files that were written before the rules; every other offence fails.  `--accept` lowers these counts to
what is found, and raises none of them: new offences have to be rewritten.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ACCEPTED = ROOT / ".ci" / "prose-accepted.json"
PAGES = ("*.md", "src/**/*.md", "docs/**/*.md")
SOURCES = ("src/**/*.py",)
MAX_WORDS = 45
"""A longer sentence is split."""

# Checks of proselint that misjudge technical text: plain quotes and dots, "very", terms of the field, "p = 0", names
# such as "noncentered" beside British spelling, and formulas such as "h H g", which it takes for repeated words (our
# rule "repeated" looks for words alone).
OFF = (
    "typography",
    "weasel_words",
    "industrial_language",
    "annotations",
    "skunked_terms",
    "psychology",
    "spelling.consistency",
    "lexical_illusions",
)


class Rule(NamedTuple):
    name: str
    pattern: str
    advice: str


RULES = [
    Rule("speed-up", r"\btimes (?:as soon|sooner|earlier)\b|\bsooner than\b", "say speed-up, or faster"),
    Rule("polling", r"\b(?:between|from) (?:two|one) looks?\b", "say polling interval"),
    Rule("problem", r"\bpotentials?\b(?! energ)", "say problem"),
    Rule("update", r"\b(?:late|stale|fresh|old|older|each|every|newest) answers?\b", "a worker sends an update"),
    Rule("continue", r"\b(?:go|goes|going|went|gone) on\b(?! (?:to|the|a)\b)", "say continue"),
    Rule("receive", r"\b(?:is|are|be|was|were) (?:told|handed)\b", "say receives, or name the one who says it"),
    Rule("bits", r"\bto the bit\b", "say bit for bit"),
    Rule("count", r"\b(?:so|as) many (?:of|as are|times as)\b|\bby so many\b", "name the number"),
    Rule("stands", r"\bstands? so\b|\bthat is so\b|\bbegins? so\b|\bends? so\b", "say what is meant by 'so'"),
    Rule("fragment", r"(?<=[.!?] )(?:Nowhere|Nothing|Never|Nobody|None|Likewise|Both|Neither)\.", "write a sentence"),
    Rule("one's own", r"\bits (?:\w+ )?is its own\b|\bof one's own\b", "say private, separate or custom"),
    Rule("its like", r"\b(?:its|and the|and their) like\b", "list them, or say similar"),
    Rule("repeated", r"\b(?!code\b)([a-z]{2,}) \1\b", "delete one of them"),
    Rule("whoever", r"\b[Ww]hoever\b|\b[Ww]hosoever\b", "name the person, process or worker"),
]
SUMMARY = Rule(
    "summary",
    r"^(?:How|What|Where|Who|Whose|When|Whether|Why|Which)\b[^?]*\.?$",
    "begin with a verb or a noun: 'Return ...', 'Path of ...'",
)
LONG = "long sentence"


class Offence(NamedTuple):
    file: str
    line: int
    rule: str
    text: str


def blank(match: re.Match[str]) -> str:
    """Spaces in place of a match, so that lines keep their numbers."""
    return re.sub(r"[^\n]", " ", match[0])


def prose_of_markdown(text: str) -> str:
    """A page without code, comments, formulas and the targets of its links."""
    text = re.sub(r"^```.*?^```[ \t]*$", blank, text, flags=re.M | re.S)
    text = re.sub(r"<!--.*?-->", blank, text, flags=re.S)
    text = re.sub(r"^(?: {4,}|\t).*$", blank, text, flags=re.M)
    text = re.sub(r"`[^`\n]*`", lambda m: "code" + " " * (len(m[0]) - 4) if len(m[0]) > 3 else "x  "[: len(m[0])], text)
    return re.sub(r"(?<=\])\([^)\s]*\)", blank, text)


def prose_of_docstring(text: str) -> str:
    """A docstring without examples, underlines and the lines that name a parameter and its type."""
    text = re.sub(r"^[ \t]*>>> .*?(?=^[ \t]*$|\Z)", blank, text, flags=re.M | re.S)
    text = re.sub(r"^[ \t]*(?:-{3,}|={3,})[ \t]*$", blank, text, flags=re.M)
    text = re.sub(r"^[ \t]*\*{0,2}\w+(?:, \w+)* : .*$", blank, text, flags=re.M)
    return re.sub(r"`[^`\n]*`", lambda m: "code" + " " * max(0, len(m[0]) - 4), text)


def docstrings(source: str) -> dict[int, str]:
    """The prose of a module's docstrings, by the line where each begins."""
    found = {}
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            found[first.lineno] = prose_of_docstring(first.value.value)
    return found


def prose_of(path: Path) -> tuple[str, dict[int, str]]:
    """The prose of a file, every line in its place, and the summary lines of its docstrings."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return prose_of_markdown(source), {}
    lines = [""] * (source.count("\n") + 2)
    parts = docstrings(source)
    for first, text in parts.items():
        for offset, line in enumerate(text.splitlines()):
            lines[first - 1 + offset] = line
    return "\n".join(lines), {n: text.strip().partition("\n")[0].strip() for n, text in parts.items()}


def sentences(prose: str) -> Iterator[tuple[int, str]]:
    """(line offset, sentence): paragraphs and list items, joined over lines; tables are left out."""
    start, parts = 0, []
    for number, line in enumerate([*prose.splitlines(), ""]):
        bare = line.strip()
        ends = not bare or bare.startswith(("|", "#", "- ", "* ", ">", "!")) or re.match(r"\d+\. ", bare)
        if ends and parts:
            for sentence in re.split(r"(?<=[.!?])\s+|(?<=:)\s+(?=[A-Z])", " ".join(parts)):
                yield start, sentence
            parts = []
        if not bare or bare.startswith(("|", "#", "!")):
            continue
        if not parts:
            start = number
        parts.append(bare)


def proselint_offences(prose: str) -> Iterator[tuple[int, str, str]]:
    """(line, rule, message) of proselint's own checks."""
    from proselint.config import DEFAULT
    from proselint.tools import LintFile

    for result in LintFile(source="text", content=prose).lint(DEFAULT):
        rule, message = result.check_result.check_path, result.check_result.message
        if not rule.startswith(OFF):
            yield result.pos[0], f"proselint {rule}", message


def offences(path: Path) -> list[Offence]:
    """Everything that the rules find in a file."""
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    prose, summaries = prose_of(path)
    found = []
    for rule in RULES:
        for match in re.finditer(rule.pattern, prose, re.I if rule.name != "repeated" else 0):
            line = 1 + prose.count("\n", 0, match.start())
            found.append(Offence(name, line, rule.name, f"{match[0]!r}: {rule.advice}"))
    for line, summary in summaries.items():
        if re.match(SUMMARY.pattern, summary):
            found.append(Offence(name, line, SUMMARY.name, f"{summary!r}: {SUMMARY.advice}"))
    for offset, sentence in sentences(prose):
        if (words := len(re.findall(r"[A-Za-z]{2,}", sentence))) > MAX_WORDS:
            found.append(Offence(name, 1 + offset, LONG, f"{words} words: {sentence[:60]}..."))
    found += [Offence(name, *rest) for rest in proselint_offences(prose)]
    return found


def new(found: list[Offence], accepted: dict[str, dict[str, int]]) -> list[Offence]:
    """The offences of every (file, rule) that has more of them than were accepted."""
    counts = Counter((offence.file, offence.rule) for offence in found)
    return [o for o in found if counts[o.file, o.rule] > accepted.get(o.file, {}).get(o.rule, 0)]


def lowered(found: list[Offence], accepted: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """The accepted counts, none larger than what is found now."""
    counts = Counter((offence.file, offence.rule) for offence in found)
    kept = {f: {r: min(n, counts[f, r]) for r, n in rules.items() if counts[f, r]} for f, rules in accepted.items()}
    return {file: rules for file, rules in sorted(kept.items()) if rules}


def main() -> int:
    """Print new offences; the exit code is 1 if there are any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--accept", action="store_true", help="lower the accepted counts to what is found")
    given = parser.parse_args()
    register()
    files = given.files or [p for pattern in (*PAGES, *SOURCES) for p in sorted(ROOT.glob(pattern))]
    found = [o for p in files for o in offences(p.resolve())]
    accepted = json.loads(ACCEPTED.read_text("utf-8")) if ACCEPTED.exists() else {}
    if given.accept:
        ACCEPTED.write_text(json.dumps(lowered(found, accepted), indent=1, ensure_ascii=False) + "\n", "utf-8")
    wrong = new(found, accepted)
    for offence in wrong:
        print(f"{offence.file}:{offence.line}: {offence.rule}: {offence.text}")
    print(f"{len(files)} files, {len(found) - len(wrong)} accepted offences, {len(wrong)} new ones")
    return 1 if wrong else 0


def register() -> None:
    """Load proselint's checks, once for the process."""
    from proselint.checks import __register__
    from proselint.registry import CheckRegistry

    CheckRegistry().register_many(__register__)


if __name__ == "__main__":
    sys.exit(main())
