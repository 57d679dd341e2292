"""The program as a whole, in a process of its own: streams, exit codes, nothing half-written."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sealed import data_file

import asyncqn as aq
from asyncqn import __version__
from asyncqn.cli.main import main
from asyncqn.cli.program import command_names
from asyncqn.core.replay import replay
from asyncqn.core.run import load_run
from asyncqn.storage import check_of

SMALL = ["--dim", "8", "--n-data", "24", "--workers", "3", "--commits", "40",
         "--algorithm", "async-sgd", "-p", "h=1e-5", "-p", "batch=2"]  # fmt: skip
DIVERGING = [*SMALL, "-p", "h=1.0", "--commits", "400"]


def asyncqn(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "asyncqn", *map(str, arguments)], cwd=cwd, capture_output=True, text=True,
        timeout=100, env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip


def call(capfd: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """The same in this process, without the second that starting Python costs."""
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    out, err = capfd.readouterr()
    return int(end.value.code or 0), out, err


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_simulate_save_show_replay_in_processes_of_their_own(tmp_path: Path) -> None:
    made = asyncqn("simulate", *SMALL, "--seed", "3", "--save", "runs/a", "--json", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    numbers = json.loads(made.stdout)
    assert numbers["run"] == "runs/a"
    assert "simulate: 40/40" in made.stderr, "progress goes to stderr"
    shown = asyncqn("show", "runs/a", "--plot", "a.svg", "--trace", "t/a.json", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    for word in ("completed", "async-sgd", "convergence", "staleness", "worker 2", "versions"):
        assert word in shown.stdout
    again = asyncqn("replay", "runs/a", "--json", "--quiet", cwd=tmp_path)
    assert (again.returncode, again.stderr) == (0, "")
    assert json.loads(again.stdout)["identical"] is True
    arrays = data_file(tmp_path / "runs" / "a").name
    expected = ["a.svg", "runs", "runs/a", f"runs/a/{arrays}", "runs/a/run.json", "t", "t/a.json"]
    assert files(tmp_path) == expected


def test_the_promised_keys_are_printed_and_quiet_prints_nothing_else(
    capfd: pytest.CaptureFixture[str],
) -> None:
    code, out, err = call(capfd, "simulate", *SMALL, "--json", "--quiet")
    numbers = json.loads(out)
    assert (code, err) == (0, "")
    promised = {"status", "commits", "time", "fun", "staleness_mean", "staleness_max", "pairs_accepted"}
    assert promised | {"pairs_rejected", "run", "error"} <= set(numbers)
    assert numbers["run"] is None
    assert (numbers["status"], numbers["commits"]) == ("completed", 40)
    # The mean tends to W - 1 = 2 from below, for the first computations of all workers read version 0.
    assert 1 < numbers["staleness_mean"] <= 2


def test_flags_go_over_the_job_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job.toml"
    job.write_text(
        "[problem]\ndim = 8\nn_data = 24\n[algorithm]\nkind = 'async-sgd'\nh = 1e-5\nbatch = 2\n"
        "[cluster]\nworkers = 3\n[run]\ncommits = 30\nseed = 1\n"
    )
    one = json.loads(call(capfd, "simulate", job, "--json", "-q")[1])
    two = json.loads(call(capfd, "simulate", job, "--json", "-q", "--commits", "12")[1])
    same = json.loads(call(capfd, "simulate", job, "--json", "-q", "-p", "h=1e-5", "--seed", "1")[1])
    other = json.loads(call(capfd, "simulate", job, "--json", "-q", "--seed", "2")[1])
    assert (one["commits"], two["commits"]) == (30, 12)
    assert one == same
    assert one["fun"] != other["fun"]


def test_a_diverged_run_exits_with_three_says_why_and_is_saved(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = call(capfd, "simulate", *DIVERGING, "--save", tmp_path / "d", "--json", "--quiet")
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


BAD = {
    "no such command": ["paint"],
    "no such option": ["simulate", "--colour", "red"],
    "missing argument of show": ["show"],
    "missing argument of replay": ["replay"],
    "too many arguments": ["simulate", "a.toml", "b.toml"],
    "text for a count": ["simulate", "--commits", "many"],
    "negative count": ["simulate", "--commits", "-3"],
    "no such job": ["simulate", "none.toml"],
    "no such run": ["show", "none"],
    "a file as run": ["replay", "file.txt"],
    "a foreign folder": ["show", "foreign"],
    "a foreign folder to save in": ["simulate", *SMALL, "--save", "foreign"],
    "a file to save in": ["simulate", *SMALL, "--save", "file.txt"],
    "below a file": ["simulate", *SMALL, "--save", "file.txt/run"],
    "a job that is no TOML": ["simulate", "file.txt"],
    "unknown algorithm": ["simulate", "--algorithm", "adam"],
    "unknown parameter": ["simulate", "-p", "rate=1"],
    "not key=value": ["simulate", "-p", "h"],
    "empty value": ["simulate", "-p", "h="],
    "zero workers": ["simulate", "--workers", "0"],
    "negative time": ["simulate", "--worker-mean", "-1"],
    "nan time": ["simulate", "--message", "nan"],
    "a cluster's field that is none": ["simulate", "--cluster", "lag=2"],
    "a cluster's field without a value": ["simulate", "--cluster", "link"],
    "a cluster's field that is no TOML": ["simulate", "--cluster", "times=pareto"],
    "no such law": ["simulate", "--cluster", 'times={kind="cauchy"}'],
    "shards of no number": ["simulate", "--algorithm", "async-sgd", "-p", "sampling=shards-0"],
    "too little data": ["simulate", "--dim", "10", "--n-data", "5"],
    "negative seed": ["simulate", "--seed", "-1"],
    "overlap above batch": ["simulate", "-p", "overlap=60"],
    "a serial method on many": ["simulate", "--algorithm", "lbfgs", "--workers", "2"],
    "a figure of no known kind": ["show", "run", "--plot", "a.bmp"],
    "a figure in a file": ["show", "run", "--plot", "file.txt/a.png"],
    "a trace in a file": ["show", "run", "--trace", "file.txt/a.json"],
    "infinite noise": ["simulate", "--noise-var", "inf"],
    "more memory than there is": [
        "simulate",
        *SMALL,
        "-p",
        "memory=10000000000000",
        "--algorithm",
        "as-lbfgs",
    ],
    "an address without Ray": ["run", "--address", "auto"],
    "a wire without MPI": ["run", "--wire", "float32"],
    "no name for ratings": ["fit", ""],
    "cut gzip": ["fit", "packed.csv.gz"],
    "a study of no workers": ["tune", "async-sgd", "--workers", "0"],
    "a study of no seeds": ["tune", "async-sgd", "--seeds", "0"],
    "a goal below zero": ["tune", "async-sgd", "--epsilon", "-1"],
    "a study in a folder": ["tune", "async-sgd", "--output", "foreign"],
    "a demo in a file": ["demo", "--output", "file.txt"],
    "more data than there are numbers": ["simulate", "--n-data", "99999999999999999999"],
    "a batch beyond memory": ["simulate", *SMALL, "-p", "batch=10000000000"],
    "a batch beyond every array": ["simulate", *SMALL, "-p", "batch=9223372036854775807"],
    "a batch beyond integers": ["simulate", *SMALL, "-p", "batch=99999999999999999999"],
    "a batch that is a float": ["simulate", *SMALL, "-p", "batch=1e10"],
    "a memory beyond integers": ["simulate", "--algorithm", "lbfgs", "-p", "memory=99999999999999999999"],
    "a seed beyond integers": ["simulate", "--seed", "9" * 30],
    "a job nested too deeply": ["simulate", "deep.toml"],
    "a number of 5,000 digits": ["simulate", "digits.toml"],
    **{
        f"a path of 5,000 letters to {' '.join(before)}": [*before, "x" * 5_000, *after]
        for before, after in (
            (["show"], []),
            (["replay"], []),
            (["resume"], []),
            (["simulate"], []),
            (["run"], []),
            (["simulate", *SMALL, "--save"], []),
            (["run", "--commits", "3", "--checkpoint"], []),
            (["show", "run", "--trace"], []),
            (["show", "run", "--plot"], []),
            (["fit"], []),
            (["fit", "synthetic-demo", "--out"], []),
            (["evaluate"], ["file.txt"]),
            (["recommend"], ["--user", "1"]),
            (["data", "mine", "--from"], []),
            (["demo", "--output"], []),
            (["tune", "async-sgd", "--output"], []),
            (["reproduce", "theory", "--output"], []),
        )
    },
}


@pytest.mark.parametrize("arguments", BAD.values(), ids=BAD)
def test_bad_input_is_one_line_on_stderr_with_exit_code_two_and_nothing_written(
    arguments: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.txt").write_text("just a file [")
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress(b"user,item,rating\n1,1,3\n")[:-9])
    (tmp_path / "deep.toml").write_text("[problem]\nkind = " + "[" * 20_000 + "]" * 20_000)
    (tmp_path / "digits.toml").write_text("[run]\ncommits = " + "9" * 5_000)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "letter.txt").write_text("dear")
    if "run" in arguments:
        call(capfd, "simulate", *SMALL, "--save", "run", "-q")
    before = files(tmp_path)
    code, out, err = call(capfd, *arguments, *(["-q"] if arguments[0] in command_names() else []))
    assert (code, out) == (2, "")
    assert err.startswith("asyncqn: ")
    assert err.count("\n") == 1, "one line"
    assert "Traceback" not in err
    assert files(tmp_path) == before


def test_a_missing_argument_says_which_and_where_to_read_more(capfd: pytest.CaptureFixture[str]) -> None:
    _, _, err = call(capfd, "show")
    assert "'run'" in err.lower()
    assert "show --help" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("simulate", "--algoritm", "sgd"), "there is no option --algoritm: did you mean --algorithm?"),
        (("simulate", "--zz", "1"), "there is no option --zz; try: asyncqn simulate --help"),
        (("simulate", "--foo"), "there is no option --foo; try: asyncqn simulate --help"),
        (("simulate", "--comits", "5"), "there is no option --comits: did you mean --commits?"),
        (
            ("tune", "async-sgd", "--target"),
            "option '--target' requires an argument; try: asyncqn tune --help",
        ),
        (("show", "none"), "none is not a saved run: it has no run.json, for there is no such folder."),
        (("show", __file__), f"{__file__} is not a saved run: it has no run.json, for it is a file."),
        (("compare", "a", "b", "--target", "nan"), "--target must be a finite number, not nan."),
        (
            ("fit", "synthetic-demo", "--duplicates", "all"),
            "duplicates must be one of error, last, first, mean, sum, not 'all'.",
        ),
        (("simulate", "--commits", "many"), "--commits must be an integer; try: asyncqn simulate --help"),
        (("watch", "run", "--every", "day"), "--every must be a number; try: asyncqn watch --help"),
    ],
)
def test_a_mistyped_option_or_number_is_named_in_plain_words(
    arguments: tuple[str, ...], sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call(capfd, *arguments) == (2, "", f"asyncqn: {sentence}\n")


@pytest.mark.parametrize("command", command_names())
def test_every_command_has_help_with_a_sentence(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capfd, command, "--help")
    assert code == 0
    assert "--json" in out
    assert not re.search(r"[<{]\w+[>}]|, ,", out), "no types of Python, no placeholders"
    assert all(len(line) <= 100 for line in out.splitlines())


def test_help_names_defaults_of_zero_of_switches_and_what_is_required(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert "start and the shuffling. [default: 0]" in " ".join(call(capfd, "fit", "--help")[1].split())
    assert "or a small one. [default: quick]" in " ".join(call(capfd, "reproduce", "--help")[1].split())
    assert "may be given several times. [required]" in call(capfd, "similar", "--help")[1]


def test_a_checkpoint_of_a_run_that_ended_does_not_advise_to_go_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call(capfd, "run", *SMALL, "--checkpoint", tmp_path / "c", "-q")[0] == 0
    assert "all that were asked for" in call(capfd, "show", tmp_path / "c")[1]


def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file.txt").write_text("just a file")
    below = tmp_path / "file.txt" / "deep" / "run"
    code, _, err = call(capfd, "simulate", *SMALL, "--save", below)
    assert code == 2
    assert "Cluster" not in err, "nothing was begun"
    code, _, err = call(capfd, "fit", "synthetic-demo", "--out", below)
    assert (code, err.count("\n")) == (2, 1)


def test_a_friction_above_its_limit_is_warned_of_in_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    _, out, err = call(capfd, "simulate", "--commits", "5", "-p", "gamma=0.5", "--json", "-q")
    assert err.count("\n") == 1
    assert err.startswith("asyncqn: warning: gamma = 0.5 exceeds")
    assert json.loads(out)["commits"] == 5


@pytest.mark.parametrize(("sent", "code", "word"), [(2, 130, "interrupted"), (15, 143, "terminated")])
def test_a_signal_ends_a_simulation_and_keeps_what_was_computed(
    sent: int, code: int, word: str, tmp_path: Path
) -> None:
    with begun(tmp_path, "--evaluate", "100", "--save", "run", "--json") as process:
        process.send_signal(sent)
        out, err = process.communicate(timeout=60)
    numbers = json.loads(out)
    assert process.returncode == code
    assert err.splitlines()[-1].startswith(f"asyncqn: {word} after {numbers['commits']} of 1000000 commits")
    assert (numbers["status"], numbers["run"]) == (word, "run")
    run = load_run(tmp_path / "run")
    assert run.nit == numbers["commits"] > 0
    assert (replay(run).theta == run.theta).all()


@contextmanager
def begun(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A long simulation in a process of its own, once its loop has begun."""
    command = [sys.executable, "-m", "asyncqn", "simulate", *SMALL, "--commits", "1000000", *arguments]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if re.match(r"simulate: \d", line):
                break
        yield process


