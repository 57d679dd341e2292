"""The documentation agrees with the code: examples in docstrings, links, the tour, the list of names."""

from __future__ import annotations

import ast
import doctest
import re
from inspect import ismodule
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from conftest import python
from test_readme import PAGES, ROOT, blocks

import asyncqn
import asyncqn_recommender
from asyncqn.algorithms import ALGORITHMS
from asyncqn.cli.ending import BAD_INPUT, EXIT_CODES
from asyncqn.cli.jobfile import load_job
from asyncqn.cli.program import command_modules
from asyncqn.engines.named import ENGINES
from asyncqn.models import PROBLEMS

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
ELSEWHERE = ("http://", "https://", "mailto:")
OWN_PROCESSES = ("MPI", "Ray")
"""Engines whose examples need ranks, or a local Ray: run by tests of their own."""


RECOMMENDER = tuple(name for name in asyncqn_recommender.__all__ if name != "PRESETS")
"""Names of the other package that have an example: all but a constant."""


NAMES = [
    *(name for name in asyncqn.__all__ if not ismodule(getattr(asyncqn, name))),
    *(f"times.{name}" for name in asyncqn.times.__all__),
    *RECOMMENDER,
]


def public(name: str) -> Any:
    return attrgetter(name)(asyncqn_recommender if name in RECOMMENDER else asyncqn)


def examples(name: str) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(public(name).__doc__ or "")


def prints_what_it_says(name: str) -> None:
    """Run the example of a public name in an empty namespace and compare what it prints."""
    report: list[str] = []
    (test,) = doctest.DocTestFinder(recurse=False).find(public(name), name, globs={})
    doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    assert report == [], "".join(report)


@pytest.mark.timeout(300)  # kernels may have to be compiled
@pytest.mark.parametrize("name", [name for name in NAMES if name not in OWN_PROCESSES])
def test_an_example_prints_what_it_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some write a file
    monkeypatch.setenv("ASYNCQN_CACHE", str(tmp_path / "cache"))
    prints_what_it_says(name)


def test_the_example_of_mpi_prints_what_it_says(mpirun) -> None:
    found = examples("MPI")
    done = mpirun(3, ["-c", "".join(example.source for example in found)])
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "".join(example.want for example in found).strip()


def test_the_example_of_ray_prints_what_it_says(ray_local) -> None:
    prints_what_it_says("Ray")


def project_pages() -> list[Path]:
    # What stands beside a program of its name is the words of a page in docs, with the links of that page.
    studies = (
        p
        for p in (ROOT / "benchmarks").rglob("*.md")
        if not p.with_suffix(".py").is_file()
    )
    return [
        *PAGES.values(),
        *(ROOT / name for name in ("CONTRIBUTING.md", "DESIGN.md", "CHANGELOG.md")),
        *studies,
    ]


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings make, by GitHub's rule."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles
    }


