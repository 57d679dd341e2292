"""Commands that start MPI and Ray across two hosts."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.faults.hosts import LINK, Host, Hosts, shell_command
from benchmarks.faults.two_hosts_job import WORKERS

BIN = Path(sys.executable).parent
AS_ROOT = {
    f"{name}_ALLOW_RUN_AS_ROOT{more}": "1"
    for name in ("OMPI", "PRTE")
    for more in ("", "_CONFIRM")
}
RAY_PORT = 6379


class Cluster:
    """The hosts, and how a program is started across them."""

    def __init__(self, hosts: Hosts, options: Sequence[str]) -> None:
        self.hosts, self.options = hosts, options

    def prepare(self, alone: bool = False) -> None:
        """Make ready what must run before the job does."""

    def command(self, alone: bool) -> list[object]:
        """Return the command that starts the job on the first host; `alone`: without the second."""
        raise NotImplementedError

    def start(
        self, commits: int, give_up: float, alone: bool = False
    ) -> subprocess.Popen[str]:
        self.prepare(alone)
        job = [
            sys.executable,
            "-m",
            "benchmarks.faults.two_hosts_job",
            self.engine,
            commits,
            give_up,
        ]
        with self.output.open("w") as output:
            return self.hosts[0].start(
                [*self.command(alone), *job],
                output,
                OMP_NUM_THREADS="1",
                **self.environment,
            )

    @property
    def output(self) -> Path:
        """The output of the job: a file, because a launcher that hangs keeps a pipe open."""
        return self.hosts[0].disk / "output"

    def said(self) -> str:
        return self.output.read_text(errors="replace")

    engine = ""
    environment: dict[str, str] = {}


class MpiCluster(Cluster):
    """mpiexec on the first host; a launch agent in place of ssh starts Open MPI's daemon on the second."""

    engine = "mpi"
    environment = AS_ROOT

    def prepare(self, alone: bool = False) -> None:
        for (
            host
        ) in self.hosts.hosts:  # the daemon on the second host looks for the agent too
            agent = host.disk / "agent"
            agent.write_text(f'#!/bin/sh\nexec {" ".join(shell_command())} "$@"\n')
            agent.chmod(0o755)
            lines = [
                f"{h.name} slots={WORKERS + 1 if alone else 3}"
                for h in self.hosts.hosts
            ]
            (host.disk / "hostfile").write_text(
                "\n".join(lines[:1] if alone else lines) + "\n"
            )

    def command(self, alone: bool) -> list[object]:
        agent = self.hosts[0].here / "agent"
        return [
            BIN / "mpiexec", *self.options, "--hostfile", "hostfile", "-n", WORKERS + 1, "--bind-to", "none",
            "--prtemca", "plm_ssh_agent", agent, "--prtemca", "prte_if_include", LINK,
            "--mca", "btl_tcp_if_include", LINK, "--mca", "btl", "self,sm,tcp", "--mca", "pml", "ob1",
        ]  # fmt: skip


class RayCluster(Cluster):
    """A head on the first host, a node on the second, the driver on the first."""

    engine = "ray"

    def __init__(self, hosts: Hosts, options: Sequence[str]) -> None:
        super().__init__(hosts, options)
        # Ray's head lets nobody in without the token, and every host must be given the same.
        self.environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            **dict(option.split("=", 1) for option in options),
        }

    def prepare(self, alone: bool = False) -> None:
        head, node = self.hosts.hosts
        common = ["--num-cpus", "2"]
        if not self._answers(head):
            head.call(
                [BIN / "ray", "start", "--head", "--node-ip-address", head.address, "--port", RAY_PORT,
                 "--include-dashboard", "false", *common],
                **self.environment,
            )  # fmt: skip
        if not alone:
            node.call(
                [BIN / "ray", "start", "--address", f"{head.address}:{RAY_PORT}", "--node-ip-address",
                 node.address, *common],
                **self.environment,
            )  # fmt: skip

    def _answers(self, head: Host) -> bool:
        knock = f"import socket; socket.create_connection(('{head.address}', {RAY_PORT}), 2)"
        try:
            head.call([sys.executable, "-c", knock])
        except RuntimeError:
            return False
        return True

    def command(self, alone: bool) -> list[object]:
        return []
