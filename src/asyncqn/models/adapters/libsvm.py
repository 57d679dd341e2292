"""Files in the libsvm format, `label index:value index:value ...` per line, read by scikit-learn."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, MissingExtra, require
from asyncqn.parameters import File, Precision, checked, parameter
from asyncqn.storage import check_input


@checked
def read_libsvm(
    path: File,
    *,
    n_features: Annotated[int | None, parameter(ge=1, le=2**31 - 1)] = None,
    dtype: Precision = np.float64,
) -> tuple[Any, npt.NDArray[np.float64]]:
    """Read rows and labels of a file in the libsvm format, plain or compressed by gzip or bzip2.

    Parameters
    ----------
    path : path
        The file.
    n_features : int, optional
        Number of columns of X; by default the largest that the file names, which can be too few for a test
        file.
    dtype : dtype, default float64
        Type of X, float64 or float32.

    Returns
    -------
    tuple
        (X, y): a sparse matrix in CSR form, and one label per row, for `LogisticRegression` and other
        models.

    Examples
    --------
    >>> import asyncqn as aq
    >>> from pathlib import Path
    >>> _ = Path("rows.txt").write_text("1 1:0.5 3:2\\n-1 2:1\\n1 3:1\\n-1 1:-1\\n")
    >>> X, y = aq.read_libsvm("rows.txt")
    >>> X.shape, aq.minimize(aq.LogisticRegression(X, y)).status
    ((4, 3), 'converged')
    """
    try:
        from sklearn.datasets import load_svmlight_file
    except ImportError:
        raise MissingExtra("scikit-learn", "sklearn", "reading libsvm files") from None
    try:
        # scikit-learn opens the path itself, and would also accept a pipe.
        check_input(path)
        X, y = load_svmlight_file(
            str(path), n_features=n_features, dtype=np.dtype(dtype)
        )
    except BadInput:
        raise
    except FileNotFoundError:
        raise BadInput(
            f"there is no file {str(path)!r}: give the path of a libsvm file."
        ) from None
    except OSError as error:  # a folder, a missing permission, or a broken archive
        raise BadInput(
            f"{str(path)!r} cannot be read: {error.strerror or error}."
        ) from None
    except (ValueError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{str(path)!r} is not a file in the libsvm format: {error}."
        ) from None
    require(len(y) > 0, f"{str(path)!r} is empty: a libsvm file has one line per row.")
    return X, y
