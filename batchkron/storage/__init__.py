"""batchkron's HDF5 files: written whole or not at all, checked in full before they are used."""

from batchkron.storage.checkpoint_paths import checkpoint_obstacle, previous_path
from batchkron.storage.document import Document
from batchkron.storage.reader import check_file, identify, read_file, read_foreign_file
from batchkron.storage.results import (
    Checkpoint,
    ResultFile,
    StoredGrid,
    StoredMemory,
    load_checkpoint,
    load_result,
    save_checkpoint,
    save_result,
)
from batchkron.storage.writer import write_document

__all__ = [
    "Checkpoint",
    "Document",
    "ResultFile",
    "StoredGrid",
    "StoredMemory",
    "check_file",
    "checkpoint_obstacle",
    "identify",
    "load_checkpoint",
    "load_result",
    "previous_path",
    "read_file",
    "read_foreign_file",
    "save_checkpoint",
    "save_result",
    "write_document",
]
