"""The pool of the cells: a killed process is one sentence, and a killed master leaves nobody behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import child_environment
from engines.test_processes import left_of

from asyncqn.errors import WorkerFailed
from asyncqn_paper.pool import pool

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="processes are looked up in /proc"
)


def test_a_killed_process_of_the_pool_is_one_sentence() -> None:
    with (
        pytest.raises(WorkerFailed, match=r"^a process of the pool was killed.*\.$"),
        pool(2) as executor,
    ):
        executor.submit(os._exit, 1).result()


HOLDS = """
import os, time
from asyncqn_paper.pool import pool

if __name__ == "__main__":
    with pool(2) as executor:
        print(*{job.result() for job in [executor.submit(os.getpid) for _ in range(2)]})
        jobs = [executor.submit(time.sleep, 600) for _ in range(2)]
        print(*executor._processes, flush=True)
        time.sleep(600)
"""


def test_a_killed_master_leaves_no_process_of_its_pool(tmp_path: Path) -> None:
    (tmp_path / "holds.py").write_text(HOLDS)
    command = [sys.executable, str(tmp_path / "holds.py")]
    with subprocess.Popen(
        command, env=child_environment(), stdout=subprocess.PIPE, text=True
    ) as master:
        assert master.stdout is not None
        master.stdout.readline()  # both have computed something
        children = {int(word) for word in master.stdout.readline().split()}
        master.send_signal(signal.SIGKILL)
    assert len(children) == 2
    assert left_of(children) == set()
