"""Compiled kernels are forgotten when any source beside them changes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from asyncqn.kernels import jit
from asyncqn.kernels.jit import drop_stale_cache


def test_a_changed_source_drops_every_compiled_kernel_beside_it(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "b.py").write_text("y = 1\n")
    assert drop_stale_cache(tmp_path, tmp_path / "cache")
    compiled = tmp_path / "cache" / "b.kernel.nbi"
    compiled.write_bytes(b"compiled")
    assert not drop_stale_cache(tmp_path, tmp_path / "cache")
    assert compiled.exists()
    (tmp_path / "a.py").write_text("x = 22\n")
    assert drop_stale_cache(tmp_path, tmp_path / "cache")
    assert not compiled.exists()


def test_a_cache_that_cannot_be_written_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    assert not drop_stale_cache(tmp_path, tmp_path / "a.py" / "cache")


PROGRAM = """
from asyncqn.runs.provenance import versions
from asyncqn.kernels.jit import cache_folder
from asyncqn.kernels.vectors import dot
import numpy as np
dot(np.ones(3), np.ones(3))
print(cache_folder(), versions()["processor"], sep="\\n")
"""


@pytest.mark.parametrize("features", ["", "+sse4.2"])
def test_the_cache_and_the_manifest_follow_the_processor_that_numba_is_told(
    tmp_path: Path, features: str
) -> None:
    told = {
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": features,
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, env=os.environ | told, capture_output=True, text=True, check=True
    )
    folder, processor = done.stdout.splitlines()
    assert Path(folder).is_relative_to(tmp_path)
    assert (Path(folder) / "sources").exists(), (
        "what is compiled there is dropped when a source changes"
    )
    assert any(Path(folder).glob("*.nbc"))
    assert processor == ("generic with +sse4.2" if features else "generic")


READ_ONLY = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from asyncqn.kernels import jit
from asyncqn.kernels.vectors import dot
import numpy as np
dot(np.ones(3), np.ones(3))
assert Path(jit.__file__).is_relative_to(sys.argv[1])
print(jit.cache_folder())
"""


def test_where_the_package_cannot_be_written_kernels_are_kept_in_the_users_cache(
    tmp_path: Path,
) -> None:
    package = Path(jit.__file__).resolve().parents[1]
    there = tmp_path / "site" / "asyncqn"
    shutil.copytree(
        package, there, ignore=shutil.ignore_patterns("__pycache__", "tuned")
    )
    (there / "kernels" / "__pycache__").write_text(
        "a file, where root too can make no folder\n"
    )
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("NUMBA_")
    }
    environment |= {
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PYTHONPATH": "",
    }
    command = [sys.executable, "-B", "-c", READ_ONLY, str(tmp_path / "site")]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    )
    folder = Path(done.stdout.strip())
    assert folder.is_relative_to(tmp_path / "cache")
    assert any(folder.glob("*.nbc"))
