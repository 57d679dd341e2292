"""Two hosts made of namespaces, on which MPI and Ray run, lose processes, hosts and the link between them.

    python -m benchmarks.faults.two_hosts [WORD ...]

Runs the trials whose name contains one of the words (all, without any) and writes what happened into
docs/results/two_hosts.csv and .md, in place of what stood there of the same trials.  Root is needed;
see `hosts`.  Every trial is bounded in time, and nothing is left behind.
"""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.faults.clusters import Cluster, MpiCluster, RayCluster
from benchmarks.faults.hosts import Host, Hosts
from benchmarks.faults.table import RESULTS, write_table
from benchmarks.faults.two_hosts_job import PACE, RATINGS, make_ratings

COMMITS = 1200
"""About half a minute of four workers."""
BEGUN = 100
"""Commits after which something is done to the run."""
LIMIT = 120.0
"""Seconds after an event within which a run must end, or is ended."""

COLUMNS = (
    "engine", "event", "the run", "commits", "workers lost", "noticed after, s", "longest pause, s",
    "replays bit for bit", "left on host 2", "after resume", "last words",
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """An engine and how it is started."""

    name: str
    cluster: type[Cluster]
    options: tuple[str, ...] = ()
    give_up: float = float("inf")


ULFM = ("--with-ft", "ulfm")
KEEPALIVE = (
    "--prtemca", "oob_tcp_keepalive_time", "5", "--prtemca", "oob_tcp_keepalive_intvl", "2",
    "--prtemca", "oob_tcp_keepalive_probes", "3",
)  # fmt: skip
HEARTBEAT = ("--mca", "mpi_ft_detector", "true")
SETTINGS = (
    Setting("MPI", MpiCluster),
    Setting("MPI, ULFM", MpiCluster, ULFM),
    Setting("MPI, ULFM, heartbeats", MpiCluster, (*ULFM, *HEARTBEAT)),
    Setting("MPI, ULFM, keepalive", MpiCluster, (*ULFM, *KEEPALIVE)),
    Setting("MPI, ULFM, give up after 5 s", MpiCluster, ULFM, 5.0),
    Setting("Ray", RayCluster),
    Setting("Ray, give up after 5 s", RayCluster, (), 5.0),
)


def _nothing(hosts: Hosts) -> None:
    pass


def _kill_worker(hosts: Hosts) -> None:
    pattern = (
        "two_hosts_job"
        if "two_hosts_job" in hosts[1].call(["ps", "ax"])
        else "ray::Worker"
    )
    lines = hosts[1].call(["ps", "axo", "pid,args"]).splitlines()
    process = next(
        line.split()[0] for line in lines if pattern in line and "prted" not in line
    )
    hosts[1].call(["kill", "-KILL", process])


def _kill_host(hosts: Hosts) -> None:
    hosts[1].kill()


def _power_cut(hosts: Hosts) -> None:
    hosts.pull(1)
    hosts[1].kill()


def _pull_20_s(hosts: Hosts) -> None:
    hosts.pull(1)
    time.sleep(20.0)
    hosts.plug(1)


def _pull(hosts: Hosts) -> None:
    hosts.pull(1)


EVENTS: dict[str, Callable[[Hosts], None]] = {
    "none": _nothing,
    "a worker on host 2 is killed": _kill_worker,
    "all processes of host 2 are killed": _kill_host,
    "host 2 loses power": _power_cut,
    "link cut for 20 s": _pull_20_s,
    "link cut for good": _pull,
}


class Progress:
    """The lines that the job wrote about its commits: time, commit, number of workers."""

    def __init__(self, host: Host) -> None:
        self.file = host.disk / "progress"

    def rows(self) -> list[tuple[float, int, int]]:
        if not self.file.exists():
            return []
        lines = self.file.read_text().splitlines()
        fields = [line.split() for line in lines]
        return [(float(f[0]), int(f[1]), int(f[2])) for f in fields if len(f) == 3]

    def reaches(
        self, commit: int, process: subprocess.Popen[str], seconds: float = 300.0
    ) -> bool:
        until = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < until:
            rows = self.rows()
            if rows and rows[-1][1] >= commit:
                return True
            time.sleep(0.1)
        return False


def _ended(process: subprocess.Popen[str], seconds: float) -> bool:
    """Return whether the process ended by itself in time."""
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _report(out: str) -> dict[str, Any]:
    for line in reversed(out.splitlines()):
        if line.startswith('{"status"'):
            found: dict[str, Any] = json.loads(line)
            return found
    return {}


def _last_words(out: str) -> str:
    """Return the sentence that tells a user what happened: that of asyncqn, or else the last line."""
    lines = [
        " ".join(line.replace("\0", "").split())
        for line in out.splitlines()
        if line.strip(" -\0\n")
    ]
    ours = [line for line in lines if line.startswith("asyncqn")]
    others = [
        line
        for line in lines
        if "lost communication" in line or "Segmentation fault" in line
    ]
    told = [*others, *ours] or [line for line in lines if line[0] not in "{["]
    return told[-1][:160].replace("|", "/") if told else ""


def trial(setting: Setting, event: str) -> dict[str, str]:
    """Run once, let the event happen, and return a row of the table."""
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp", prefix="asyncqn-") as scratch,
        Hosts(Path(scratch)) as hosts,
    ):
        for host in hosts.hosts:
            make_ratings(host.disk / RATINGS)
        cluster = setting.cluster(hosts, setting.options)
        process = cluster.start(COMMITS, setting.give_up)
        progress = Progress(hosts[0])
        if not progress.reaches(BEGUN, process):
            process.kill()
            raise RuntimeError(
                f"{setting.name}: the run did not begin: {cluster.said()[-2000:]}"
            )
        if _computing(hosts[1]) == 0:
            raise RuntimeError(f"{setting.name}: no worker is on the second host.")
        moment = time.time()
        EVENTS[event](hosts)
        ended = _ended(process, LIMIT)
        over, out = time.time(), cluster.said()
        rows = progress.rows()
        report = _report(out)
        print(out, flush=True)
        row = {
            "engine": setting.name,
            "event": event,
            "the run": _how(ended, process.returncode, report, over - moment),
            "commits": str(rows[-1][1]),
            "workers lost": str(report.get("lost", "")),
            "noticed after, s": _noticed(
                rows, moment, over if ended and not report else None
            ),
            "longest pause, s": f"{_longest_pause(rows, moment):.1f}",
            "replays bit for bit": {True: "yes", False: "NO", None: ""}[
                report.get("replayed")
            ],
            "left on host 2": _left(hosts, event),
            "after resume": "",
            "last words": _last_words(out),
        }
        if report.get("status") != "completed":
            row["after resume"] = _resume(hosts, cluster, process, ended)
        return row