def test_a_run_that_every_worker_left_is_no_success(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.toml"
    job.write_text(
        "[problem]\ndim = 8\nn_data = 24\n[algorithm]\nkind = 'async-sgd'\nh = 1e-5\nbatch = 2\n"
        "[cluster]\nworkers = 2\nworker_mean = 2.0\ndeaths = {0 = 20.0, 1 = 30.0}\n[run]\ncommits = 1000\n"
    )
    for command in (["simulate"], ["run", "--slow", "--time-unit", "1e-3"]):
        code, _, err = call(capfd, *command, job, "-q")
        assert code == 4
        assert err.startswith("asyncqn: stopped: every worker was gone after ")


def test_control_characters_of_a_file_do_not_reach_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call(capfd, "simulate", *SMALL, "--save", tmp_path / "a", "-q")[0] == 0
    document = json.loads((tmp_path / "a" / "run.json").read_text())
    document["message"] = "\x1b]0;owned\x07\x9b31m\u202egnp.exe"
    document["manifest"]["potential"]["name"] = "\x1b[2J"
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


def test_a_simulation_keeps_checkpoints_is_watched_shown_and_resumed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, options = tmp_path / "c", ["--checkpoint-every", "0.001", "--evaluate", "10"]
    code, _, _ = call(capfd, "simulate", *SMALL, *options, "--checkpoint", folder, "-q")
    assert code == 0
    shown = json.loads(call(capfd, "show", folder, "--json")[1])
    watched = json.loads(call(capfd, "watch", folder, "--json")[1])
    assert "simulated workers" in call(capfd, "watch", folder, "--once")[1]
    assert "a simulated run tells them when it ends" in call(capfd, "show", folder)[1]
    assert shown["commits_wanted"] == watched["commits_wanted"] == 40
    assert 0 < shown["commits"] == watched["commits"] <= 40
    assert (watched["living"], watched["workers"]) == (False, 3)
    assert "commit" in call(capfd, "watch", folder)[1]
    assert "convergence" in call(capfd, "show", folder)[1]
    code, out, _ = call(capfd, "resume", folder, "--json", "-q")
    assert (code, json.loads(out)["commits"]) == (0, 40)
    assert json.loads(out)["fun"] == json.loads(call(capfd, "simulate", *SMALL, "--json", "-q")[1])["fun"]


def test_a_living_run_is_seen_from_another_process(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "c"
    options = ["--checkpoint", str(folder), "--checkpoint-every", "0.05", "--evaluate", "1000"]
    with begun(tmp_path, *options) as process:
        while not (folder / "a" / "checkpoint.json").exists():
            time.sleep(0.02)
        watched = json.loads(call(capfd, "watch", folder, "--once", "--json")[1])
        assert (watched["living"], watched["commits_wanted"]) == (True, 1_000_000)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert json.loads(call(capfd, "watch", folder, "--json")[1])["living"] is False


def test_runs_are_compared_by_their_time_to_a_target(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, h in (("slow", "1e-6"), ("fast", "1e-5")):
        assert call(capfd, "simulate", *SMALL, "-p", f"h={h}", "--save", tmp_path / name, "-q")[0] == 0
    both = [tmp_path / "slow", tmp_path / "fast"]
    code, out, _ = call(capfd, "compare", *both, "--plot", tmp_path / "c.svg", "--json")
    compared = json.loads(out)
    slow, fast = compared["runs"]
    assert (code, compared["metric"], compared["target"]) == (0, "error", slow["best"])
    assert fast["time_to_target"] < slow["time_to_target"]
    assert (tmp_path / "c.svg").exists()
    _, out, _ = call(capfd, "compare", *both, "--target", "0")
    assert out.count("not reached") == 2
    assert "aaa" in out
    assert "bbb" in out
    assert "no column 'rmse'" in call(capfd, "compare", *both, "--metric", "rmse")[2]


def test_run_and_simulate_take_the_same_options(capfd: pytest.CaptureFixture[str]) -> None:
    algorithm = ["--algorithm", "async-sgd", "-p", "h=1e-5", "-p", "batch=2", "--dim", "8", "--n-data", "24"]
    code, out, _ = call(capfd, "run", *algorithm, "--commits", "20", "--workers", "1", "--json", "-q")
    assert (code, json.loads(out)["commits"]) == (0, 20)
    _, _, err = call(capfd, "run", "--worker-mean", "3")
    assert "--worker-mean describes a cluster to imitate: say --slow" in err


def test_every_field_of_a_cluster_can_be_said_on_the_command_line(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fields = ['times={kind="pareto", mean=40.0, shape=1.5}', "link=2.0", "deaths={3=500.0}",
              "recoveries={3=900.0}", "fixed=1.5"]  # fmt: skip
    said = [word for field in fields for word in ("--cluster", field)]
    code, _, _ = call(capfd, "simulate", *SMALL, *said, "--workers", "5", "--save", str(tmp_path / "run"))
    assert code == 0
    cluster = aq.Cluster(5, times=aq.Pareto(40.0, 1.5), message=10.0, link=2.0, deaths={3: 500.0},
                         recoveries={3: 900.0}, fixed=1.5)  # fmt: skip
    assert aq.Cluster.from_run(aq.load_run(tmp_path / "run")) == cluster


def test_a_wrong_command_is_answered_with_the_nearest(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capfd, "replai", "--json")
    assert code == 2
    assert err == "asyncqn: there is no command 'replai': did you mean replay?\n"
    assert json.loads(out) == {"error": err.removeprefix("asyncqn: ").strip()}


def test_the_version_and_short_help_are_there(capfd: pytest.CaptureFixture[str]) -> None:
    assert call(capfd, "--version")[:2] == (0, f"asyncqn {__version__}\n")
    code, out, _ = call(capfd, "-h")
    assert code == 0
    assert [name for name in command_names() if f"\n  {name} " not in out] == []
    for shell in ("bash", "zsh", "fish"):
        done = subprocess.run(
            [sys.executable, "-m", "asyncqn"],
            env={**os.environ, "_ASYNCQN_COMPLETE": f"source_{shell}"},
            capture_output=True,
            text=True,
        )
        assert (done.returncode, "asyncqn" in done.stdout) == (0, True)


def test_help_and_the_package_need_nothing_that_computes() -> None:
    program = (
        "import sys\n"
        "from asyncqn.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('numba', 'numpy', 'rich', 'pydantic') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_ctrl_c_during_an_import_ends_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nmore = 1\n")
    (tmp_path / "job.toml").write_text("[problem]\nkind = 'slow:Problem'\n")
    done = subprocess.run(
        [sys.executable, "-m", "asyncqn", "simulate", "job.toml", "--allow-imports"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr, done.stdout) == (130, "asyncqn: interrupted.\n", "")
