"""The program's help and version: complete, plain, and quick to come."""

from __future__ import annotations

import pytest
from cli.calls import call
from conftest import python

from asyncqn import __version__
from asyncqn.cli.jobfile import RunOptions
from asyncqn.cli.program import command_modules
from asyncqn.parameters import parameters_of

RECOMMENDER = command_modules("asyncqn_recommender.commands")
COMMANDS = [
    *([name] for name in command_modules() if name != "recommender"),
    *(["recommender", name] for name in RECOMMENDER),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_a_sentence(
    command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = call(capfd, *command, "--help")
    assert code == 0
    assert "--json" in out
    assert all(len(line) <= 100 for line in out.splitlines())


def test_options_of_a_run_are_described_by_its_docstring(
    capfd: pytest.CaptureFixture[str],
) -> None:
    text = " ".join(call(capfd, "run", "--help")[1].split())
    assert "--commits <int> Largest number of commits. [default: 5000]" in text
    for name in parameters_of(RunOptions):
        assert f"--{name.replace('_', '-')} " in text


def test_the_version_and_short_help_are_there(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert call(capfd, "--version")[:2] == (0, f"asyncqn {__version__}\n")
    code, out, _ = call(capfd, "-h")
    assert code == 0
    assert [name for name in command_modules() if f"\n  {name} " not in out] == []
    group = call(capfd, "recommender", "-h")[1]
    assert [name for name in RECOMMENDER if f"\n  {name} " not in group] == []
    assert call(capfd, "recommender") == (2, "", group)
    assert call(capfd) == (2, "", out), (
        "a command is missing, and the help says which there are"
    )
    for shell in ("bash", "zsh", "fish"):
        done = python("-m", "asyncqn", _ASYNCQN_COMPLETE=f"source_{shell}")
        assert (done.returncode, "asyncqn" in done.stdout) == (0, True)


def test_help_and_the_package_need_nothing_that_computes() -> None:
    program = (
        "import sys\n"
        "from asyncqn.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('numba', 'numpy', 'rich', 'pydantic') if name in sys.modules])\n"
    )
    done = python("-c", program)
    assert done.stdout.splitlines()[-1] == "[]"
