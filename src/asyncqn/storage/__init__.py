"""The one writer and reader of everything on disk: whole files, sealed folders, growing logs, locks.

May import: errors.
"""

from asyncqn.storage.arrays import FLOATS, INT32, INT64, TEXT, Spec, map_array, read_arrays
from asyncqn.storage.growing import GrowingRows
from asyncqn.storage.locks import FolderLock, NoLocks, held_by
from asyncqn.storage.logs import Log, LogEntry, LogFile, read_log
from asyncqn.storage.reading import Document, decode, read_document, telling_damage
from asyncqn.storage.writing import (
    FileEntry,
    Kind,
    check_folder,
    check_of,
    check_place,
    move,
    npy,
    npz,
    remove_quietly,
    sole_writer,
    write_folder,
    write_whole,
)

__all__ = [
    "FLOATS",
    "INT32",
    "INT64",
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
    "check_of",
    "check_place",
    "decode",
    "held_by",
    "map_array",
    "move",
    "npy",
    "npz",
    "read_arrays",
    "read_document",
    "read_log",
    "remove_quietly",
    "sole_writer",
    "telling_damage",
    "write_folder",
    "write_whole",
]
