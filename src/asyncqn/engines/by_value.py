"""Python objects on their way to another process of the same run: pickles, by value where that is needed.

Only processes of one run, or of one check, read them: no file of asyncqn is a pickle.
"""

from __future__ import annotations

import pickle
from importlib import import_module
from typing import Any

PACKAGES = ("cloudpickle", "ray.cloudpickle", "joblib.externals.cloudpickle")
"""Modules that may have a pickler which sends classes by value; the last two come with other packages."""


class NotPicklable(Exception):
    """Reason why an object cannot be sent; its cause is the pickler's error, None if a package is missing."""


def pickled(value: Any, buffers: list[pickle.PickleBuffer] | None = None) -> bytes:
    """Pickle an object; a class that the user's script defines travels by value, if a package can do that.

    By name the other process would look for it in its own script.  `buffers` receives the arrays, so that
    they are not copied into the pickle.
    """
    # The first protocol that keeps large arrays outside of the pickle.
    options: dict[str, Any] = {"protocol": 5}
    if buffers is not None:
        options["buffer_callback"] = buffers.append
    cause: Exception | None = None
    try:
        content = pickle.dumps(value, **options)
        # A class of the script itself is pickled by name, "__main__.Class", which means another script
        # elsewhere.
        if b"__main__" not in content:
            return content
    except Exception as error:  # whatever the class's own __reduce__ may raise
        cause = error
    for package in PACKAGES:
        try:
            dumps = import_module(package).dumps
        except ModuleNotFoundError:
            continue
        if buffers is not None:
            # The failed attempt may have filled it already.
            buffers.clear()
        try:
            content = bytes(dumps(value, **options))
        except Exception as error:
            raise NotPicklable(_first_words(error)) from error
        return content
    raise NotPicklable(
        _first_words(cause) if cause else "it is defined in the script itself"
    ) from cause


def _first_words(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".:")
