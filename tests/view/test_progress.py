"""Progress: a bar where a person looks on, lines where they are asked for, and silence elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import suppress
from types import SimpleNamespace

import pytest

import asyncqn as aq
from asyncqn.view import progress as shown

PROBLEM = aq.LinearGaussian.random(dim=5, n_data=60, seed=0)
SCRIPT = """
import asyncqn as aq
from asyncqn.view import progress
progress.SECONDS_BEFORE_A_BAR = 0.0
problem = aq.LinearGaussian.random(dim=5, n_data=60, seed=0)
aq.minimize(problem, aq.AsyncSGD(h=1e-4, batch=6), engine=aq.Threads(2), commits=400{options})
"""


def on_a_terminal(options: str) -> str:
    """What a script writes to a terminal."""
    leader, follower = pty.openpty()
    with os.fdopen(leader, "rb", buffering=0) as terminal:
        program = SCRIPT.format(options=options)
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
        command = [sys.executable, "-c", program]
        with subprocess.Popen(command, stderr=follower, env=environment) as script:
            os.close(follower)
            text = b""
            with suppress(OSError):  # Linux ends a closed terminal so
                while part := terminal.read(4096):
                    text += part
            assert script.wait(60) == 0
    return text.decode()


def test_a_terminal_shows_a_bar_unless_told_otherwise() -> None:
    bar = on_a_terminal("")
    assert "minimize" in bar
    assert "400/400" in bar
    assert "commits/s" in bar
    assert on_a_terminal(", progress=False") == ""


def test_elsewhere_nothing_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    aq.minimize(PROBLEM, engine=aq.Threads(2))
    assert capfd.readouterr().err == ""


def test_verbose_writes_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    algorithm = aq.AsyncSGD(h=1e-4, batch=6)
    aq.minimize(PROBLEM, algorithm, engine=aq.Threads(2), commits=200, verbose=True)
    text = capsys.readouterr().err
    lines = [line for line in text.splitlines() if "compiling" not in line]
    assert lines[0].startswith("minimize: 0/200 error ")
    assert lines[-1].startswith("minimize: 200/200 error ")
    assert lines[-1].endswith("2 workers")


def test_a_notebook_without_widgets_has_plain_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[str] = []
    notebook = SimpleNamespace(is_terminal=False, is_jupyter=True, print=written.append)
    monkeypatch.setattr(shown, "find_spec", lambda name: None)
    with shown.on_console(notebook, "minimize", 3) as advance:
        # Late chains of a sampler work on at the last step.
        for step, fun in ((0, 9), (1, 5), (2, 4), (3, 3), (3, 2), (3, 1)):
            advance(step, f"U {fun}")
    assert [line for line in written if "compiling" not in line] == [
        "minimize: 3/3 U 3",
        "minimize: 3/3 U 1",
    ]


def test_a_closed_stderr_does_not_end_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull, "w") as closed:
        pass
    monkeypatch.setattr(sys, "stderr", closed)
    assert aq.minimize(PROBLEM, engine=aq.Threads(1), verbose=True).success
    assert aq.minimize(PROBLEM, engine=aq.Threads(1), progress=True).success
