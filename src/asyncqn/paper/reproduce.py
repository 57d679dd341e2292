"""Run an experiment from specification to figures, and keep what a report needs beside them.

Folder of an experiment, NAME in the quick size and full/NAME in the paper's: its tables (Parquet,
CSV), its figures (PNG, SVG), `experiment.json` with claims, command, versions and seed, and `parts/`,
the finished jobs.
"""

from __future__ import annotations

import json
import platform
import time
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from asyncqn import __version__
from asyncqn.errors import BadInput
from asyncqn.paper.drawing import save_figure, style
from asyncqn.paper.experiment import Claim, Context, Experiment, Tables
from asyncqn.paper.reachable_code import code_hash
from asyncqn.paper.records import read_table, write_table
from asyncqn.storage import write_whole

PACKAGES = ("asyncqn", "numpy", "numba", "matplotlib", "pyarrow")


@dataclass(frozen=True)
class Result:
    """A finished experiment as it stands on disk."""

    name: str
    title: str
    about: str
    claims: list[Claim]
    figures: list[str]
    manifest: dict[str, Any]
    folder: Path


def run_experiment(experiment: Experiment, context: Context, command: str) -> Result:
    """Compute what is missing, then draw and reach verdicts from the tables as they were saved."""
    began = time.monotonic()
    folder = context.folder
    tables = experiment.compute(context)
    for name, records in tables.items():
        write_table(records, folder / name)
    saved: Tables = {name: read_table(folder / name) for name in tables}
    with style():
        figures = experiment.draw(saved)
        for name, figure in figures.items():
            save_figure(figure, folder / name)
    document = {
        "name": experiment.name,
        "title": experiment.title,
        "about": experiment.about,
        "claims": [claim._asdict() for claim in experiment.claims(saved)],
        "figures": list(figures),
        "tables": list(tables),
        "manifest": {
            "command": command,
            "seed": context.seed,
            "size": "full" if context.full else "quick",
            "extent": experiment.full if context.full else experiment.quick,
            "seconds": round(time.monotonic() - began, 1),
            "versions": versions(),
            "code": code_hash(experiment.compute)[:12],
            "computed_by": f"{experiment.compute.__module__}:{experiment.compute.__name__}",
        },
    }
    text = json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    write_whole(folder / "experiment.json", text)
    return load_result(folder)


def load_result(folder: Path) -> Result:
    """Read a finished experiment."""
    try:
        document = json.loads((folder / "experiment.json").read_text(encoding="utf-8"))
        return Result(
            document["name"],
            document["title"],
            document["about"],
            [Claim(**c) for c in document["claims"]],
            document["figures"],
            document["manifest"],
            folder,
        )
    except (OSError, ValueError, KeyError, TypeError):
        raise BadInput(
            f"{folder} holds no finished experiment: run asyncqn reproduce {folder.name}."
        ) from None


def folder_of(output: Path, name: str, full: bool) -> Path:
    """Where an experiment of this size lives."""
    return output / "full" / name if full else output / name


def load_results(output: Path, names: list[str]) -> list[Result]:
    """The finished experiments among `names`, in that order: in full where that was run with the numerics
    of today, else as it was run with these, else as there is."""
    found = []
    for name in names:
        folders = [folder_of(output, name, full) for full in (True, False)]
        there = [load_result(folder) for folder in folders if (folder / "experiment.json").is_file()]
        found += ([result for result in there if current(result)] or there)[:1]
    return found


def current(result: Result) -> bool:
    """Whether the numerics have not changed since."""
    module, _, name = str(result.manifest.get("computed_by", "")).partition(":")
    try:
        compute = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        return False
    return bool(result.manifest.get("code") == code_hash(compute)[:12])


def versions() -> dict[str, str]:
    """What the numbers were computed with."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = __version__ if package == "asyncqn" else version(package)
        except PackageNotFoundError:
            continue
    return found
