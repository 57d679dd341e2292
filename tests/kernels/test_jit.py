"""Compiled kernels are forgotten when any source beside them changes."""

from __future__ import annotations

from pathlib import Path

from asyncqn.kernels.jit import drop_stale_cache


def test_a_changed_source_drops_every_compiled_kernel_beside_it(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "b.py").write_text("y = 1\n")
    assert drop_stale_cache(tmp_path)
    compiled = tmp_path / "__pycache__" / "b.kernel.nbi"
    compiled.write_bytes(b"compiled")
    assert not drop_stale_cache(tmp_path)
    assert compiled.exists()
    (tmp_path / "a.py").write_text("x = 22\n")
    assert drop_stale_cache(tmp_path)
    assert not compiled.exists()


def test_a_folder_that_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    assert not drop_stale_cache(tmp_path / "missing")
