"""The page docs/results/recommender.md: the words of page.md, and the tables of docs/results/recommender.

python -m benchmarks.studies.recommender.page
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asyncqn.storage import write_whole
from benchmarks.studies.tables import RESULTS, read, write

Record = dict[str, Any]


def keep(name: str, line: Record, key: Sequence[str]) -> None:
    """Write a line to the table `name`, in place of an older one with the same `key`, and write the page."""
    table = f"recommender/{name}"
    asked = [str(line[part]) for part in key]
    others = [old for old in read(table) if [old[part] for part in key] != asked]
    write(table, sorted([*others, line], key=lambda record: [str(record[part]) for part in key]), 4)
    main()


def rows(headings: str, lines: Sequence[Sequence[Any]]) -> str:
    """Return a table in Markdown; `headings` are separated by bars."""
    head = [f"| {headings} |", "|---" * (headings.count("|") + 1) + "|"]
    return "\n".join(head + ["| " + " | ".join(str(cell) or "–" for cell in line) + " |" for line in lines])


def defaults() -> str:
    found: dict[str, list[Record]] = {}
    for record in read("recommender/measure"):
        found.setdefault(record["rank"], []).append(record)
    return rows(
        "rank | test RMSE | processor seconds of the fit | passes",
        [
            [
                rank,
                *(" / ".join(r[name] for r in of) for name in ("test_rmse", "processor_seconds", "passes")),
            ]
            for rank, of in found.items()
        ],
    )


def peers() -> str:
    found = read("recommender/peers")
    names = ("rank", "library", "rmse", "ndcg", "fit_seconds", "lists_per_second")
    present = [record for record in found if not record["missing"]]
    # The page has room for the real data; the file has all rows.
    kinds = {"MovieLens 1M": "ratings", "MovieLens 1M, clicks": "clicks"}
    there = [[kinds[r["data"]], *(r[n] for n in names)] for r in present if r["data"] in kinds]
    versions = sorted({f"{r['library'].split()[0]} {r['version']}" for r in present})
    table = rows("data | rank | library | RMSE | NDCG@10 | fit, s | lists per s", there)
    table += f"\n\nVersions: {', '.join(versions)}."
    missing = sorted({record["library"].split()[0] for record in found if record["missing"]})
    return table + (f" Not installed where this was measured: {', '.join(missing)}." if missing else "")


def clicks() -> str:
    """Return the table of clicks: our fit, the end of implicit's, and when implicit is as good as ours."""
    found: dict[tuple[str, str], list[Record]] = {}
    for record in read("recommender/clicks"):
        found.setdefault((record["rank"], record["split"]), []).append(record)
    lines = []
    for (rank, split), of in found.items():
        ours, *theirs = of
        good = [r for r in theirs if float(r["ndcg"]) >= float(ours["ndcg"])]
        first = f"{good[0]['processor_seconds']} ({good[0]['passes']})" if good else "not reached"
        cells = [f"{r['ndcg']} | {r['processor_seconds']}" for r in (ours, theirs[-1])]
        lines.append([rank, split, *cells, first])
    headings = "rank | split | ours: NDCG@10 | s | implicit: NDCG@10 | s"
    return rows(headings + " | implicit to our NDCG, s (iterations)", lines)


def workers() -> str:
    names = ("set", "rank", "passes", "one_worker", "two", "gain", "unconnected", "share")
    lines = [[record[name] for name in names] for record in read("recommender/workers")]
    return rows(
        "set | rank | passes | one worker, s | two, s | gain | unconnected loops gain | share of that", lines
    )


def memory() -> str:
    lines = [
        [record[name] for name in ("what", "set", "rank", "peak_gib", "fit_seconds")]
        for record in read("recommender/memory")
    ]
    return rows("what | set | rank | peak, GiB | fit, s", lines)


def least_squares() -> str:
    names = ("set", "what", "processor_seconds", "ratio")
    lines = [[record[name] for name in names] for record in read("recommender/least_squares")]
    return rows("set | what | ours, processor s | ratio", lines)


TABLES = {
    "least_squares": least_squares,
    "defaults": defaults,
    "peers": peers,
    "clicks": clicks,
    "workers": workers,
    "memory": memory,
}


def main() -> None:
    text = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
    for name, table in TABLES.items():
        text = text.replace(f"[[{name}]]", table())
    write_whole(RESULTS / "recommender.md", text)


if __name__ == "__main__":
    main()
