"""Files with false content, made the way their writer would: every checksum and hash is right."""

import hashlib
import io

import h5py
import numpy as np

from batchkron.storage.document import Document
from batchkron.storage.writer import file_image


def unchecked_document(attributes, datasets):
    """A document of any content; its hash is right all the same."""
    document = object.__new__(Document)
    object.__setattr__(document, "attributes", attributes)
    object.__setattr__(document, "datasets", datasets)
    return document


def changed(document, *, attributes=None, datasets=None):
    """A document with other attributes and datasets; None removes one."""
    parts = []
    for old, new in ((document.attributes, attributes), (document.datasets, datasets)):
        merged = {**old, **(new or {})}
        parts.append({name: value for name, value in merged.items() if value is not None})
    return unchecked_document(*parts)


def with_terms(document, times, **tables):
    """A problem's document with a term for each text of a function of time.

    The rows of the terms' other tables are repeated as often as needed, unless ``tables`` has them.
    """
    datasets = {"terms/time": tuple(times)}
    for path, value in document.datasets.items():
        if path.startswith("terms/") and path not in datasets:
            rows = np.arange(len(times)) % len(value)
            datasets[path] = tables.get(path.removeprefix("terms/"), value[rows])
    return changed(document, datasets=datasets)


def write_unchecked(path, document):
    path.write_bytes(file_image(document))


def edit(path, change):
    """Change a file through h5py, in the layout that the format asks for."""
    with h5py.File(path, "r+", libver=("v110", "v110")) as file:
        change(file)


SIGNATURES = (
    b"OHDR", b"OCHK", b"FRHP", b"FHIB", b"BTHD", b"BTIN", b"BTLF",
    b"FAHD", b"FADB", b"EAHD", b"EAIB", b"EASB", b"EADB", b"FSHD", b"FSSE",
)  # fmt: skip
"""What HDF5's metadata begin with, where their checksum is at their end."""


def metadata_blocks(image):
    """Where a file's checksummed metadata are: (start, end), the checksum at end."""
    found = [(0, 44)]
    for signature in SIGNATURES:
        start = image.find(signature)
        while start >= 0:
            for end in range(start + 8, min(start + 2000, len(image) - 4)):
                if _is_sealed(image, start, end):
                    found.append((start, end))
                    break
            start = image.find(signature, start + 4)
    return [block for block in found if _is_sealed(image, *block)]


def data_chunks(image):
    """Where a file's raw data are that end with Fletcher-32: (dataset, start, end)."""
    found = []

    def visit(name, item):
        if isinstance(item, h5py.Dataset) and item.chunks:
            for k in range(item.id.get_num_chunks()):
                chunk = item.id.get_chunk_info(k)
                found.append((name, chunk.byte_offset, chunk.byte_offset + chunk.size - 4))

    with h5py.File(io.BytesIO(image)) as file:
        file.visititems(visit)
    return found


def seal_data(image, start, end):
    """Make the checksum of a chunk right again."""
    image[end : end + 4] = fletcher32(bytes(image[start:end])).to_bytes(4, "little")


def fletcher32(data):
    """HDF5's checksum of data: Fletcher's, over big-endian 16-bit words."""
    words = np.frombuffer(data + b"\0" * (len(data) % 2), dtype=">u2").astype(np.uint64).tolist()
    first = second = 0
    for word in words:
        first += word
        second += first
    folded = [(total - 1) % 65535 + 1 if total else 0 for total in (first, second)]
    return folded[1] << 16 | folded[0]


def stored_hash(attributes, datasets):
    """The content hash, written down from the schema's words alone.

    Attributes are str, int or float; datasets arrays or sequences of str.
    """
    digest = hashlib.sha256()

    def text(value):
        encoded = value.encode()
        return len(encoded).to_bytes(8, "little") + encoded

    for name in sorted(attributes):
        value = attributes[name]
        kind = {str: "text", int: "int64", float: "float64"}[type(value)]
        digest.update(f"attribute {name} {kind}\n".encode())
        digest.update(text(value) if kind == "text" else np.array(value, kind).tobytes())
    for path in sorted(datasets):
        value = datasets[path]
        is_text = not isinstance(value, np.ndarray)
        shape = str(len(value)) if is_text else "x".join(map(str, value.shape))
        kind = "text" if is_text else value.dtype.name
        digest.update(f"dataset {path} {kind} {shape}\n".encode())
        digest.update(b"".join(map(text, value)) if is_text else value.tobytes())
    return digest.hexdigest()


def seal(image, start, end):
    """Make the checksum of a block of metadata right again."""
    image[end : end + 4] = lookup3(bytes(image[start:end])).to_bytes(4, "little")


def heap_blocks(image):
    """Where blocks of HDF5's heaps are, which hold many attributes: (start, end, checksum)."""
    found = []
    start = image.find(b"FHDB")
    while start >= 0:
        for end in (start + (512 << k) for k in range(8)):
            for place in range(start + 13, start + 22):
                if end <= len(image) and _heap_checksum(image, start, end, place) == bytes(
                    image[place : place + 4]
                ):
                    found.append((start, end, place))
        start = image.find(b"FHDB", start + 4)
    return found


def seal_heap(image, start, end, place):
    """Make the checksum of a block of a heap right again."""
    image[place : place + 4] = _heap_checksum(image, start, end, place)


def _heap_checksum(image, start, end, place):
    blanked = bytes(image[start:place]) + bytes(4) + bytes(image[place + 4 : end])
    return lookup3(blanked).to_bytes(4, "little")


def _is_sealed(image, start, end):
    return lookup3(image[start:end]) == int.from_bytes(image[end : end + 4], "little")


def _rotate(x, k):
    return ((x << k) | (x >> (32 - k))) & 0xFFFFFFFF


def lookup3(data):
    """Bob Jenkins' hash, HDF5's checksum of metadata."""
    mask = 0xFFFFFFFF
    a = b = c = (0xDEADBEEF + len(data)) & mask
    while len(data) > 12:
        a, b, c = (
            (x + int.from_bytes(data[4 * i : 4 * i + 4], "little")) & mask
            for i, x in enumerate((a, b, c))
        )
        for k in (4, 6, 8, 16, 19, 4):
            a = ((a - c) & mask) ^ _rotate(c, k)
            c = (c + b) & mask
            a, b, c = b, c, a
        data = data[12:]
    if not data:
        return c
    data = data.ljust(12, b"\0")
    a, b, c = (
        (x + int.from_bytes(data[4 * i : 4 * i + 4], "little")) & mask
        for i, x in enumerate((a, b, c))
    )
    for k in (14, 11, 25, 16, 4, 14, 24):
        c = ((c ^ b) - _rotate(b, k)) & mask
        a, b, c = b, c, a
    return b
