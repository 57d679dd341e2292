"""Tables of the experiments: lists of records in memory, Parquet on disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, DamagedFile, MissingExtra
from asyncqn.storage import write_whole

Record = dict[str, Any]
"""Plain numbers and words; a number that does not exist is None, never NaN."""


def column(records: Iterable[Record], name: str) -> npt.NDArray[np.float64]:
    """Return one column as numbers; None becomes NaN."""
    values = (record.get(name) for record in records)
    return np.array([np.nan if value is None else float(value) for value in values])


def write_table(records: Sequence[Record], stem: Path) -> None:
    """Write `stem`.parquet, whole or not at all; numbers keep four digits there."""
    pyarrow, parquet = _arrow()
    names = list(dict.fromkeys(name for record in records for name in record))
    columns = {name: [record.get(name) for record in records] for name in names}
    table = pyarrow.table(columns)
    floating = []
    for k, field in enumerate(table.schema):
        if field.type == pyarrow.float64():
            floating.append(field.name)
            numbers = four_digits(column(records, field.name))
            short = pyarrow.array(numbers, pyarrow.float32(), from_pandas=True)
            table = table.set_column(k, field.name, short)
    content = BytesIO()
    parquet.write_table(
        table,
        content,
        compression="zstd",
        compression_level=19,
        use_dictionary=[name for name in names if name not in floating],
        # Equal bytes of neighbours stand together, which halves the published files.
        use_byte_stream_split=floating,
    )
    write_whole(stem.with_suffix(".parquet"), content.getvalue())


def four_digits(numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the numbers with mantissas of 14 bits, which suffice for every rule and figure."""
    mantissa, exponent = np.frexp(numbers)
    return np.ldexp(np.round(mantissa * 2.0**14) / 2.0**14, exponent)


def read_table(stem: Path) -> list[Record]:
    """Return the records of `stem`.parquet."""
    pyarrow, parquet = _arrow()
    path = stem.with_suffix(".parquet")
    if not path.is_file():
        raise BadInput(f"{path} does not exist: run the experiment first.")
    try:
        records: list[Record] = parquet.read_table(path).to_pylist()
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
