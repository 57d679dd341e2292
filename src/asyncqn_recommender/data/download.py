"""The official MovieLens archives: their addresses, and a download that resumes and is verified."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from asyncqn.errors import BadInput, DamagedFile
from asyncqn.storage import move, open_input, own_handle, require_own

URL = "https://files.grouplens.org/datasets/movielens/{}.zip"
MD5 = {
    "ml-100k": "0e33842e24a9c977be4e0107933c0723",
    "ml-1m": "c4d9eecfca2ab87c1945afe126590906",
    "ml-10m": "ce571fd55effeba0271552578f2648bd",
    "ml-20m": "cd245b17a1ae2cc31bb14903e1204af3",
    "ml-25m": "6b51fb2759a8657d3bfcbfc42b592ada",
}
"""The checksums that GroupLens publishes with its archives."""

_BLOCK = 1 << 20
_TIMEOUT = 30.0
_NETWORK = (urllib.error.URLError, http.client.HTTPException, ValueError, TimeoutError, ConnectionError)


def md5_of(path: Path) -> str:
    """Return the MD5 of a file in hexadecimal; it only identifies published archives, and is no
    protection."""
    with open_input(path) as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def download(name: str, folder: Path, say: Callable[[str], None]) -> Path:
    """Return the verified archive `name` in `folder`; an interrupted download is continued.

    If the continued file is damaged, the archive is downloaded once more from its beginning.
    """
    target, part = folder / f"{name}.zip", folder / f"{name}.zip.part"
    for path in (target, part):
        require_own(path)
    if target.is_file() and md5_of(target) == MD5[name]:
        return target
    url = URL.format(name)
    say(f"Downloading {url}")
    # A part of an earlier download may be damaged, so it gets a second chance from the start.
    for _ in range(2 if part.is_file() else 1):
        _fetch(url, part)
        if md5_of(part) == MD5[name]:
            return move(part, target)
        part.unlink()
    raise DamagedFile(f"the download of {url} differs from its published checksum: try again later.")


def _fetch(url: str, part: Path) -> None:
    """Download to `part`, after the bytes that it already has."""
    have = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        # A server that ignores the range sends the whole file with status 200.
        # `own_handle` refuses links, through which another user could direct the download elsewhere.
        with (
            urllib.request.urlopen(request, timeout=_TIMEOUT) as answer,
            os.fdopen(own_handle(part, os.O_WRONLY | os.O_CREAT), "wb") as out,
        ):
            out.truncate(have if answer.status == 206 else 0)
            out.seek(0, os.SEEK_END)
            while block := answer.read(_BLOCK):
                out.write(block)
            # `length` counts the bytes that were announced and have not arrived.
            if answer.length:
                raise ConnectionError(f"the connection closed {answer.length} bytes early")
    except _NETWORK as error:
        # 416: there is nothing left to send, so the part is complete or too long; the checksum decides.
        if not (have and isinstance(error, urllib.error.HTTPError) and error.code == 416):
            raise BadInput(
                f"cannot download {url}: get the archive another way and import it with --from FILE."
            ) from error
