"""Files that lie, made the way their writer would: with every checksum and hash right."""

import h5py

from batchkron.storage.container import file_image
from batchkron.storage.document import Document


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


def write_unchecked(path, document):
    path.write_bytes(file_image(document))


def edit(path, change):
    """Change a file through h5py, in the layout that the format asks for."""
    with h5py.File(path, "r+", libver=("v110", "v110")) as file:
        change(file)


def metadata_blocks(image):
    """Where a file's checksummed metadata are: (start, end), the checksum at end."""
    found = [(0, 44)]
    for signature in (b"OHDR", b"OCHK", b"FRHP", b"BTHD", b"BTLF", b"FAHD", b"FADB"):
        start = image.find(signature)
        while start >= 0:
            for end in range(start + 8, min(start + 2000, len(image) - 4)):
                if _is_sealed(image, start, end):
                    found.append((start, end))
                    break
            start = image.find(signature, start + 4)
    return [block for block in found if _is_sealed(image, *block)]


def seal(image, start, end):
    """Make the checksum of a block of metadata right again."""
    image[end : end + 4] = lookup3(bytes(image[start:end])).to_bytes(4, "little")


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
