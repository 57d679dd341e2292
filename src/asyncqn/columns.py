"""Table: named columns of numbers or texts, so that pandas is not a dependency."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, MissingExtra, require
from asyncqn.parameters import Kind, Refused, checked
from asyncqn.parameters.kinds import refuse_masked


def _column(value: Any) -> npt.NDArray[Any]:
    refuse_masked(value)
    try:
        column = np.asarray(value)
    except ValueError:
        raise Refused("a ragged array") from None
    # A single number has no length; NumPy would make an array without dimensions of it.
    if column.ndim == 0:
        raise Refused
    return column


COLUMN = Kind(("an array",), _column, in_files=False)


class Table(Mapping[str, npt.NDArray[Any]]):
    """Columns of equal length by name; `table.columns` lists the names and `table.rows` counts the rows.

    Libraries that read Arrow accept a table directly: `pl.DataFrame(table)`, `pa.table(table)`, DuckDB. For
    pandas there is `table.to_pandas()`.

    Parameters
    ----------
    columns : mapping from str to array-like
        The columns, all of the same length.

    Examples
    --------
    >>> from asyncqn.types import Table
    >>> table = Table({"commit": [0, 10], "fun": [3.0, 1.5]})
    >>> table.columns, table.rows, table.row(1)
    (['commit', 'fun'], 2, {'commit': 10, 'fun': 1.5})
    """

    @checked
    def __init__(
        self,
        columns: Mapping[str, Annotated[npt.ArrayLike, COLUMN]],
    ) -> None:
        self._columns: dict[str, npt.NDArray[Any]] = dict(columns)  # type: ignore[arg-type]
        shapes = {name: column.shape for name, column in self._columns.items()}
        if len(set(shapes.values())) > 1:
            clauses = [
                f"{name} has the shape {shape}" for name, shape in shapes.items()
            ]
            raise BadInput(
                f"the columns of a table must have the same length, but {', '.join(clauses)}."
            )

    @classmethod
    def from_records(cls, records: Sequence[Mapping[str, float]]) -> Table:
        """Make a table with one row per record; a missing number becomes NaN."""
        require(
            isinstance(records, (list, tuple))
            and all(isinstance(record, Mapping) for record in records),
            "records must be a list of dictionaries of numbers by name.",
        )
        # In the order of first appearance; later rows may have more columns.
        columns: dict[str, list[float]] = {}
        for row, record in enumerate(records):
            for name, value in record.items():
                columns.setdefault(name, [np.nan] * len(records))[row] = value
        return cls({name: np.array(column) for name, column in columns.items()})

    @property
    def columns(self) -> list[str]:
        return list(self._columns)

    @property
    def rows(self) -> int:
        return len(next(iter(self._columns.values()))) if self._columns else 0

    def row(self, index: int) -> dict[str, Any]:
        """Return one row as plain Python numbers."""
        return {name: column[index].item() for name, column in self._columns.items()}

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame (pandas must be installed)."""
        import pandas

        return pandas.DataFrame(self._columns)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the columns as a stream of the Arrow C interface (needs pyarrow, the extra `data`)."""
        try:
            import pyarrow
        except ImportError:
            raise MissingExtra(
                "pyarrow", "data", "Passing a table to another library"
            ) from None
        return pyarrow.table(self._columns).__arrow_c_stream__(requested_schema)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Raise TypeError: columns differ in type, and a library that wants one array would use the names."""
        # NumPy would otherwise iterate over the mapping and return an array of its column names.
        raise TypeError(
            "a table is not an array: use table['fun'], table.to_pandas() or dict(table)."
        )

    def __repr__(self) -> str:
        # A long table shows its ends, where runs begin and finish.
        long = self.rows > 10
        lines = [self.columns]
        lines += [self._texts(i) for i in range(5 if long else self.rows)]
        if long:
            lines.append(["..."] * len(self))
            lines += [self._texts(i) for i in range(self.rows - 5, self.rows)]
        return "\n".join("  ".join(f"{text:>12}" for text in line) for line in lines)

    def _texts(self, index: int) -> list[str]:
        """Return one row as texts."""
        values = [column[index] for column in self._columns.values()]
        return [value if isinstance(value, str) else f"{value:.6g}" for value in values]
