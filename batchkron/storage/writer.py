"""Writing documents as HDF5 files: their layout, chunks and checksums."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from batchkron.storage.atomic_write import write_file
from batchkron.storage.content_limits import check_loadable, content_bytes
from batchkron.storage.document import (
    HASH_ATTRIBUTE,
    NUMERIC_KINDS,
    Attribute,
    Document,
    Value,
    value_kind,
)

_CHUNK_BYTES = 1 << 20  # largest chunk: 1 MiB
_COMPRESS_FROM_BYTES = 1 << 12  # smaller datasets are stored as they are: 4 KiB


def write_document(
    path: str | os.PathLike[str],
    document: Document,
    *,
    overwrite: bool = False,
    publish: Callable[[Path, Path], None] | None = None,
) -> None:
    """Write a document as an HDF5 file, whole or not at all.

    Parameters
    ----------
    path : path
        The file.
    document : Document
        Its attributes need not hold `content_hash`, which is computed here.
    overwrite : bool
        Replace an existing file.
    publish : callable, optional
        Gives the complete file its final name; see `batchkron.storage.atomic_write.write_file`.

    Raises
    ------
    FileExistsError
        If the file exists and `overwrite` is false.
    ValueError
        If the content is so large that the file could not be read back.
    OSError
        If it cannot be written; an existing file is untouched.

    Notes
    -----
    The file is assembled in memory and then written with plain system calls, so that an error such
    as a full disk never occurs inside libhdf5. This takes about the document's size in memory
    again.
    """
    with file_image(document) as image:
        check_loadable(content_bytes(document), len(image))
        write_file(path, image, overwrite=overwrite, publish=publish)


def file_image(document: Document) -> memoryview:
    """Return the bytes of a document's HDF5 file; equal documents give equal bytes."""
    buffer = io.BytesIO()
    # the file format of HDF5 1.10 has checksums on all metadata, older ones do not
    with h5py.File(buffer, "w", libver=("v110", "v110")) as file:
        for name in sorted(set(document.attributes) - {HASH_ATTRIBUTE}):
            _write_attribute(file, name, document.attributes[name])
        _write_attribute(file, HASH_ATTRIBUTE, document.content_hash)
        for path in sorted(document.datasets):
            _write_dataset(file, path, document.datasets[path])
    return buffer.getbuffer()


def chunk_shape(shape: tuple[int, ...], item_bytes: int) -> tuple[int, ...]:
    """Return the shape of chunks of at most 1 MiB, contiguous in C order where that is possible.

    ``shape``: shape of the dataset, no dimension 0.
    ``item_bytes``: size of one element in bytes.

    Examples
    --------
    >>> chunk_shape((100, 300, 1000), 8)
    (1, 131, 1000)
    """
    chunks = []
    budget = max(1, _CHUNK_BYTES // item_bytes)
    for length in reversed(shape):
        chunks.append(min(length, budget))
        budget = max(1, budget // length)
    return tuple(reversed(chunks))


def _write_attribute(file: Any, name: str, attribute: Attribute) -> None:
    if isinstance(attribute, str):
        encoded = attribute.encode()
        kind = h5py.string_dtype("utf-8", max(1, len(encoded)))
        file.attrs.create(name, np.array(encoded, dtype=kind), dtype=kind)
    else:
        file.attrs.create(name, attribute, dtype=np.dtype(f"<{'if'[type(attribute) is float]}8"))


def _write_dataset(file: Any, path: str, value: Value) -> None:
    """Write a dataset in chunks with Fletcher-32 checksums; an empty one needs neither."""
    array = _stored_array(value)
    if not array.size:
        file.create_dataset(path, data=array, dtype=array.dtype)
        return
    # compressing dense floating-point numbers saves almost no space and takes time
    compress = array.dtype.kind != "f" and array.nbytes >= _COMPRESS_FROM_BYTES
    file.create_dataset(
        path,
        data=array,
        dtype=array.dtype,
        chunks=chunk_shape(array.shape, array.itemsize),
        fletcher32=True,
        shuffle=compress and array.dtype.kind == "i",
        compression="gzip" if compress else None,
    )


def _stored_array(value: Value) -> NDArray[Any]:
    if isinstance(value, tuple):
        encoded = [text.encode() for text in value]
        length = max([1, *map(len, encoded)])
        return np.array(encoded, dtype=h5py.string_dtype("utf-8", length))
    return np.ascontiguousarray(value, dtype=NUMERIC_KINDS[value_kind(value)])
