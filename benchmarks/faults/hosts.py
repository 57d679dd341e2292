"""Hosts made of namespaces, joined by a virtual switch whose ports can be pulled.

    with Hosts(Path("scratch"), 2) as hosts:
        process = hosts[0].start(["python", "job.py"])
        hosts.pull(1)
        hosts.plug(1)

A host has its own network, host name, table of processes, /tmp, /dev/shm and, at one path that all
hosts share, a folder of its own (`HERE` under the scratch folder).  The switch is a bridge in a
namespace of its own, so that pulling a port looks like a pulled cable: packets vanish, no process
hears of it.  All processes of a host die with its first one, and that one dies with this program,
however it ends; the namespaces and links go with them, and nothing is left to clean up.
Linux, root, util-linux and iproute2 are needed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from benchmarks.faults import host_shell

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = "here"
"""Under the scratch folder: what a host sees of its own folder."""
LINK = "lan0"
"""The network interface of every host."""
SUBNET = "10.77.0"


class Host:
    """One machine; `init` is the process with which it lives and dies, as this program numbers it."""

    def __init__(self, scratch: Path, number: int) -> None:
        self.name, self.address = f"host{number + 1}", f"{SUBNET}.{number + 1}"
        self.disk, self.here = scratch / self.name, scratch / HERE
        self.disk.mkdir(parents=True)
        self.here.mkdir(exist_ok=True)
        self.holder = _unshare(
            ["-m", "benchmarks.faults.host_shell", self.name, self.disk, self.here]
        )
        self.init = _child(self.holder)
        until = time.monotonic() + 20.0
        while not (self.disk / host_shell.READY).exists():
            if self.holder.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{self.name} did not start.")
            time.sleep(0.02)

    def inside(self, command: Sequence[object]) -> list[str]:
        """Return the command, entering this host first."""
        return [
            "nsenter",
            "--target",
            str(self.init),
            "--all",
            f"--wdns={self.here}",
            *map(str, command),
        ]

    def start(
        self,
        command: Sequence[object],
        output: IO[str] | int = subprocess.PIPE,
        **environment: str,
    ) -> subprocess.Popen[str]:
        """Return a process on this host, all its output in one pipe or file."""
        return subprocess.Popen(
            self.inside(command),
            env={**_environment(), **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    def call(
        self, command: Sequence[object], timeout: float = 200.0, **environment: str
    ) -> str:
        """Return the output of a short command on this host; raise if it fails."""
        process = self.start(command, **environment)
        try:
            out, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        if process.returncode:
            raise RuntimeError(f"{command} failed on {self.name}: {out}")
        return out

    def kill(self) -> None:
        """Every process of this host is gone at once."""
        with suppress(ProcessLookupError):
            os.kill(self.init, signal.SIGKILL)
        self.holder.wait()


class Hosts:
    """`count` hosts on one switch; see the top of this file."""

    def __init__(self, scratch: Path, count: int = 2) -> None:
        for tool in ("unshare", "nsenter", "setpriv", "ip"):
            if shutil.which(tool) is None:
                raise SystemExit(
                    f"the program '{tool}' is missing: install util-linux and iproute2."
                )
        if os.geteuid() != 0:
            raise SystemExit(
                "namespaces need root: run this program as root, on a machine for tests."
            )
        # Otherwise the host would not find the program that it has to run.
        if ROOT.is_relative_to("/tmp") or Path(sys.prefix).is_relative_to("/tmp"):
            raise SystemExit(
                "a host has a /tmp of its own: let checkout and Python live elsewhere."
            )
        self.scratch, self.count = scratch, count
        self.hosts: list[Host] = []

    def __enter__(self) -> Hosts:
        try:
            self._build()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for host in self.hosts:
            host.kill()
        if hasattr(self, "switch"):
            self.switch.kill()
            self.switch.wait()

    def __getitem__(self, number: int) -> Host:
        return self.hosts[number]

    def _build(self) -> None:
        self.switch = _unshare(["-c", "import time; time.sleep(1e6)"], full=False)
        self._in_switch("ip", "link", "add", "switch", "type", "bridge")
        self._in_switch("ip", "link", "set", "switch", "up")
        for number in range(self.count):
            host = Host(self.scratch, number)
            self.hosts.append(host)
            port = f"port{number}"
            self._in_switch(
                "ip",
                "link",
                "add",
                port,
                "type",
                "veth",
                "peer",
                "name",
                LINK,
                "netns",
                host.init,
            )
            self._in_switch("ip", "link", "set", port, "master", "switch", "up")
            host.call(["ip", "addr", "add", f"{host.address}/24", "dev", LINK])
            host.call(["ip", "link", "set", LINK, "up"])
        names = "".join(f"{host.address} {host.name}\n" for host in self.hosts)
        for host in self.hosts:
            (host.disk / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
            host.call(["mount", "--bind", host.here / "hosts", "/etc/hosts"])
            self._wait_for_shell(host)

    def _wait_for_shell(self, host: Host) -> None:
        until = time.monotonic() + 20.0
        # Over the link, because that is what the launchers will use.
        while "ready" not in self.hosts[0].call(
            [*shell_command(), host.address, "echo", "ready"]
        ):
            if time.monotonic() > until:
                raise RuntimeError(f"{host.name} cannot be reached over the link.")
            time.sleep(0.1)

    def _in_switch(self, *command: object) -> None:
        entering = [
            "nsenter",
            "--target",
            str(self.switch.pid),
            "--net",
            *map(str, command),
        ]
        subprocess.run(entering, check=True)

    def pull(self, number: int) -> None:
        """Cut the link of a host: what is sent to it or by it is lost without a word."""
        self._in_switch("ip", "link", "set", f"port{number}", "down")

    def plug(self, number: int) -> None:
        """Restore the link of a host."""
        self._in_switch("ip", "link", "set", f"port{number}", "up")


def shell_command() -> list[str]:
    """Return the program that runs a command on another host; address and command follow, as with ssh."""
    return [sys.executable, host_shell.__file__, "run"]


def _environment() -> dict[str, str]:
    paths = [str(ROOT), str(ROOT / "src")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


def _unshare(python: Sequence[object], full: bool = True) -> subprocess.Popen[bytes]:
    """This Python in new namespaces, killed when this program dies."""
    new = (
        ["--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child"] if full else []
    )
    command = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        "unshare",
        "--net",
        *new,
        sys.executable,
        *map(str, python),
    ]
    # unshare complains when its child is killed, which is how a host ends.
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    # The inode number identifies a namespace; it changes when the process has entered its own.
    outer = os.stat("/proc/self/ns/net").st_ino
    until = time.monotonic() + 20.0
    while os.stat(f"/proc/{process.pid}/ns/net").st_ino == outer:
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError("no new network namespace could be made.")
        time.sleep(0.01)
    return process


def _child(process: subprocess.Popen[bytes]) -> int:
    """Return the one child of a process, once it is there."""
    until = time.monotonic() + 20.0
    while process.poll() is None and time.monotonic() < until:
        children = (
            Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        )
        if children:
            return int(children[0])
        time.sleep(0.01)
    raise RuntimeError("the first process of a host did not start.")
