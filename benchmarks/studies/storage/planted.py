"""Links, named pipes and devices planted where asyncqn keeps its files, or named as its input.

    python -m benchmarks.studies.storage.planted

An attacker who can write to a shared folder, or who sends an archive, puts a symbolic link, a hard link, a
named pipe, a device, a socket or a folder where a file of ours is expected.  Every case runs one command in
a process of its own on such a folder.  It passes if the command ends within `PATIENCE` seconds without a
traceback and the files outside the folder are what they were: same bytes, same inode, no new names.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncqn as aq
from asyncqn.cli.main import main as main_program
from asyncqn.runs.checkpoint import CHECKPOINT
from asyncqn.storage.writing import check_of
from asyncqn_recommender import Recommender
from asyncqn_recommender.data import save_ratings, synthetic_ratings

PATIENCE = 180.0
SECRET = b"precious\n" * 50
SMALL = ["--algorithm", "async-sgd", "--workers", "2", "--commits", "60",
         "--set", "algorithm.h=1e-5", "--set", "algorithm.batch=2",
         "--set", "problem.dim=8", "--set", "problem.n_data=24"]  # fmt: skip
CHECKPOINTS = ["--checkpoint", "A", "--checkpoint-every", "0.0001"]
JOB = '[problem]\nkind = "linear-gaussian"\ndim = 8\nn_data = 24\n'


@dataclass(frozen=True)
class Case:
    """One planted file: what lies there (`plant`), where, and the command that meets it.

    `place` is a path inside the copy of the templates; `*` stands for one name.  `forge` changes the
    folder further, as somebody who can compute our checksums.
    """

    plant: str
    place: str
    command: tuple[str, ...]
    forge: Callable[[Path], None] | None = None

    @property
    def name(self) -> str:
        return f"{self.plant} at {self.place}: asyncqn {' '.join(self.command)}"


def make_templates(folder: Path) -> None:
    """A folder of checkpoints A, a run R, a model M, stored ratings S, a job file and a table of ratings."""
    problem = aq.LinearGaussian.random(8, 24, seed=1)
    algorithm = aq.AsyncSGD(h=1e-5, batch=2)
    run = aq.minimize(
        problem,
        algorithm,
        engine=aq.Threads(1),
        commits=60,
        checkpoint=folder / "A",
        checkpoint_every=20,
    )
    run.save(folder / "R")
    aq.minimize(
        problem, algorithm, engine=aq.Simulator(aq.Cluster(2)), commits=5
    )  # compiles its kernels
    for _ in "ab":
        aq.resume(folder / "A")  # writes the other generation
    ratings = synthetic_ratings(30, 20, 300)
    save_ratings(ratings, folder / "S")
    Recommender(2, workers=1).fit(ratings).save(folder / "M")
    (folder / "j.toml").write_text(JOB)
    rows = zip(ratings.users, ratings.items, ratings.values, strict=True)
    (folder / "r.csv").write_text(
        "user,item,rating\n" + "".join(f"{u},{i},{v}\n" for u, i, v in rows)
    )


def plant(kind: str, place: Path, outside: Path) -> None:
    """Put something else where a file of ours is expected."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "symlink":
            place.symlink_to(outside / "secret")
        case "hard link":
            os.link(outside / "secret", place)
        case "link to a folder":
            place.symlink_to(outside, target_is_directory=True)
        case "dangling link":
            place.symlink_to(outside / "not there")
        case "link to a device":
            place.symlink_to("/dev/zero")
        case "named pipe":
            os.mkfifo(place)
        case "socket":
            here = os.getcwd()
            os.chdir(place.parent)  # names of sockets are short
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(place.name)
            os.chdir(here)
        case "folder":
            place.mkdir()
        case "file of a stranger":
            place.write_bytes(SECRET)
        case "endless file":
            with place.open("wb") as file:
                file.truncate(1 << 43)


def forge_log(folder: Path) -> None:
    """Let the newest generation name a log of no records that is a link to a file outside."""
    for generation in "ab":
        path = folder / "A" / generation / CHECKPOINT.document
        document = json.loads(path.read_text())
        for entry in document["logs"].values():
            (folder / "A" / entry["name"]).unlink(missing_ok=True)
            (folder / "A" / entry["name"]).symlink_to(
                folder.parent / "outside" / "secret"
            )
            entry |= {"records": 0, "crc32": 0}
        document["check"] = check_of(document)
        path.write_text(json.dumps(document))


SHOW = ("show", "A")
RESUME = ("resume", "A")
NEW = ("simulate", *SMALL, *CHECKPOINTS)
SAVE = ("simulate", *SMALL, "--save", "R")
SAVE_NEW = ("simulate", *SMALL, "--save", "new")
FIT = ("recommender", "fit", "S", "--rank", "2", "--workers", "1", "--passes", "2")
FILES = ("symlink", "hard link", "named pipe", "socket", "folder", "link to a device")
LINKS = ("symlink", "hard link", "named pipe")
NO_FILES = ("named pipe", "socket", "folder", "link to a device")

