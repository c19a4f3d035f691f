"""Registers and stack of a compiled kernel, read from its machine code (a cubin, an ELF file).

NVIDIA does not document the format; the names below are those that ``cuobjdump -elf`` prints.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_REGISTERS = 0x2F  # attribute EIATTR_REGCOUNT of the ELF section .nv.info
_STACK = 0x12  # attribute EIATTR_MIN_STACK_SIZE of the same section
_SIZED_FORMAT = 4  # EIFMT_SVAL: the size of the attribute's values, then the values follow it


def resources(code: bytes) -> tuple[int, int] | None:
    """Return registers and bytes of stack of a cubin's only kernel, None if it does not have them.

    They are those of a thread; the stack has spilled registers, and arrays of unknown indices.
    Section ``.nv.info`` is a list of attributes: format, name, and for format 4 the size of the
    values that follow, which are here the index of a function and the attribute's value.
    """
    try:
        found = dict(_attributes(code))
        return found[_REGISTERS], found[_STACK]
    except (struct.error, ValueError, KeyError):
        return None


def _attributes(code: bytes) -> Iterator[tuple[int, int]]:
    """Yield name and value of each attribute of a function."""
    for section, position, size in _sections(code):
        if section != ".nv.info":
            continue
        end = position + size
        while position < end:
            form, attribute, length = struct.unpack_from("<BBH", code, position)
            position += 4
            if form == _SIZED_FORMAT:
                if length == 8:
                    yield attribute, struct.unpack_from("<I", code, position + 4)[0]
                position += length


def _sections(code: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield name, offset and size of every section of a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", code, 0x28)
    entry_size, count, names = struct.unpack_from("<HHH", code, 0x3A)
    entries = [struct.unpack_from("<IIQQQQ", code, table + k * entry_size) for k in range(count)]
    first_name = entries[names][4] if entries else 0
    for name, _, _, _, offset, size in entries:
        start = first_name + name
        yield code[start : code.index(b"\0", start)].decode(), offset, size
