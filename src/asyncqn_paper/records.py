"""Tables of the experiments: lists of records in memory, Parquet on disk."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from asyncqn.errors import BadInput, DamagedFile, MissingExtra
from asyncqn.storage import write_whole

Record = dict[str, Any]
"""Plain numbers and words; a number that does not exist is None, never NaN."""


def write_table(records: Sequence[Record], stem: Path) -> None:
    """Write `stem`.parquet, whole or not at all; numbers keep four digits there."""
    pyarrow, parquet = _arrow()
    names = list(dict.fromkeys(name for record in records for name in record))
    columns = {}
    numbers = []
    for name in names:
        column = pyarrow.array([record.get(name) for record in records])
        if column.type == pyarrow.float64():
            numbers.append(name)
            # Mantissas of 14 bits suffice for every rule and figure, and compress to a third.
            mantissa, exponent = np.frexp(column.to_numpy(zero_copy_only=False))
            rounded = np.ldexp(np.round(mantissa * 2.0**14) / 2.0**14, exponent)
            column = pyarrow.array(rounded, pyarrow.float32(), from_pandas=True)
        columns[name] = column
    content = BytesIO()
    parquet.write_table(
        pyarrow.table(columns),
        content,
        compression="zstd",
        compression_level=19,
        use_dictionary=[name for name in names if name not in numbers],
        # Equal bytes of neighbours stand together, which halves the published files.
        use_byte_stream_split=numbers,
    )
    write_whole(stem.with_suffix(".parquet"), content.getvalue())


def read_table(stem: Path) -> list[Record]:
    """Return the records of `stem`.parquet."""
    pyarrow, parquet = _arrow()
    path = stem.with_suffix(".parquet")
    try:
        records: list[Record] = parquet.read_table(path).to_pylist()
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist: run the experiment first.") from None
    except pyarrow.ArrowException:
        raise DamagedFile(
            f"{path} is damaged: delete it and run the experiment again."
        ) from None
    return records


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "data", "writing tables of experiments") from None
    return pyarrow, pyarrow.parquet
