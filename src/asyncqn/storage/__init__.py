"""The one writer and reader of everything on disk: files, sealed folders, growing logs, locks.

Reading order: `opening` (which files may be opened), `writing` (atomic replacement of files and folders),
`reading` and `arrays` (checks before anything is believed), `logs` and `growing` (what only grows), `locks`,
and `serialise` (parameters as JSON).

May import: errors, parameters.
"""

from asyncqn.storage.arrays import Spec
from asyncqn.storage.opening import check_output, open_input
from asyncqn.storage.reading import Document, read_folder
from asyncqn.storage.serialise import to_json
from asyncqn.storage.writing import FolderKind, write_folder, write_whole

__all__ = [
    "Document",
    "FolderKind",
    "Spec",
    "check_output",
    "open_input",
    "read_folder",
    "to_json",
    "write_folder",
    "write_whole",
]
