"""Damage to the bytes of a file, with and without right checksums.

Each function returns other bytes. Whatever they are, a loader may take them only for what the
sound file holds.
"""

import zlib
from functools import lru_cache

from crafted_files import (
    data_chunks,
    heap_blocks,
    metadata_blocks,
    seal,
    seal_data,
    seal_heap,
)

FIELDS = (0, 1, 2, 8, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 1 << 31, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)


def flip_bits(image, rng):
    damaged = bytearray(image)
    for place in rng.integers(len(damaged), size=_few(rng)).tolist():
        damaged[place] ^= 1 << int(rng.integers(8))
    return damaged


def overwrite(image, rng):
    damaged = bytearray(image)
    start, stop = _piece(image, rng)
    fill = (rng.bytes(stop - start), bytes(stop - start), b"\xff" * (stop - start))
    damaged[start:stop] = fill[rng.integers(3)]
    return damaged


def truncate(image, rng):
    return image[: rng.integers(len(image))]


def extend(image, rng):
    return image + rng.bytes(int(rng.integers(1, 5000)))


def cut_out(image, rng):
    start, stop = _piece(image, rng)
    return image[:start] + image[stop:]


def put_in(image, rng):
    start, stop = _piece(image, rng)
    return image[:stop] + image[start:stop] + image[stop:]


def exchange(image, rng):
    """Copy one place over another, as a faulty disk or a mixed-up buffer does."""
    damaged = bytearray(image)
    start, stop = _piece(image, rng)
    other = int(rng.integers(len(image) - (stop - start) + 1))
    damaged[other : other + stop - start] = image[start:stop]
    return damaged


def change_metadata(image, rng):
    """Somebody who knows HDF5 changes it with right checksums: libhdf5 itself may crash here."""
    damaged = bytearray(image)
    blocks, heaps = _blocks(bytes(image))
    for _ in range(_few(rng)):
        choice = int(rng.integers(len(blocks) + len(heaps)))
        is_heap = choice >= len(blocks)
        start, end, *place = heaps[choice - len(blocks)] if is_heap else blocks[choice]
        _change_field(damaged, start, end, rng)
        if is_heap:
            seal_heap(damaged, start, end, *place)
        else:
            seal(damaged, start, end)
    return damaged


def exchange_metadata(image, rng):
    """Put one block of metadata in another's place: a second way to the same address, a cycle."""
    damaged = bytearray(image)
    blocks, _ = _blocks(bytes(image))
    (start, end), (other, other_end) = (blocks[k] for k in rng.integers(1, len(blocks), size=2))
    if end - start <= other_end - other:
        damaged[other : other + end + 4 - start] = image[start : end + 4]
    else:
        size = min(8, other_end - other - 8)
        damaged[start + 8 : start + 8 + size] = image[other + 8 : other + 8 + size]
        seal(damaged, start, end)
    return damaged


def redirect(image, rng):
    """Let an address in the metadata point elsewhere."""
    damaged = bytearray(image)
    blocks, _ = _blocks(bytes(image))
    addresses = {start for start, _ in blocks}
    places = [
        (start, end, place)
        for start, end in blocks
        for place in range(start, end - 7)
        if int.from_bytes(image[place : place + 8], "little") in addresses - {0}
    ]
    start, end, place = places[rng.integers(len(places))]
    targets = [*addresses, start, len(image) - 8, int(rng.integers(len(image)))]
    target = int(targets[rng.integers(len(targets))])
    damaged[place : place + 8] = target.to_bytes(8, "little")
    seal(damaged, start, end)
    return damaged


def change_data(image, rng):
    """Change numbers or compressed data with right checksums; only the hash tells."""
    damaged = bytearray(image)
    for _ in range(_few(rng)):
        _, start, end = _pick(_chunks(bytes(image)), rng)
        _change_field(damaged, start, end, rng)
        seal_data(damaged, start, end)
    return damaged


def change_compressed(image, rng):
    """Put other compressed data in place of a chunk's: shorter, longer, or very much longer."""
    damaged = bytearray(image)
    chunks = [c for c in _chunks(bytes(image)) if _inflates(image[c[1] : c[2]])]
    if not chunks:
        return change_data(image, rng)
    _, start, end = _pick(chunks, rng)
    size = len(zlib.decompress(image[start:end]))
    choices = (bytes(size // 2), rng.bytes(size // 4) * 8, bytes(200_000), b"")
    packed = zlib.compress(choices[rng.integers(4)], 9)[: end - start]
    damaged[start : start + len(packed)] = packed
    seal_data(damaged, start, end)
    return damaged


BLIND = (flip_bits, overwrite, truncate, extend, cut_out, put_in, exchange)
"""Accidents: checksums are as they were."""

SEALED = (
    change_metadata,
    change_metadata,
    change_metadata,
    exchange_metadata,
    redirect,
    change_data,
    change_compressed,
)
"""Attacks: every checksum is right, the content hash is as it was."""


def _few(rng):
    return int(rng.choice([1, 1, 1, 2, 3, 8]))


def _pick(choices, rng):
    return choices[int(rng.integers(len(choices)))]


def _piece(image, rng):
    start = int(rng.integers(len(image)))
    return start, min(len(image), start + int(rng.choice([1, 4, 20, 100, 512, 4096])))


def _change_field(damaged, start, end, rng):
    width = int(rng.choice([1, 1, 1, 2, 4, 8]))
    place = int(rng.integers(start, max(start + 1, end - width)))
    value = int(_pick(FIELDS, rng)) if rng.random() < 0.7 else int(rng.integers(1 << 62))
    if rng.random() < 0.3:  # next to what is there
        value = int.from_bytes(damaged[place : place + width], "little") + _pick((-1, 1), rng)
    damaged[place : place + width] = (value % (1 << 8 * width)).to_bytes(width, "little")


def _inflates(packed):
    try:
        zlib.decompress(packed)
    except zlib.error:
        return False
    return True


@lru_cache
def _blocks(image):
    return metadata_blocks(image), heap_blocks(image)


@lru_cache
def _chunks(image):
    return data_chunks(image)
