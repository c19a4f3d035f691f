"""Limits of the hardware that tilings depend on: of one device, and of all devices from sm_80 on.

The constants are from the table of technical specifications in the CUDA C++ programming guide.
"""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32  # threads of a warp
REGISTER_FILE = 65536  # registers of a multiprocessor, 4 bytes each
MAX_THREAD_REGISTERS = 255
MAX_BLOCK_THREADS = 1024
MAX_RESIDENT_THREADS = 2048  # of a multiprocessor of sm_80 and sm_90; others have 1536
LINE = 128  # bytes of a cache line, which a warp reads or writes at once
SECTOR = 32  # bytes, the smallest transfer between the second-level cache and memory
MAX_GRID_YZ = 65535  # thread blocks along the second or third axis of a grid
# Bytes of shared memory of a multiprocessor of an H100 or H200; other devices have less.
MULTIPROCESSOR_SHARED_BYTES = 228 << 10
_RESERVED_SHARED_BYTES = 1024  # bytes of shared memory that CUDA reserves per thread block


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """Limits of one device."""

    shared_bytes: int  # largest shared memory of a thread block, in bytes
    multiprocessors: int  # number of multiprocessors
    # largest number of thread blocks of a cluster, 1 if the device has no clusters
    cluster: int = 1
    # whether the float64 matrix units are as fast as float32 arithmetic on ordinary cores
    double_units: bool = True
    # "name, sm_NN, N multiprocessors": the card whose measured costs count
    name: str = "unknown, sm_90, 132 multiprocessors"
    has_matrix_library: bool = False  # whether products may be left to cuBLAS


def shared_bytes_for_blocks(blocks: int, limits: DeviceLimits) -> int:
    """Return the bytes of shared memory of each of ``blocks`` thread blocks on a multiprocessor."""
    return (limits.shared_bytes + _RESERVED_SHARED_BYTES) // blocks - _RESERVED_SHARED_BYTES


def resident_blocks(shared_bytes: int, limits: DeviceLimits) -> int:
    """Return how many thread blocks with this much shared memory a multiprocessor can hold."""
    reserved = _RESERVED_SHARED_BYTES
    return (limits.shared_bytes + reserved) // (shared_bytes + reserved)


def carveout(blocks: int, shared_bytes: int) -> int:
    """Return the percentage of on-chip memory that ``blocks`` thread blocks use as shared."""
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