def _how(ended: bool, code: int | None, report: dict[str, Any], seconds: float) -> str:
    if not ended:
        what = (
            f"{report['status']} and saved, but its launcher is" if report else "it is"
        )
        return f"{what} still there after {LIMIT:.0f} s"
    return f"{report['status'] if report else 'failed'}, exit code {code}, after {seconds:.0f} s"


def _noticed(
    rows: list[tuple[float, int, int]], moment: float, failed: float | None
) -> str:
    """Seconds until the master had fewer workers than before, or the run failed."""
    before = [workers for when, _, workers in rows if when <= moment]
    for when, _, workers in rows:
        if when > moment and workers < before[-1]:
            return f"{when - moment:.1f}"
    return f"{failed - moment:.1f}" if failed is not None else "not"


def _longest_pause(rows: list[tuple[float, int, int]], moment: float) -> float:
    """Between two commits, from the last before the event on."""
    times = [when for when, _, _ in rows]
    first = max((i for i, when in enumerate(times) if when <= moment), default=0)
    return max((b - a for a, b in zip(times[first:], times[first + 1 :])), default=0.0)


def _left(hosts: Hosts, event: str) -> str:
    """Processes that compute on the second host 20 s after the end."""
    if hosts[1].holder.poll() is not None:
        return "-"
    time.sleep(20.0)
    return str(_computing(hosts[1]))


def _computing(host: Host) -> int:
    """Processes of workers on a host."""
    lines = host.call(["ps", "axo", "args"]).splitlines()
    return sum(
        "two_hosts_job" in line or "ray::Worker" in line
        for line in lines
        if "prte" not in line
    )


