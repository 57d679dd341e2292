from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import asyncqn as aq
from asyncqn.cli import main


def test_the_demo_writes_a_report_that_needs_nothing_else_and_runs_that_replay(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["demo", "--output", str(tmp_path / "out"), "--json", "--quiet"])
    out, err = capfd.readouterr()
    assert (end.value.code, err) == (0, "")
    numbers = json.loads(out)
    page = Path(numbers["report"]).read_text()
    sources = re.findall(r'(?:src|href)="([^"]{0,30})', page)
    assert sources
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert "{" not in re.sub(r"<style>.*?</style>", "", page, flags=re.S), "every place was filled in"
    assert (tmp_path / "out" / "convergence.png").read_bytes()[:4] == b"\x89PNG"
    for name, row in numbers["runs"].items():
        assert name in page
        assert row["time_to_target"] is not None, f"{name} reaches the target"
        assert row["error"] < 0.5
    # The report says that cheap steps are first at the target, and that as-lbfgs ends below async-sgd.
    times = {name: row["time_to_target"] for name, row in numbers["runs"].items()}
    assert min(times, key=times.__getitem__) == "async-sgd"
    aq.replay(tmp_path / "out" / "runs" / "as-lbfgs")
