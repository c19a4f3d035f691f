"""What the cutting of work counts with: limits of a device, and what all from sm_80 on share."""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32
REGISTER_FILE = 65536  # registers of a multiprocessor
MAX_THREAD_REGISTERS = 255
MAX_BLOCK_THREADS = 1024
MAX_GRID_YZ = 65535  # thread blocks along the second or third axis of a grid
MULTIPROCESSOR_SHARED_BYTES = 228 << 10  # of an H100 or H200, the largest; others have less
_RESERVED_SHARED_BYTES = 1024  # that the driver reserves for each thread block


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


def shared_bytes_for_blocks(blocks: int, limits: DeviceLimits) -> int:
    """Return the bytes of shared memory for each of several thread blocks of a multiprocessor."""
    return (limits.shared_bytes + _RESERVED_SHARED_BYTES) // blocks - _RESERVED_SHARED_BYTES


def resident_blocks(shared_bytes: int, limits: DeviceLimits) -> int:
    """Return how many thread blocks with so much shared memory a multiprocessor has at once."""
    reserved = _RESERVED_SHARED_BYTES
    return (limits.shared_bytes + reserved) // (shared_bytes + reserved)


def carveout(blocks: int, shared_bytes: int) -> int:
    """Return the percentage of the memory on chip that such thread blocks want as shared memory."""
    return min(
        100,
        -(-100 * blocks * (shared_bytes + _RESERVED_SHARED_BYTES) // MULTIPROCESSOR_SHARED_BYTES),
    )


def round_up(value: int, unit: int) -> int:
    """Return the smallest multiple of ``unit`` that is at least ``value``."""
    return -(-value // unit) * unit


def power_of_two(value: int) -> int:
    """Return the smallest power of two that is at least ``value``, and at least 1."""
    return 1 << max(0, value - 1).bit_length()
