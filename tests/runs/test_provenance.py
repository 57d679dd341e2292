"""A manifest names code, versions and machine; a replay that differs names what changed of them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import python
from oracles import Quadratic

import asyncqn
import asyncqn_recommender
from asyncqn import AsyncSGD, Cluster, LinearGaussian, Run, Simulator, minimize
from asyncqn.errors import ReplayMismatch
from asyncqn.runs.provenance import code_digest
from asyncqn.runs.replay import replay

ROOT = Path(__file__).resolve().parents[2]


def run_of(problem: Any, check: bool = True) -> Run:
    engine = Simulator(Cluster(2))
    return minimize(
        problem, AsyncSGD(1e-4, 6), engine=engine, commits=20, seed=1, check=check
    )


def make_problem() -> LinearGaussian:
    return LinearGaussian.random(
        5, 30, 1.0, seed=1, dominant=1, top=9.0, bulk=(1.0, 2.0)
    )


def mismatch(run: Run, **given: Any) -> str:
    with pytest.raises(ReplayMismatch) as caught:
        replay(run, **given)
    return str(caught.value)


def altered(run: Run) -> Run:
    fingerprints = run.fingerprints.copy()
    fingerprints[7] ^= 1
    return replace(run, fingerprints=fingerprints)


def test_every_manifest_names_the_code() -> None:
    manifest = run_of(make_problem()).manifest
    assert manifest["code"] == code_digest()
    assert manifest["versions"]["asyncqn"] == asyncqn.__version__


def test_a_problem_of_another_package_brings_the_digest_of_that_package() -> None:
    assert "problem_code" not in run_of(make_problem()).manifest
    run = run_of(asyncqn_recommender.MatrixFactorization.example())
    assert (
        run.manifest["problem_code"]
        == code_digest("asyncqn_recommender")
        != code_digest()
    )
    forged = altered(replace(run, manifest={**run.manifest, "problem_code": "0"}))
    assert "the code of the package that the problem comes from changed" in mismatch(
        forged
    )


def test_the_digest_follows_every_line_of_the_package_and_not_its_place(
    tmp_path: Path,
) -> None:
    shutil.copytree(
        ROOT / "src" / "asyncqn",
        tmp_path / "asyncqn",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    ask = "from asyncqn.runs.provenance import code_digest; print(code_digest())"

    def digest() -> str:
        done = python("-c", ask, cwd=tmp_path)
        return done.stdout.strip()

    file = tmp_path / "asyncqn" / "core" / "streams.py"
    text = file.read_text()
    assert digest() == code_digest()
    file.write_bytes(text.replace("\n", "\r\n").encode())
    assert digest() == code_digest(), "line ends of another system"
    file.write_text(text + "\n")
    assert digest() != code_digest()


def test_a_change_of_our_own_code_does_not_blame_the_user() -> None:
    run = altered(run_of(Quadratic.random()))
    words = mismatch(replace(run, manifest={**run.manifest, "code": "0" * 64}))
    assert words.endswith("; since the recording asyncqn's own code changed.")
