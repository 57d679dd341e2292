"""The one writer and reader of everything on disk: files, sealed folders, growing logs, locks.

Reading order: `opening` (which files may be opened), `writing` (atomic replacement of files and folders),
`reading` and `arrays` (checks before anything is believed), `logs` and `growing` (what only grows), `locks`,
and `serialise` (parameters as JSON).

May import: errors, parameters.
"""

from asyncqn.storage.arrays import FLOATS, INT32, INT64, TEXT, Spec
from asyncqn.storage.growing import GrowingRows
from asyncqn.storage.locks import FolderLock, NoLocks, held_by, sole_writer
from asyncqn.storage.logs import Log, LogEntry, LogFile, read_log
from asyncqn.storage.opening import (
    check_input,
    check_output,
    open_append,
    open_folder,
    open_input,
    open_own,
    own_handle,
    read_input,
    read_own,
    require_own,
    require_real_folder,
)
from asyncqn.storage.reading import (
    Document,
    decode,
    read_document,
    read_settled,
    telling_damage,
    version_of,
)
from asyncqn.storage.serialise import to_json
from asyncqn.storage.writing import (
    LONGEST_DOCUMENT,
    FileEntry,
    Kind,
    check_folder,
    check_of,
    check_place,
    move,
    npy,
    npz,
    remove_quietly,
    write_folder,
    write_whole,
)

__all__ = [
    "FLOATS",
    "INT32",
    "INT64",
    "LONGEST_DOCUMENT",
    "TEXT",
    "Document",
    "FileEntry",
    "FolderLock",
    "GrowingRows",
    "Kind",
    "Log",
    "LogEntry",
    "LogFile",
    "NoLocks",
    "Spec",
    "check_folder",
    "check_input",
    "check_of",
    "check_output",
    "check_place",
    "decode",
    "held_by",
    "move",
    "npy",
    "npz",
    "open_append",
    "open_folder",
    "open_input",
    "open_own",
    "own_handle",
    "read_document",
    "read_input",
    "read_log",
    "read_own",
    "read_settled",
    "remove_quietly",
    "require_own",
    "require_real_folder",
    "sole_writer",
    "telling_damage",
    "to_json",
    "version_of",
    "write_folder",
    "write_whole",
]
