"""The device memory that a piece of work needs at most."""

import gc

import cupy


class _Allocations(cupy.cuda.MemoryHook):
    """The bytes of CuPy's pool that were taken since it is there, now and at most.

    Memory that was taken before and is freed meanwhile does not count.
    """

    name = "Allocations"

    def __init__(self):
        self.bytes = self.peak = 0
        self._sizes = {}  # by address

    def malloc_postprocess(self, **given):
        self._sizes[given["mem_ptr"]] = given["mem_size"]
        self.bytes += given["mem_size"]
        self.peak = max(self.peak, self.bytes)

    def free_postprocess(self, **given):
        self.bytes -= self._sizes.pop(given["mem_ptr"], 0)


def peak_bytes(work, torch=None):
    """The bytes of CuPy's arrays, and of torch's if given, that some work needs at most."""
    gc.collect()
    cupy.cuda.Device().synchronize()
    cupy.get_default_memory_pool().free_all_blocks()
    before = 0
    if torch is not None:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = int(torch.cuda.memory_allocated())
    found = _Allocations()
    with found:
        work()
    cupy.cuda.Device().synchronize()
    more = 0 if torch is None else int(torch.cuda.max_memory_allocated()) - before
    return found.peak + more
