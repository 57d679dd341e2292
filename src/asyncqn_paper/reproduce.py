"""Run an experiment from specification to figures, and keep what a report needs beside them.

Folder of an experiment, NAME in the quick size and full/NAME in the paper's: its tables (Parquet,
CSV), its figures (PNG, SVG), `experiment.json` with outcomes, command, versions and seed, and `parts/`,
the finished jobs.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from asyncqn import __version__
from asyncqn.errors import BadInput
from asyncqn.lab import SharedPool
from asyncqn.storage import write_whole
from asyncqn_paper.claims import Outcome
from asyncqn_paper.drawing import BANDS, PERCENTILES, save_figure, shaded, style
from asyncqn_paper.experiment import Context, Experiment, Tables
from asyncqn_paper.records import read_table, write_table
from asyncqn_paper.result_cache import code_digest

PACKAGES = ("asyncqn", "numpy", "numba", "matplotlib", "pyarrow")


@dataclass(frozen=True)
class Result:
    """A finished experiment as it stands on disk."""

    name: str
    title: str
    about: str
    outcomes: list[Outcome]
    figures: list[str]
    headline: list[str]
    manifest: dict[str, Any]
    folder: Path


def run_experiment(
    experiment: Experiment, context: Context, command: str, bands: str = PERCENTILES
) -> Result:
    """Compute what is missing, then draw and reach outcomes from the tables as they were saved."""
    with SharedPool(context.processes) as shared:
        tables = experiment.compute(replace(context, shared=shared))
    for name, records in tables.items():
        write_table(records, context.folder / name)
    manifest = {
        "command": command,
        "seed": context.seed,
        "size": "full" if context.full else "quick",
        "extent": experiment.full if context.full else experiment.quick,
        "seconds": round(sum(spent.clock for spent in context.spent), 1),
        "processor_seconds": round(sum(spent.processor for spent in context.spent), 1),
        "versions": versions(),
        "code": code_digest()[:12],
        "computed_by": f"{experiment.compute.__module__}:{experiment.compute.__name__}",
    }
    return conclude(experiment, context.folder, list(tables), manifest, bands)


def conclude(
    experiment: Experiment,
    folder: Path,
    tables: list[str],
    manifest: dict[str, Any],
    bands: str = PERCENTILES,
    kinds: Sequence[str] = ("png", "svg"),
) -> Result:
    """Draw and reach outcomes from the tables in a folder, and keep `experiment.json` beside them."""
    saved: Tables = {name: read_table(folder / name) for name in tables}
    with style(), shaded(bands):
        figures = experiment.draw(saved)
        for name, figure in figures.items():
            save_figure(figure, folder / name, kinds)
    document = {
        "name": experiment.name,
        "title": experiment.title,
        "about": experiment.about + ("" if bands == PERCENTILES else f" Bands here: {BANDS[bands]}."),
        "outcomes": [found._asdict() for found in experiment.outcomes(saved)],
        "headline": experiment.headline(saved) if experiment.headline else [],
        "figures": list(figures),
        "tables": tables,
        "manifest": manifest,
    }
    text = json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    write_whole(folder / "experiment.json", text)
    return load_result(folder)


def publish(result: Result, folder: Path) -> None:
    """Copy what a page is made of into folder/NAME: the tables as Parquet, and where they come from."""
    document = json.loads((result.folder / "experiment.json").read_text(encoding="utf-8"))
    kept = {name: document[name] for name in ("name", "tables", "manifest")}
    _copy_tables(document["tables"], result.folder, folder / result.name)
    text = json.dumps(kept, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    write_whole(folder / result.name / "tables.json", text)


def published(experiments: list[Experiment], folder: Path, scratch: Path) -> list[Result]:
    """The experiments that `folder` has tables of, drawn as pages show them and judged anew in `scratch`."""
    found = []
    for experiment in experiments:
        source = folder / experiment.name
        if (source / "tables.json").is_file():
            kept = json.loads((source / "tables.json").read_text(encoding="utf-8"))
            place = scratch / experiment.name
            _copy_tables(kept["tables"], source, place)
            found.append(conclude(experiment, place, kept["tables"], kept["manifest"], kinds=("png",)))
    return found


def _copy_tables(names: Sequence[str], source: Path, target: Path) -> None:
    for name in names:
        write_whole(target / f"{name}.parquet", (source / f"{name}.parquet").read_bytes())


def load_result(folder: Path) -> Result:
    """Read a finished experiment."""
    try:
        document = json.loads((folder / "experiment.json").read_text(encoding="utf-8"))
        kept = {
            name: document[name] for name in ("name", "title", "about", "figures", "headline", "manifest")
        }
        return Result(**kept, outcomes=[Outcome(**one) for one in document["outcomes"]], folder=folder)
    except (OSError, ValueError, KeyError, TypeError):
        raise BadInput(
            f"{folder} holds no finished experiment: run asyncqn reproduce {folder.name}."
        ) from None


def folder_of(output: Path, name: str, full: bool) -> Path:
    """Where an experiment of this size lives."""
    return output / "full" / name if full else output / name


def load_results(output: Path, names: list[str]) -> list[Result]:
    """The finished experiments among `names`, in that order; in full where that was run, else quick."""
    found = []
    for name in names:
        folders = [folder_of(output, name, full) for full in (True, False)]
        there = [folder for folder in folders if (folder / "experiment.json").is_file()]
        found += [load_result(folder) for folder in there[:1]]
    return found


def versions() -> dict[str, str]:
    """What the numbers were computed with."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = __version__ if package == "asyncqn" else version(package)
        except PackageNotFoundError:
            continue
    return found
