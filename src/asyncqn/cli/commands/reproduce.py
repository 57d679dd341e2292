"""`asyncqn reproduce NAME...`: the paper's experiments, from specification to report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from asyncqn.cli.output import Json, Output, Quiet


def register(app: typer.Typer) -> None:
    """Add the command `reproduce`."""

    @app.command()
    def reproduce(
        names: Annotated[list[str], typer.Argument(help="fig1 ... fig5, order, map, theory, or all.")],
        full: Annotated[
            bool, typer.Option("--full/--quick", help="The paper's size, or a small one.")
        ] = False,
        output: Annotated[Path, typer.Option(help="Where tables, figures and report go.")] = Path(
            "reproduced"
        ),
        docs: Annotated[
            Path | None, typer.Option(help="Also write reproduction.md and theory.md into this folder.")
        ] = None,
        tuned: Annotated[Path | None, typer.Option(help="Folder of tuned parameters.")] = None,
        processes: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
        seed: Annotated[int, typer.Option(min=0, help="First seed of the repetitions.")] = 0,
        json: Json = False,
        quiet: Quiet = False,
    ) -> None:
        """Reproduce experiments of the paper; finished parts are not run again, interrupted ones go on."""
        from asyncqn.paper.catalogue import MODULES, find
        from asyncqn.paper.experiment import Context
        from asyncqn.paper.report import write_html, write_page
        from asyncqn.paper.reproduce import folder_of, load_results, run_experiment
        from asyncqn.paper.theory_page import write_theory

        out = Output(json, quiet)
        context = Context(output, full, processes, seed, out.progress, tuned)
        size = "--full" if full else "--quick"
        results = []
        for experiment in find(names):
            out.say(f"{experiment.name}: {experiment.title}")
            command = f"asyncqn reproduce {experiment.name} {size} --seed {seed}"
            folder = folder_of(output, experiment.name, full)
            result = run_experiment(experiment, replace(context, folder=folder), command)
            results.append(result)
            for claim in result.claims:
                out.show(f"  {claim.verdict}: {claim.text} [{claim.setting}]")
        finished = load_results(output, list(MODULES))
        write_html(finished, output / "report.html")
        kept = [r.name for r in finished if r.manifest["size"] == "full"]
        if kept and not full:
            out.say(f"the report shows {', '.join(kept)} in full, from an earlier run")
        if docs is not None:
            write_page(finished, docs / "reproduction.md")
            for result in finished:
                if result.name == "theory":
                    write_theory(result, docs / "theory.md")
        out.show(f"the report is {output / 'report.html'}")
        out.result(
            {
                "report": str(output / "report.html"),
                "experiments": {r.name: [c._asdict() for c in r.claims] for r in results},
            }
        )
