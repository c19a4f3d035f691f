"""As much of CuPy as the cells of `benchmarks.gpu` take, on NumPy's arrays; times are invented."""

from contextlib import nullcontext
from types import ModuleType, SimpleNamespace

import numpy as np


class Array(np.ndarray):
    """An array of NumPy that says that it is on a device."""

    def get(self):
        return np.asarray(self)


class Event:
    """Stands for a time."""

    def record(self, stream):
        pass

    def synchronize(self):
        pass


class Stream:
    """Runs at once, also what is captured."""

    def __init__(self, **options):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def begin_capture(self):
        pass

    def end_capture(self):
        return SimpleNamespace(launch=lambda stream: None)


def device_array(array, dtype=None):
    return np.asarray(array, dtype).view(Array)


def numpy_device(memory=1 << 30):
    """The module in the place of CuPy."""
    cupy = ModuleType("cupy")
    cupy.ndarray = type("ndarray", (), {})  # batchkron takes the arrays for those of NumPy
    for name in ("asarray", "ascontiguousarray", "empty", "zeros", "ones", "arange", "kron"):
        make = getattr(np, name)
        setattr(cupy, name, lambda *a, make=make, **k: device_array(make(*a, **k)))
    runtime = SimpleNamespace(memGetInfo=lambda: (memory, memory))
    device = SimpleNamespace(id=0, synchronize=lambda: None)
    cupy.cuda = SimpleNamespace(
        Event=Event,
        Stream=Stream,
        Device=lambda: device,
        runtime=runtime,
        get_elapsed_time=lambda start, stop: 1.0,
        MemoryHook=nullcontext,
    )
    pool = SimpleNamespace(free_all_blocks=lambda: None)
    cupy.get_default_memory_pool = lambda: pool
    return cupy
