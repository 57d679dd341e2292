"""Calls of the program, in a process of its own and in this one, on a small simulation."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import python

from asyncqn.cli.main import main

SMALL = ["--workers", "3", "--commits", "40", "--algorithm", "async-sgd",
         "--set", "problem.dim=8", "--set", "problem.n_data=24",
         "--set", "algorithm.h=1e-5", "--set", "algorithm.batch=2"]  # fmt: skip


def asyncqn(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return python("-m", "asyncqn", *arguments, cwd=cwd, COLUMNS="80")


def call(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """The same in this process, without the second that starting Python costs."""
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    out, err = capfd.readouterr()
    return int(end.value.code or 0), out, err


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