@pytest.mark.parametrize(
    "page", project_pages(), ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_no_link_is_dead(page: Path) -> None:
    dead = []
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if link.startswith(ELSEWHERE):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


def test_every_page_can_be_reached_from_the_index() -> None:
    seen, queue = set(), [ROOT / "README.md", ROOT / "docs" / "index.md"]
    while queue:
        page = queue.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        links = (
            link.partition("#")[0]
            for link in LINK.findall(page.read_text(encoding="utf-8"))
        )
        queue += [
            (page.parent / x).resolve()
            for x in links
            if x and not x.startswith(ELSEWHERE)
        ]
    assert (
        sorted(p.relative_to(ROOT).as_posix() for p in {*PAGES.values()} - seen) == []
    )


def defined_in(path: Path) -> set[str]:
    """Names of the functions, classes, methods and module constants that a file defines."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {
                target.id for target in node.targets if isinstance(target, ast.Name)
            }
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def test_the_tour_of_contributing_names_files_and_functions_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tour = text.split("## The tour")[1].split("\n## ")[0]
    stops = [
        line for line in tour.splitlines() if line.startswith("| ") and "`" in line
    ]
    for stop in stops:
        file, *names = re.findall(r"`([^`]+)`", stop.split("|")[2])
        path = ROOT / "src" / "asyncqn" / file
        assert path.is_file(), f"{file} does not exist"
        known = defined_in(path)
        assert [name for name in names if name.split(".")[-1] not in known] == [], file


def test_the_page_of_one_run_names_files_and_functions_that_exist() -> None:
    text = (ROOT / "docs" / "explanation" / "one-run.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "asyncqn"
    files = set(re.findall(r"`([\w/]+\.py)`", text))
    assert len(files) > 10
    assert [file for file in sorted(files) if not (source / file).is_file()] == []
    hops = re.findall(r"^\| \d? ?\| `([\w/]+\.py)` \| (.*)$", text, re.M)
    assert len(hops) == 10, "two starts, five hops and three"
    methods = [
        (f, n) for f, words in hops for n in re.findall(r"`([A-Z]\w+\.\w+)`", words)
    ]
    assert len(methods) == 7
    assert [
        (f, n) for f, n in methods if not set(n.split(".")) <= defined_in(source / f)
    ] == []


def test_the_job_file_of_the_reference_is_accepted(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "reference" / "job-file.md").read_text(encoding="utf-8")
    block, of_a_file = (b for b in blocks(text) if b.language == "toml")
    path = tmp_path / "job.toml"
    path.write_text(block.body, encoding="utf-8")
    job = load_job(path)
    assert (job.run.commits, job.cluster.workers, type(job.algorithm).__name__) == (
        5000,
        40,
        "ASLBFGS",
    )
    (tmp_path / "train.csv").write_text(
        "age,dose,count,y\n" + "1,2,1,0\n2,1,3,1\n" * 5, encoding="utf-8"
    )
    path.write_text(of_a_file.body, encoding="utf-8")
    assert (load_job(path).problem.n_data, load_job(path).problem.dim) == (8, 3)
    assert [kind for kind in (*PROBLEMS, *ALGORITHMS) if f"`{kind}`" not in text] == []


def test_the_reference_of_the_command_line_has_every_command_and_exit_code() -> None:
    text = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    assert [name for name in command_modules() if f"| `{name}" not in text] == []
    rows = text.split("| exit code |")[1].split("\n\n")[0]
    shown = {
        int(n)
        for row in re.findall(r"^\| ([\d, ]+) \|", rows, re.M)
        for n in row.split(",")
    }
    assert shown == {*EXIT_CODES.values(), BAD_INPUT}


OWN_ALGORITHM = ROOT / "docs" / "guide" / "own-algorithm.md"


def own_algorithm() -> str:
    """The file that the guide builds: its first Python block."""
    return next(
        b.body
        for b in blocks(OWN_ALGORITHM.read_text(encoding="utf-8"))
        if b.language == "python"
    )


@pytest.mark.timeout(240)  # it starts a local Ray
@pytest.mark.xdist_group("clusters")
def test_the_guides_own_algorithm_passes_the_checks_and_runs_on_every_engine(
    tmp_path: Path,
) -> None:
    (tmp_path / "delay_adaptive.py").write_text(own_algorithm(), encoding="utf-8")
    script = (
        "import asyncqn as aq\n"
        "from delay_adaptive import DelayAdaptiveSGD\n"
        "problem = aq.LinearGaussian.random(dim=5, n_data=50, seed=0)\n"
        "print(aq.check_algorithm(DelayAdaptiveSGD(h=1e-3, batch=5), problem))\n"
    )
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    done = python("script.py", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    outcome = ast.literal_eval(done.stdout.strip())
    assert outcome.pop("mpi").startswith("not tried: ")
    assert outcome == dict.fromkeys(set(ENGINES) - {"mpi"}, "passed")
