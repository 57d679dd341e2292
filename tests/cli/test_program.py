"""The program as a person and a script use it: streams, exit codes, nothing half-written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli.calls import SMALL, asyncqn, call, files
from conftest import python
from sealed import data_file

import asyncqn as aq
from asyncqn.storage.writing import check_of

DIVERGING = [*SMALL, "--set", "algorithm.h=1.0", "--commits", "400"]


def test_simulate_save_show_replay_in_processes_of_their_own(tmp_path: Path) -> None:
    simulate = ("simulate", *SMALL, "--seed", "3", "--save", "runs/a", "--json")
    made = asyncqn(*simulate, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["run"] == "runs/a"
    assert "simulate: 40/40" in made.stderr, "progress goes to stderr"
    show = ("show", "runs/a", "--plot", "a.svg", "--trace", "t/a.json")
    shown = asyncqn(*show, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    for word in ("completed", "async-sgd", "convergence", "worker 2", "versions"):
        assert word in shown.stdout
    again = asyncqn("replay", "runs/a", "--json", "--quiet", cwd=tmp_path)
    assert (again.returncode, again.stderr) == (0, "")
    assert json.loads(again.stdout)["identical"] is True
    arrays = data_file(tmp_path / "runs" / "a").name
    written = ["runs/a", f"runs/a/{arrays}", "runs/a/run.json", "t", "t/a.json"]
    assert files(tmp_path) == ["a.svg", "runs", *written]


def test_the_promised_keys_are_printed_and_quiet_prints_nothing_else(
    capfd: pytest.CaptureFixture[str],
) -> None:
    code, out, err = call(capfd, "simulate", *SMALL, "--json", "--quiet")
    numbers = json.loads(out)
    assert (code, err) == (0, "")
    promised = "status commits time fun staleness_mean staleness_max pairs_accepted pairs_rejected run error"
    assert set(promised.split()) <= set(numbers)
    assert numbers["run"] is None
    assert (numbers["status"], numbers["commits"]) == ("completed", 40)
    # The mean tends to W - 1 = 2 from below, for the first computations of all workers read version 0.
    assert 1 < numbers["staleness_mean"] <= 2


def test_a_real_run_has_numbers_of_its_own_and_replays(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "r"
    engine = ("--engine", "threads", "--save", folder)
    code, out, _ = call(capfd, "run", *SMALL, *engine, "--json")
    numbers = json.loads(out)
    assert (code, numbers["engine"], numbers["workers"]) == (0, "threads", 3)
    lost = (numbers["workers_lost"], numbers["workers_joined"])
    assert (*lost, numbers["resumed_from"]) == (0, 0, None)
    assert numbers["commits_per_second"] == pytest.approx(40 / numbers["seconds"])
    aq.replay(folder)


def test_a_diverged_run_exits_with_three_says_why_and_is_saved(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    save = ("--save", tmp_path / "d")
    code, out, err = call(capfd, "simulate", *DIVERGING, *save, "--json", "--quiet")
    assert (code, json.loads(out)["status"]) == (3, "diverged")
    assert err.startswith("asyncqn: diverged: ")
    assert "smaller h" in err
    code, out, _ = call(capfd, "replay", tmp_path / "d", "--json", "-q")
    assert (code, json.loads(out)["identical"]) == (0, True)
    assert call(capfd, "show", tmp_path / "d")[0] == 0


def test_an_altered_run_is_refused_and_a_false_one_is_not_identical(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call(capfd, "simulate", *SMALL, "--save", tmp_path / "a", "-q")[0] == 0
    document = json.loads((tmp_path / "a" / "run.json").read_text())
    document["manifest"]["seed"] += 1
    document["check"] = check_of(document)
    (tmp_path / "a" / "run.json").write_text(json.dumps(document))
    code, out, err = call(capfd, "replay", tmp_path / "a", "--json")
    assert (code, json.loads(out)["identical"]) == (2, False)
    assert "commit 1 of 40" in err
    arrays = data_file(tmp_path / "a")
    arrays.write_bytes(arrays.read_bytes()[:-9])
    for command in ("replay", "show"):
        code, out, err = call(capfd, command, tmp_path / "a", "--json")
        assert code == 2
        assert f"asyncqn: {json.loads(out)['error']}\n" == err
        assert "damaged" in err


def test_a_friction_above_its_limit_is_warned_of_in_one_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    gamma = ("--set", "algorithm.gamma=0.5")
    _, _, err = call(capfd, "simulate", "--commits", "5", *gamma, "-q")
    assert err.count("\n") == 1
    assert err.startswith("asyncqn: warning: gamma = 0.5 exceeds")


def test_a_run_that_every_worker_left_is_no_success(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    deaths = ("--workers", 2, "--set", "cluster.deaths={0 = 20.0, 1 = 30.0}")
    job = (*SMALL, *deaths, "--set", "cluster.worker_mean=2.0", "--commits", 1000)
    for command in (["simulate"], ["run", "--slow", "--set", "engine.time_unit=1e-3"]):
        code, _, err = call(capfd, *command, *job, "-q")
        assert code == 4
        *lost, end = err.splitlines()
        assert end.startswith("asyncqn: stopped: every worker was gone after ")
        assert all("was lost after commit" in line for line in lost)


def test_control_characters_of_a_file_do_not_reach_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call(capfd, "simulate", *SMALL, "--save", tmp_path / "a", "-q")[0] == 0
    document = json.loads((tmp_path / "a" / "run.json").read_text())
    document["message"] = "\x1b]0;owned\x07\x9b31m\u202egnp.exe"
    document["manifest"]["problem"]["name"] = "\x1b[2J"
    document["check"] = check_of(document)
    (tmp_path / "a" / "run.json").write_text(json.dumps(document))
    bad = tmp_path / "\x1b[31mred"
    bad.mkdir()
    outputs = [
        call(capfd, "show", tmp_path / "a"),
        call(capfd, "show", bad),
        call(capfd, "\x1b[31m"),
        call(capfd, "simulate", "--algorithm", "\x1b[31m"),
        call(capfd, "run", "--commits", "3", "-p\x1b[31m"),
    ]
    assert outputs[0][0] == 0
    for _, out, err in outputs:
        assert not set(out + err) & set("\x1b\x07\x9b\u202e")
    assert "owned" in outputs[0][1], "what can be read is shown"


def test_a_simulation_keeps_checkpoints_is_shown_and_resumed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "c"
    often = ("--checkpoint-every", "0.001", "--evaluate", "10", "--checkpoint", folder)
    assert call(capfd, "simulate", *SMALL, *often, "-q")[0] == 0
    shown = json.loads(call(capfd, "show", folder, "--json")[1])
    assert shown["commits_wanted"] == 40
    assert 0 < shown["commits"] <= 40
    text = call(capfd, "show", folder)[1]
    assert "known when the simulated run ends" in text
    assert "all that were requested" in text
    code, out, _ = call(capfd, "resume", folder, "--json", "-q")
    whole = json.loads(call(capfd, "simulate", *SMALL, "--json", "-q")[1])
    again = json.loads(out)
    assert (code, again["commits"], again["fun"]) == (0, 40, whole["fun"])


def test_runs_are_compared_by_their_time_to_a_target(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, h in (("slow", "1e-6"), ("fast", "1e-5")):
        step = ("--set", f"algorithm.h={h}", "--save", tmp_path / name)
        assert call(capfd, "simulate", *SMALL, *step, "-q")[0] == 0
    both = [tmp_path / "slow", tmp_path / "fast"]
    code, out, _ = call(capfd, "compare", *both, "--plot", tmp_path / "c.svg", "--json")
    compared = json.loads(out)
    slow, fast = compared["runs"]
    assert (code, compared["metric"], compared["target"]) == (0, "error", slow["best"])
    assert fast["time_to_target"] < slow["time_to_target"]
    assert (tmp_path / "c.svg").exists()
    _, out, _ = call(capfd, "compare", *both, "--target", "0", "--json")
    assert [run["time_to_target"] for run in json.loads(out)["runs"]] == [None, None]
    blocks = ["--algorithm", "exact-lbfgs", "--set", "algorithm.blocks=3"]
    small = [*SMALL[:4], *SMALL[6:10], *blocks, "--save", tmp_path / "blocks", "-q"]
    assert call(capfd, "simulate", *small)[0] == 0
    _, _, err = call(capfd, "compare", tmp_path / "slow", tmp_path / "blocks")
    assert "warning: a cluster without rows charges computations of 2 and of 8" in err
    assert "no column 'rmse'" in call(capfd, "compare", *both, "--metric", "rmse")[2]


def test_every_field_of_a_cluster_can_be_given_on_the_command_line(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fields = ['times={kind="pareto", mean=40.0, shape=1.5}', "link=2.0", "deaths={3=500.0}",
              "recoveries={3=900.0}", "fixed=1.5"]  # fmt: skip
    words = [word for field in fields for word in ("--set", f"cluster.{field}")]
    folder = tmp_path / "run"
    simulate = ("simulate", *SMALL, *words, "--workers", "5", "--save", folder)
    assert call(capfd, *simulate)[0] == 0
    cluster = aq.Cluster(5, times=aq.times.Pareto(40.0, 1.5), message=10.0, link=2.0, deaths={3: 500.0},
                         recoveries={3: 900.0}, fixed=1.5)  # fmt: skip
    assert aq.Cluster.from_run(aq.load_run(folder)) == cluster


@pytest.mark.parametrize(
    ("options", "out"), [([], ""), (["--json"], '{"error": "interrupted."}\n')]
)
def test_ctrl_c_during_an_import_ends_with_one_line(
    tmp_path: Path, options: list[str], out: str
) -> None:
    (tmp_path / "slow.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nmore = 1\n"
    )
    (tmp_path / "job.toml").write_text("[problem]\nkind = 'slow:Problem'\n")
    done = asyncqn("simulate", "job.toml", "--allow-imports", *options, cwd=tmp_path)
    end = (130, "asyncqn: interrupted.\n", out)
    assert (done.returncode, done.stderr, done.stdout) == end


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])  # fmt: skip
def test_a_signal_writes_a_checkpoint_and_says_how_to_resume(
    sent: int, code: int, tmp_path: Path
) -> None:
    long = ("--commits", "10000000", "--evaluate", "1000000", "--workers", "2")
    keep = ("--checkpoint", "c", "--checkpoint-every", "0.05")
    command = [sys.executable, "-m", "asyncqn", "run", *SMALL, *long, *keep]
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as child:
        while not (tmp_path / "c" / "a" / "checkpoint.json").exists():
            assert child.poll() is None
            time.sleep(0.01)
        os.kill(child.pid, sent)
        _, err = child.communicate(timeout=60)
    assert child.returncode == code
    assert "continue with: asyncqn resume " in err
    assert err.count("asyncqn: ") == 1, "it is said once"


def test_a_second_ctrl_c_while_the_interpreter_ends_prints_no_traceback() -> None:
    program = (
        "import atexit, os, signal, time\n"
        "atexit.register(lambda: (os.kill(os.getpid(), signal.SIGINT), time.sleep(0.01)))\n"
        "from asyncqn.cli.main import main\n"
        "main(['run', 'nowhere.toml'])\n"
    )
    done = python("-c", program)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1