IN_SIMULATE = ("simulate", *SMALL, "--checkpoint", "new")
RECOMMEND = ("recommender", "recommend", "M", "--user", "1")
ENDLESS = "endless file"
TABLE: tuple[tuple[tuple[str, ...], tuple[str, ...], tuple[tuple[str, ...], ...]], ...] = (
    ((*FILES, "dangling link", "file of a stranger"), ("A/lock",), (RESUME,)),
    ((*FILES, "dangling link"), ("new/lock",), (IN_SIMULATE,)),
    ((*FILES, ENDLESS), ("A/a/checkpoint.json", "A/b/checkpoint.json"), (RESUME, SHOW)),
    (LINKS, ("new/b/checkpoint.json",), (IN_SIMULATE,)),
    (("link to a folder",), ("A/a", "A/b"), (RESUME, SHOW, NEW)),
    (("link to a folder",), ("new/a", "new/b"), (IN_SIMULATE,)),
    ((*FILES, ENDLESS), ("A/b/arrays-*.npz", "A/schedule-*.log"), (RESUME,)),
    (FILES, ("R/run.json",), (("show", "R"), SAVE)),
    ((*FILES, ENDLESS), ("R/arrays-*.npz",), (("replay", "R"),)),
    (LINKS, ("new/run.json",), (SAVE_NEW,)),
    (LINKS, ("M/model.json",), (RECOMMEND, (*FIT, "--out", "M"))),
    (FILES, ("M/arrays-*.npz",), (RECOMMEND,)),
    (FILES, ("S/header.json", "S/values-*.npy"), (FIT,)),
    ((*NO_FILES, ENDLESS), ("j.toml",), (("simulate", "j.toml"),)),
    (NO_FILES, ("r.csv",), (("recommender", "fit", "r.csv"),)),
    (NO_FILES[:-1], ("p.html",), (("show", "R", "--html", "p.html"),)),
)  # fmt: skip
"""What is planted, where, and the commands that meet it: every combination of a row is a case."""
CASES = (
    *(Case(*parts) for row in TABLE for parts in itertools.product(*row)),
    Case("symlink", "A/fingerprints-*.log", RESUME, forge_log),
    Case("file of a stranger", "j.toml", ("simulate", "/dev/zero")),
)


def state_of(folder: Path) -> dict[str, Any]:
    """Everything in a folder: names, inodes, lengths, times of change and bytes."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(folder))] = (
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            content,
        )
    return found


def prepare(case: Case, templates: Path, place: Path) -> tuple[Path, Path]:
    """Return a copy of the templates with the planted file, and the folder outside it."""
    inside, outside = place / "inside", place / "outside"
    shutil.copytree(templates, inside)
    outside.mkdir()
    (outside / "secret").write_bytes(SECRET)
    spots = (
        sorted(inside.glob(case.place)) if "*" in case.place else [inside / case.place]
    )
    plant(case.plant, spots[0], outside)
    if case.forge is not None:
        case.forge(inside)
    return inside, outside


def trouble(case: Case, templates: Path, place: Path) -> str:
    """Return what went wrong in a case; empty if nothing did."""
    inside, outside = prepare(case, templates, place)
    before = state_of(outside)
    code, err = called(case.command, inside, place / "err")
    if code is None:
        return "hangs"
    if state_of(outside) != before:
        return "touched a file outside"
    if "Traceback" in err or code not in (0, 1, 2):
        return f"code {code}: {err[-300:]}"
    if code == 2 and len(err.strip().splitlines()) > 12:
        return f"not one sentence: {err[-300:]}"
    return ""


def called(command: tuple[str, ...], cwd: Path, output: Path) -> tuple[int | None, str]:
    """Exit code (None: it had to be killed) and stderr of a command, in a fork that has all kernels."""
    process = multiprocessing.get_context("fork").Process(
        target=call, args=(command, cwd, output)
    )
    process.start()
    process.join(PATIENCE)
    code = process.exitcode
    process.kill()
    process.join()
    return code, output.read_text(errors="replace") if output.exists() else ""


def call(command: tuple[str, ...], cwd: Path, output: Path) -> None:
    """Run a command of the program in this process, with its output in a file."""
    with output.open("wb") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    os.chdir(cwd)
    main_program(list(command))


def main(cases: Sequence[Case] = CASES) -> int:
    failed = 0
    with tempfile.TemporaryDirectory(prefix="asyncqn-planted-") as name:
        templates = Path(name) / "templates"
        templates.mkdir()
        make_templates(templates)
        for number, case in enumerate(cases):
            place = Path(name) / str(number)
            sentence = trouble(case, templates, place)
            failed += bool(sentence)
            print(f"{sentence or 'ok':10} {case.name}", flush=True)
            shutil.rmtree(place, ignore_errors=True)
    print(f"{len(cases)} cases, {failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
