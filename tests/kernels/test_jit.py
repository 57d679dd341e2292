"""Compiled kernels are forgotten when any source beside them changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import python

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
    done = python("-c", PROGRAM, **told)
    folder, processor = done.stdout.splitlines()
    assert Path(folder).is_relative_to(tmp_path)
    assert (Path(folder) / "sources").exists(), (
        "what is compiled there is dropped when a source changes"
    )
    assert any(Path(folder).glob("*.nbc"))
    assert processor == ("generic with +sse4.2" if features else "generic")
