"""The program as a whole, in a process of its own: streams, exit codes, nothing half-written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli.calls import SMALL, asyncqn, begun, call, files
from sealed import data_file

import asyncqn as aq
from asyncqn.runs.archive import load_run
from asyncqn.runs.replay import replay
from asyncqn.storage.writing import check_of

DIVERGING = [*SMALL, "--set", "algorithm.h=1.0", "--commits", "400"]


def test_simulate_save_show_replay_in_processes_of_their_own(tmp_path: Path) -> None:
    made = asyncqn(
        "simulate", *SMALL, "--seed", "3", "--save", "runs/a", "--json", cwd=tmp_path
    )
    assert made.returncode == 0, made.stderr
    numbers = json.loads(made.stdout)
    assert numbers["run"] == "runs/a"
    assert "simulate: 40/40" in made.stderr, "progress goes to stderr"
    shown = asyncqn(
        "show", "runs/a", "--plot", "a.svg", "--trace", "t/a.json", cwd=tmp_path
    )
    assert shown.returncode == 0, shown.stderr
    for word in (
        "completed",
        "async-sgd",
        "convergence",
        "staleness",
        "worker 2",
        "versions",
    ):
        assert word in shown.stdout
    again = asyncqn("replay", "runs/a", "--json", "--quiet", cwd=tmp_path)
    assert (again.returncode, again.stderr) == (0, "")
    assert json.loads(again.stdout)["identical"] is True
    arrays = data_file(tmp_path / "runs" / "a").name
    expected = [
        "a.svg",
        "runs",
        "runs/a",
        f"runs/a/{arrays}",
        "runs/a/run.json",
        "t",
        "t/a.json",
    ]
    assert files(tmp_path) == expected


def test_the_promised_keys_are_printed_and_quiet_prints_nothing_else(
    capfd: pytest.CaptureFixture[str],
) -> None:
    code, out, err = call(capfd, "simulate", *SMALL, "--json", "--quiet")
    numbers = json.loads(out)
    assert (code, err) == (0, "")
    promised = {
        "status",
        "commits",
        "time",
        "fun",
        "staleness_mean",
        "staleness_max",
        "pairs_accepted",
    }
    assert promised | {"pairs_rejected", "run", "error"} <= set(numbers)
    assert numbers["run"] is None
    assert (numbers["status"], numbers["commits"]) == ("completed", 40)
    # The mean tends to W - 1 = 2 from below, for the first computations of all workers read version 0.
    assert 1 < numbers["staleness_mean"] <= 2


def test_a_diverged_run_exits_with_three_says_why_and_is_saved(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = call(
        capfd, "simulate", *DIVERGING, "--save", tmp_path / "d", "--json", "--quiet"
    )
    assert code == 3
    assert json.loads(out)["status"] == "diverged"
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
    assert code != 0
    assert json.loads(out)["identical"] is False
    assert "commit 1 of 40" in err
    arrays = data_file(tmp_path / "a")
    arrays.write_bytes(arrays.read_bytes()[:-9])
    for command in ("replay", "show"):
        code, out, err = call(capfd, command, tmp_path / "a", "--json")
        assert code == 2
        assert f"asyncqn: {json.loads(out)['error']}\n" == err
        assert "damaged" in err


def test_a_checkpoint_of_a_run_that_ended_does_not_advise_to_go_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call(capfd, "run", *SMALL, "--checkpoint", tmp_path / "c", "-q")[0] == 0
    assert "all that were requested" in call(capfd, "show", tmp_path / "c")[1]


def test_a_friction_above_its_limit_is_warned_of_in_one_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    _, out, err = call(
        capfd,
        "simulate",
        "--commits",
        "5",
        "--set",
        "algorithm.gamma=0.5",
        "--json",
        "-q",
    )
    assert err.count("\n") == 1
    assert err.startswith("asyncqn: warning: gamma = 0.5 exceeds")
    assert json.loads(out)["commits"] == 5


@pytest.mark.parametrize(
    ("sent", "code", "word"), [(2, 130, "interrupted"), (15, 143, "terminated")]
)
def test_a_signal_ends_a_simulation_and_keeps_what_was_computed(
    sent: int, code: int, word: str, tmp_path: Path
) -> None:
    with begun(tmp_path, "--evaluate", "100", "--save", "run", "--json") as process:
        process.send_signal(sent)
        out, err = process.communicate(timeout=60)
    numbers = json.loads(out)
    assert process.returncode == code
    assert err.splitlines()[-1].startswith(
        f"asyncqn: {word} after {numbers['commits']} of 1000000 commits"
    )
    assert (numbers["status"], numbers["run"]) == (word, "run")
    run = load_run(tmp_path / "run")
    assert run.nit == numbers["commits"] > 0
    assert (replay(run).theta == run.theta).all()


def test_a_run_that_every_worker_left_is_no_success(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.toml"
    job.write_text(
        "[problem]\ndim = 8\nn_data = 24\n[algorithm]\nkind = 'async-sgd'\nh = 1e-5\nbatch = 2\n"
        "[cluster]\nworkers = 2\nworker_mean = 2.0\ndeaths = {0 = 20.0, 1 = 30.0}\n[run]\ncommits = 1000\n"
    )
    for command in (["simulate"], ["run", "--slow", "--set", "engine.time_unit=1e-3"]):
        code, _, err = call(capfd, *command, job, "-q")
        assert code == 4
        *lost, end = err.splitlines()
        assert end.startswith("asyncqn: stopped: every worker was gone after ")
        assert all("was lost after commit" in line for line in lost), (
            "a real engine announces each"
        )


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
    folder, options = (
        tmp_path / "c",
        ["--checkpoint-every", "0.001", "--evaluate", "10"],
    )
    code, _, _ = call(capfd, "simulate", *SMALL, *options, "--checkpoint", folder, "-q")
    assert code == 0
    shown = json.loads(call(capfd, "show", folder, "--json")[1])
    assert "known when the simulated run ends" in call(capfd, "show", folder)[1]
    assert shown["commits_wanted"] == 40
    assert 0 < shown["commits"] <= 40
    assert "convergence" in call(capfd, "show", folder)[1]
    code, out, _ = call(capfd, "resume", folder, "--json", "-q")
    assert (code, json.loads(out)["commits"]) == (0, 40)
    assert (
        json.loads(out)["fun"]
        == json.loads(call(capfd, "simulate", *SMALL, "--json", "-q")[1])["fun"]
    )


def test_runs_are_compared_by_their_time_to_a_target(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, h in (("slow", "1e-6"), ("fast", "1e-5")):
        assert (
            call(
                capfd,
                "simulate",
                *SMALL,
                "--set",
                f"algorithm.h={h}",
                "--save",
                tmp_path / name,
                "-q",
            )[0]
            == 0
        )
    both = [tmp_path / "slow", tmp_path / "fast"]
    code, out, _ = call(capfd, "compare", *both, "--plot", tmp_path / "c.svg", "--json")
    compared = json.loads(out)
    slow, fast = compared["runs"]
    assert (code, compared["metric"], compared["target"]) == (0, "error", slow["best"])
    assert fast["time_to_target"] < slow["time_to_target"]
    assert (tmp_path / "c.svg").exists()
    _, out, _ = call(capfd, "compare", *both, "--target", "0")
    assert out.count("not reached") == 2
    blocks = ["--algorithm", "exact-lbfgs", "--set", "algorithm.blocks=3"]
    small = [*SMALL[:4], *SMALL[6:10], *blocks, "--save", tmp_path / "blocks", "-q"]
    assert call(capfd, "simulate", *small)[0] == 0
    _, _, err = call(capfd, "compare", tmp_path / "slow", tmp_path / "blocks")
    assert "warning: a cluster without rows charges computations of 2 and of 8" in err
    assert "no column 'rmse'" in call(capfd, "compare", *both, "--metric", "rmse")[2]


def test_a_cluster_to_imitate_needs_slow(
    capfd: pytest.CaptureFixture[str],
) -> None:
    _, _, err = call(capfd, "run", "--set", "cluster.worker_mean=3")
    assert (
        "--set cluster.worker_mean describes a cluster to imitate: give --slow" in err
    )


def test_every_field_of_a_cluster_can_be_said_on_the_command_line(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fields = ['times={kind="pareto", mean=40.0, shape=1.5}', "link=2.0", "deaths={3=500.0}",
              "recoveries={3=900.0}", "fixed=1.5"]  # fmt: skip
    said = [word for field in fields for word in ("--set", f"cluster.{field}")]
    code, _, _ = call(
        capfd,
        "simulate",
        *SMALL,
        *said,
        "--workers",
        "5",
        "--save",
        str(tmp_path / "run"),
    )
    assert code == 0
    cluster = aq.Cluster(5, times=aq.times.Pareto(40.0, 1.5), message=10.0, link=2.0, deaths={3: 500.0},
                         recoveries={3: 900.0}, fixed=1.5)  # fmt: skip
    assert aq.Cluster.from_run(aq.load_run(tmp_path / "run")) == cluster


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
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "asyncqn",
            "simulate",
            "job.toml",
            "--allow-imports",
            *options,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr, done.stdout) == (
        130,
        "asyncqn: interrupted.\n",
        out,
    )
