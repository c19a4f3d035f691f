"""Puts the modules of CuPy, and what replaces the driver, in their places."""

import ctypes
import sys
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

import numpy as np

from fake_cupy.arrays import Array, from_numpy, from_numpy_fft
from fake_cupy.device import Device, Event
from fake_cupy.driver import replace_driver
from fake_cupy.memory import DEVICES, pinned


@contextmanager
def using_allocator(allocator):
    yield


class OnlyDevice:
    """The device of every number, as `cupy.cuda.Device`."""

    compute_capability = "90"

    def __init__(self, *number):
        pass

    def synchronize(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


FUNCTIONS = (
    *("arange", "broadcast_to", "ceil", "concatenate", "cumsum", "exp", "eye", "floor", "maximum"),
    *("minimum", "ones", "repeat", "searchsorted", "sqrt", "stack", "where", "zeros_like"),
    *("empty_like", "flatnonzero", "full", "iscomplexobj", "isfinite", "vdot"),
)


def sorted_stably(values, kind):
    """As `cupy.argsort`, which sorts stably, and knows no other kind."""
    assert kind == "stable"
    return from_numpy("argsort")(values, kind=kind)


def install():
    """Put the module in CuPy's place, and return the `Device`."""
    device = Device()
    DEVICES.append(device)
    cupy = ModuleType("cupy")
    error = type("CUDAError", (RuntimeError,), {"status": 1})
    runtime = SimpleNamespace(
        getDevice=lambda: device.current,
        memGetInfo=lambda: None,
        deviceGetAttribute=lambda key, _: key,
        cudaDevAttrMultiProcessorCount=132,
        cudaDevAttrMaxSharedMemoryPerBlockOptin=227 << 10,
        getDeviceProperties=lambda _: {"name": b"fake"},
        driverGetVersion=lambda: 13_000,
        memsetAsync=ctypes.memset,
        getDeviceCount=lambda: 1,
        CUDARuntimeError=error,
    )
    cuda = ModuleType("cupy.cuda")
    vars(cuda).update(
        runtime=runtime,
        driver=SimpleNamespace(CUDADriverError=error),
        nvrtc=SimpleNamespace(getVersion=lambda: (13, 0)),
        get_current_stream=lambda *_: device.streams[-1] if device.streams else device.stream,
        Stream=device.new_stream,
        Event=Event,
        MemoryPool=lambda: SimpleNamespace(malloc=device.alloc),
        using_allocator=using_allocator,
        alloc=device.alloc,
        alloc_pinned_memory=pinned,
        Device=OnlyDevice,
    )
    vars(cupy).update(
        ndarray=Array,
        cuda=cuda,
        asarray=lambda value: (
            value if isinstance(value, Array) else Array(None, host=np.array(value))
        ),
        empty=Array,
        zeros=lambda shape, dtype=float: Array(None, host=np.zeros(shape, dtype)),
        asnumpy=lambda value: value.get(),
        may_share_memory=lambda a, b: np.may_share_memory(a.host, b.host),
        multiply=lambda a, b, out, dtype=None: np.multiply(
            a.host, getattr(b, "host", b), out=out.host
        ),
        fft=SimpleNamespace(
            **{name: from_numpy_fft(name) for name in ("rfft", "irfft", "fft", "ifft")}
        ),
        array=lambda value, dtype=None, order="K": Array(
            None, host=np.array(getattr(value, "host", value), dtype, order=order)
        ),
        argsort=sorted_stably,
        **{name: from_numpy(name) for name in FUNCTIONS},
        ascontiguousarray=lambda value, dtype=None: (
            value
            if value.flags.c_contiguous and (dtype is None or dtype == value.dtype)
            else Array(None, host=np.ascontiguousarray(value.host, dtype))
        ),
        __version__="0",
    )
    sys.modules.update({"cupy": cupy, "cupy.cuda": cuda})
    replace_driver(device)
    return device
