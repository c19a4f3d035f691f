"""Memory of the device and of the host, by address."""

import ctypes
import math
from copy import copy
from functools import partial
from types import SimpleNamespace

import numpy as np

DEVICES = []  # the one that is installed


class Memory:
    """A pointer into memory of the pool, as `cupy.cuda.MemoryPointer`."""

    def __init__(self, host):
        self.host, self.mem, self.device_id = host, SimpleNamespace(size=host.nbytes), 0
        self.ptr = host.__array_interface__["data"][0]

    def copy_from_device_async(self, source, size, stream):
        ctypes.memmove(self.ptr, source.ptr, size)

    def copy_from_host_async(self, source, size, stream):
        stream.submit(lambda: ctypes.memmove(self.ptr, source, size))

    def copy_to_host_async(self, target, size, stream):
        stream.submit(lambda: ctypes.memmove(target, self.ptr, size))

    def __add__(self, offset):
        moved = copy(self)
        moved.ptr += offset
        return moved

    def memset_async(self, value, size, stream=None):
        work = partial(ctypes.memset, self.ptr, value, size)
        work() if stream is None else stream.submit(work)


def pinned(size):
    """Memory of the host that kernels may write to, as `cupy.cuda.alloc_pinned_memory`."""

    class Pinned(ctypes.Array):
        _type_, _length_ = ctypes.c_char, size

    memory = Pinned()
    memory.ptr = ctypes.addressof(memory)
    return memory


def at(address, shape, dtype, strides=None):
    """The array at an address; strides in elements."""
    dtype = np.dtype(dtype)
    strides = None if strides is None else [step * dtype.itemsize for step in strides]
    reach = math.prod(shape) * dtype.itemsize if strides is None else 1 << 40
    memory = (ctypes.c_char * reach).from_address(int(address))
    return np.ndarray(shape, dtype, memory, strides=strides)