def _resume(
    hosts: Hosts, cluster: Cluster, process: subprocess.Popen[str], ended: bool
) -> str:
    """Continue from the checkpoint on the first host's disk, without the second host."""
    if not ended:
        for line in hosts[0].call(["ps", "axo", "pid,args"]).splitlines():
            if "two_hosts_job" in line or "mpiexec" in line or "prterun" in line:
                hosts[0].call(["sh", "-c", f"kill -KILL {line.split()[0]} || true"])
        process.kill()
        process.wait()
    again = cluster.start(COMMITS, float("inf"), alone=True)
    if not _ended(again, 150.0):
        again.kill()
        return "no end within 150 s"
    out = cluster.said()
    report = _report(out)
    if not report:
        return f"failed: {_last_words(out)}"
    replayed = "replays bit for bit" if report["replayed"] else "DOES NOT REPLAY"
    return f"{report['status']}, {report['commits']} commits, {replayed}"


def trials() -> list[tuple[Setting, str]]:
    """Return the trials: every event with default settings; with others, the events they are meant for."""
    everything = {"MPI", "MPI, ULFM", "Ray"}
    pairs = [(setting, event) for setting in SETTINGS for event in EVENTS]
    return [
        (s, e) for s, e in pairs if s.name in everything or e.startswith("link cut")
    ]


HIDDEN = ("last words",)
"""Columns that only the file has."""

WORDS = f"""
# Two hosts

`python -m benchmarks.faults.two_hosts` makes two hosts from Linux namespaces, each with its own disk. The
master and two workers are on host 1, two workers on host 2. A run of {COMMITS} commits (four workers that
take {PACE} s for a step) writes a checkpoint every second. {BEGUN} commits after its start the
event happens, and a run that has not ended {LIMIT:.0f} s later is killed.
Every row is one trial on two busy cores
([with the last output of the programs](two_hosts.csv)). [What follows for your cluster](../guide/cluster.md).

- *noticed after*: until the master had fewer workers, or the run failed (*not measured*: it began with
  fewer than four).
- *longest pause*: between two commits, from the event on.
- *left on host 2*: processes of workers there 20 s after the end; "-" where the host is gone.
- *after resume*: what became of a run that did not complete when it was resumed on host 1 alone.

*ULFM* is `mpiexec --with-ft ulfm`; *heartbeats* adds `--mca mpi_ft_detector true`; *keepalive* adds
`{" ".join(KEEPALIVE)}`; *give up after 5 s* is the engine's own limit for a worker that does not answer. Rows
of a 20 s cut (Ray with a limit apart) were measured before an MPI master stopped waiting for lost workers.
"""


def answer(rows: Sequence[Mapping[str, str]]) -> str:
    """Return the sentence about all trials."""
    alone = sum(row["the run"].startswith("completed") for row in rows)
    resumed = sum(row["after resume"].startswith("completed") for row in rows)
    return (
        f"**In {alone} of {len(rows)} trials the run completed without help; in {resumed} more it "
        "completed after a resume on\nthe host that was left.** The rows below say which events end a run "
        "on which engine."
    )


def words() -> str:
    """Return the text above the table, with the trials that are missing."""
    table, there = RESULTS / "two_hosts.csv", set()
    if table.exists():
        with table.open(newline="", encoding="utf-8") as stored:
            there = {(row["engine"], row["event"]) for row in csv.DictReader(stored)}
    missing = [
        f"{s.name}, {event}" for s, event in trials() if (s.name, event) not in there
    ]
    return WORDS + (f"\nNot measured: {'; '.join(missing)}.\n" if missing else "")


def main(picks: list[str]) -> None:
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # so that what was made is removed
    chosen = [
        t
        for t in trials()
        if not picks or any(w in f"{t[0].name}: {t[1]}" for w in picks)
    ]
    for setting, event in chosen:
        print(f"== {setting.name}: {event}", flush=True)
        try:
            row = trial(setting, event)
        except (RuntimeError, subprocess.SubprocessError) as error:
            print(f"not measured: {error}", flush=True)
            continue
        print(json.dumps(row, indent=1), flush=True)
        table = RESULTS / "two_hosts"
        write_table(
            table, COLUMNS, [row], keys=2, words=words(), hidden=HIDDEN, answer=answer
        )


if __name__ == "__main__":
    main(sys.argv[1:])
