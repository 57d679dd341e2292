"""Jobs are computed once, kept, resumed, and computed again when their inputs change."""

from __future__ import annotations

import importlib.util
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncqn
import asyncqn_paper
from asyncqn.errors import BadInput, DamagedFile
from asyncqn.lab.tuning.processes import SharedPool
from asyncqn_paper import result_cache
from asyncqn_paper.figures.times import Job, measure
from asyncqn_paper.records import read_table, summary, where, write_table
from asyncqn_paper.result_cache import Spent, code_digest, keys_of, run_jobs

CALLS: list[int] = []


@dataclass(frozen=True)
class Square:
    x: int


def squared(job: Square) -> list[dict[str, int]]:
    CALLS.append(job.x)
    return [{"x": job.x, "y": job.x**2}]


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


def test_finished_jobs_are_not_run_again(tmp_path: Path) -> None:
    path = tmp_path / "parts" / "squares.jsonl"
    first = run_jobs(squared, [Square(1), Square(2)], path, processes=1)
    again = run_jobs(squared, [Square(2), Square(3), Square(1)], path, processes=1)
    assert CALLS == [1, 2, 3]
    assert first == [{"x": 1, "y": 1}, {"x": 2, "y": 4}]
    assert again == [{"x": 2, "y": 4}, {"x": 3, "y": 9}, {"x": 1, "y": 1}]


def test_what_jobs_took_is_known_when_they_are_not_run_again(tmp_path: Path) -> None:
    path = tmp_path / "squares.jsonl"
    told: list[Spent] = []
    entry = {"records": [{"x": 1, "y": 1}], "spent": [8.0, 5.0]}
    (key,) = keys_of(squared, [Square(1)])
    path.write_text(json.dumps({"key": key, **entry}) + "\n")
    for _ in range(2):
        run_jobs(squared, [Square(1), Square(1), Square(2)], path, processes=1, spend=told.append)
    assert CALLS == [2]
    assert told[0] == told[1]
    assert 8.0 <= told[0].clock < 9.0
    assert 5.0 <= told[0].processor < 6.0


def test_an_interrupted_file_is_resumed_even_when_its_last_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "squares.jsonl"
    run_jobs(squared, [Square(1), Square(2)], path, processes=1)
    text = path.read_text()
    path.write_text(text[: len(text) - 10])
    assert run_jobs(squared, [Square(1), Square(2)], path, processes=1)[1] == {"x": 2, "y": 4}
    assert CALLS == [1, 2, 2]
    assert run_jobs(squared, [Square(1), Square(2)], path, processes=1)[1] == {"x": 2, "y": 4}
    assert CALLS == [1, 2, 2]


def test_two_processes_give_the_records_of_one_in_the_same_order(tmp_path: Path) -> None:
    parameters = (("batch", 6), ("h", 6e-5))
    jobs = [
        Job("linear-gaussian", "async-sgd", parameters, v, (0, 1), 4, 1.0, 4000.0) for v in (1.0, 9.0, 25.0)
    ]
    seen: list[int] = []
    one = run_jobs(measure, jobs, tmp_path / "one.jsonl", processes=1)

    def tell(done: int, note: str = "") -> None:
        seen.append(done)

    with SharedPool(2) as shared:
        two = run_jobs(measure, jobs, tmp_path / "two.jsonl", processes=2, tell=tell, shared=shared)
    assert one == two
    assert [r["variance"] for r in one] == [1.0, 1.0, 9.0, 9.0, 25.0, 25.0]
    assert seen == [0, 1, 2, 3]


def test_a_key_depends_on_every_parameter_and_on_nothing_else() -> None:
    a, b, c = keys_of(squared, [Square(1), Square(2), Square(1)])
    assert a == c != b


@pytest.mark.parametrize("name", ["asyncqn/minimize.py", "asyncqn_paper/settings.py"])
def test_a_change_of_a_source_file_changes_every_key(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (before,) = keys_of(squared, [Square(1)])
    for package in (asyncqn, asyncqn_paper):
        source = Path(package.__file__).parent
        copy = tmp_path / source.name
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(result_cache, "find_spec", lambda package: specs.get(package))
    specs = {
        path.name: SimpleNamespace(submodule_search_locations=[str(path)]) for path in tmp_path.iterdir()
    }
    for package in result_cache.SOURCES:
        specs.setdefault(package, importlib.util.find_spec(package))
    code_digest.cache_clear()
    assert keys_of(squared, [Square(1)]) == [before]
    with (tmp_path / name).open("a", encoding="utf-8") as file:
        file.write("\nUNUSED = 1\n")
    code_digest.cache_clear()
    assert keys_of(squared, [Square(1)]) != [before]
    code_digest.cache_clear()


def test_versions_are_part_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = keys_of(squared, [Square(1)])
    code_digest.cache_clear()
    monkeypatch.setattr(result_cache, "version", lambda package: "0.0.0")
    assert keys_of(squared, [Square(1)]) != before
    code_digest.cache_clear()


def test_a_failing_job_keeps_what_was_finished(tmp_path: Path) -> None:
    def fails(job: Square) -> list[dict[str, int]]:
        raise ZeroDivisionError if job.x == 2 else ValueError

    globals()["fails"] = fails
    path = tmp_path / "squares.jsonl"
    run_jobs(squared, [Square(1)], path, processes=1)
    size = path.stat().st_size
    fails.__qualname__ = "fails"
    with pytest.raises((ZeroDivisionError, OSError)):
        run_jobs(fails, [Square(2)], path, processes=1)
    assert path.stat().st_size >= size
    run_jobs(squared, [Square(1)], path, processes=1)
    assert CALLS == [1]


numbers = st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False, width=32))


@given(rows=st.lists(st.fixed_dictionaries({"a": numbers, "b": st.text("xyz")}), min_size=1, max_size=20))
def test_a_table_comes_back_as_it_was_written(rows: list[dict[str, object]], tmp_path_factory) -> None:
    stem = tmp_path_factory.mktemp("tables") / "t"
    write_table(rows, stem)
    assert read_table(stem) == rows
    assert stem.with_suffix(".csv").read_text().count("\n") == len(rows) + 1
    assert [p.name for p in stem.parent.iterdir() if p.name.startswith(".")] == []


def test_a_missing_and_a_damaged_table_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="run the experiment first"):
        read_table(tmp_path / "t")
    (tmp_path / "t.parquet").write_bytes(b"not a table")
    with pytest.raises(DamagedFile, match="delete it"):
        read_table(tmp_path / "t")


def test_a_summary_counts_only_the_numbers_that_exist() -> None:
    rows = [{"k": 1, "t": 2.0}, {"k": 1, "t": 4.0}, {"k": 1, "t": None}, {"k": 2, "t": 9.0}]
    mean, spread, share = summary(where(rows, k=1), "t")
    assert (mean, spread, share) == (3.0, np.sqrt(2.0), 2 / 3)
    assert summary([{"t": None}], "t")[2] == 0.0
