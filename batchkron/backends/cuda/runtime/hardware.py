"""What the cutting of work counts with: limits of a device, and what all from sm_80 on share."""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32
REGISTER_FILE = 65536  # registers of a multiprocessor
MOST_REGISTERS = 255  # of a thread
MOST_BLOCK = 1024  # threads of a thread block
MOST_BLOCKS_DOWN = 65535  # along the second and third axis of a grid
ON_CHIP = 228 << 10  # bytes of a multiprocessor's shared memory, where it has most
_RESERVED = 1024  # bytes of shared memory that a thread block takes besides its own


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What a device offers: bytes of shared memory of a thread block, multiprocessors.

    And thread blocks of a cluster, 1 where there are none; whether matrix units of double precision
    are as fast as ordinary cores in single precision.
    """

    shared_bytes: int
    multiprocessors: int
    cluster: int = 1
    double_units: bool = True


def room_of_blocks(blocks: int, limits: DeviceLimits) -> int:
    """Return the bytes of shared memory for each of several thread blocks of a multiprocessor."""
    return (limits.shared_bytes + _RESERVED) // blocks - _RESERVED


def resident_blocks(shared_bytes: int, limits: DeviceLimits) -> int:
    """Return how many thread blocks with so much shared memory a multiprocessor has at once."""
    return (limits.shared_bytes + _RESERVED) // (shared_bytes + _RESERVED)


def carveout(blocks: int, shared_bytes: int) -> int:
    """Return the percentage of the memory on chip that such thread blocks want as shared memory."""
    return min(100, -(-100 * blocks * (shared_bytes + _RESERVED) // ON_CHIP))


def round_up(value: int, unit: int) -> int:
    """Return the smallest multiple of ``unit`` that is at least ``value``."""
    return -(-value // unit) * unit


def power_of_two(value: int) -> int:
    """Return the smallest power of two that is at least ``value``, and at least 1."""
    return 1 << max(0, value - 1).bit_length()
