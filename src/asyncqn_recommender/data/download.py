"""The official MovieLens archives: their addresses, and a download that is verified."""

from __future__ import annotations

import hashlib
import http.client
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from asyncqn.errors import BadInput, DamagedFile
from asyncqn.storage import open_input

URL = "https://files.grouplens.org/datasets/movielens/{}.zip"
MD5 = {
    "ml-100k": "0e33842e24a9c977be4e0107933c0723",
    "ml-1m": "c4d9eecfca2ab87c1945afe126590906",
    "ml-10m": "ce571fd55effeba0271552578f2648bd",
    "ml-20m": "cd245b17a1ae2cc31bb14903e1204af3",
    "ml-25m": "6b51fb2759a8657d3bfcbfc42b592ada",
}
"""The checksums that GroupLens publishes with its archives."""

_TIMEOUT = 30.0
_NETWORK = (
    urllib.error.URLError,
    http.client.HTTPException,
    ValueError,
    TimeoutError,
    ConnectionError,
)


def md5_of(path: Path) -> str:
    """Return the MD5 of a file in hexadecimal; it identifies published archives, and is no protection."""
    with open_input(path) as stream:
        return hashlib.file_digest(
            stream, lambda: hashlib.md5(usedforsecurity=False)
        ).hexdigest()


@contextmanager
def downloaded(name: str) -> Iterator[Path]:
    """Yield the verified archive `name`, which is deleted at the end."""
    url = URL.format(name)
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / f"{name}.zip"
        try:
            with (
                urllib.request.urlopen(url, timeout=_TIMEOUT) as answer,
                archive.open("wb") as file,
            ):
                shutil.copyfileobj(answer, file)
                # `length` counts the bytes that were announced and have not arrived.
                if answer.length:
                    raise ConnectionError(
                        f"the connection closed {answer.length} bytes early"
                    )
        except _NETWORK as error:
            raise BadInput(
                f"cannot download {url}: get the archive another way and import it with --from FILE."
            ) from error
        except OSError as error:
            raise BadInput(
                f"{folder} cannot be written: {error.strerror or error}."
            ) from error
        if md5_of(archive) != MD5[name]:
            raise DamagedFile(
                f"the download of {url} differs from its published checksum: try again later."
            )
        yield archive
