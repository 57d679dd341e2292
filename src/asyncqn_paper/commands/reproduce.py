"""`asyncqn reproduce NAME...`: the paper's experiments, from specification to report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asyncqn.cli import Output

if TYPE_CHECKING:
    from asyncqn_paper.reproduce import Result


def reproduce(
    names: Annotated[
        list[str], typer.Argument(help="fig1 ... fig5, order, map, remarks, theory, tempering; all.")
    ],
    out: Output,
    full: Annotated[bool, typer.Option("--full/--quick", help="The paper's size, or a small one.")] = False,
    output: Annotated[Path, typer.Option(help="Where tables, figures and report go.")] = Path("reproduced"),
    docs: Annotated[Path | None, typer.Option(help="Also publish tables and pages into this folder.")] = None,
    tuned: Annotated[Path | None, typer.Option(help="Folder of tuned parameters.")] = None,
    processes: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    bands: Annotated[
        str, typer.Option(metavar="WHICH", help="Shades of figures: percentiles (10 to 90) or sigma (3).")
    ] = "percentiles",
    seed: Annotated[int, typer.Option(min=0, help="First seed of the repetitions.")] = 0,
) -> None:
    """Reproduce experiments of the paper; finished parts are not run again, interrupted ones go on."""
    from asyncqn.errors import require
    from asyncqn_paper.catalogue import MODULES, find
    from asyncqn_paper.drawing import BANDS
    from asyncqn_paper.experiment import Context
    from asyncqn_paper.judgement import judged
    from asyncqn_paper.report import write_html
    from asyncqn_paper.reproduce import folder_of, load_results, run_experiment

    require(bands in BANDS, f"--bands must be {' or '.join(BANDS)}, not {bands!r}.")
    context = Context(output, full, processes, seed, out.progress, tuned)
    size = "--full" if full else "--quick"
    results = []
    wanted = find(names)
    minutes = [experiment.minutes[1 if full else 0] for experiment in wanted]
    if len(wanted) > 1:
        each = ", ".join(f"{one.name} {time:g}" for one, time in zip(wanted, minutes, strict=True))
        out.say(f"{len(wanted)} experiments; about {sum(minutes):.0f} min on two processors in all: {each}")
    for experiment, expected in zip(wanted, minutes, strict=True):
        out.say(f"{experiment.name}: {experiment.title}; about {expected:g} min on two processors")
        command = f"asyncqn reproduce {experiment.name} {size} --seed {seed}"
        folder = folder_of(output, experiment.name, full)
        results.append(run_experiment(experiment, replace(context, folder=folder, spent=[]), command, bands))
    for row in judged(results):
        if row.outcomes:
            out.show(f"  {row.words}: {row.claim.text} ({len(row.outcomes)} settings)")
    finished = load_results(output, list(MODULES))
    write_html(finished, output / "report.html")
    kept = [r.name for r in finished if r.manifest["size"] == "full"]
    if kept and not full:
        out.say(f"the report shows {', '.join(kept)} in full, from an earlier run")
    if docs is not None:
        _write_docs(results, docs, output / "docs")
    out.show(f"the report is {output / 'report.html'}")
    out.result(
        {
            "report": str(output / "report.html"),
            "experiments": {r.name: [found._asdict() for found in r.outcomes] for r in results},
            "claims": {
                row.claim.id: {**row.verdict._asdict(), "claim": row.claim.text}
                for row in judged(results)
                if row.outcomes
            },
        }
    )


def _write_docs(results: list[Result], docs: Path, scratch: Path) -> None:
    """Publish the tables of these results; write the pages from all that are published."""
    from asyncqn_paper.catalogue import MODULES, find
    from asyncqn_paper.page import write_page
    from asyncqn_paper.reproduce import publish, published
    from asyncqn_paper.theory_page import write_theory

    for result in results:
        if result.name in MODULES:
            publish(result, docs / "tables")
    everything = published(find(["all"]), docs / "tables", scratch)
    write_page(everything, docs / "reproduction.md")
    for result in everything:
        if result.name == "theory":
            write_theory(result, docs / "theory.md")
