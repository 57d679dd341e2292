"""What a checkout of posteriordb holds: the data of a posterior, and its reference draws."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np


class Database:
    """A checkout of https://github.com/stan-dev/posteriordb; nothing of it is kept in this repository."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "posterior_database"
        if not self.root.is_dir():
            raise SystemExit(
                f"{folder} is no checkout of posteriordb: it has no folder posterior_database."
            )

    def _unzipped(self, path: Path) -> Any:
        with zipfile.ZipFile(path) as archive:
            return json.loads(archive.read(archive.namelist()[0]))

    def data(self, posterior: str) -> dict[str, Any]:
        """The data of a posterior, as its Stan program reads them."""
        name = json.loads((self.root / "posteriors" / f"{posterior}.json").read_text())[
            "data_name"
        ]
        found: dict[str, Any] = self._unzipped(
            self.root / "data" / "data" / f"{name}.json.zip"
        )
        return found

    def reference(self, posterior: str) -> dict[str, np.ndarray]:
        """Reference draws by parameter, each of shape (chains, draws)."""
        folder = self.root / "reference_posteriors" / "draws" / "draws"
        chains = self._unzipped(folder / f"{posterior}.json.zip")
        return {name: np.array([chain[name] for chain in chains]) for name in chains[0]}
