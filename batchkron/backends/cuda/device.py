"""The device as CuPy offers it: errors, kernels, workspace. The only importer of CuPy."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.device_programs import (
    Program,
    compile_options,
    device_sources,
    program_key,
)
from batchkron.backends.device_tiling import DeviceLimits
from batchkron.backends.kernel_cache import CompiledKernel, cached_kernel
from batchkron.errors import BackendUnavailableError, ContextLostError
from batchkron.spec import Array

try:
    import cupy
    from cupy.cuda import driver, nvrtc, runtime
except ImportError as error:
    raise BackendUnavailableError(
        "arrays on a CUDA device need CuPy; install it with: pip install 'batchkron[cuda13]' "
        "(or 'batchkron[cuda12]' where the driver is older)"
    ) from error

__all__ = [
    "DeviceArray",
    "Workspaces",
    "check_device",
    "cupy",
    "current_device",
    "device_errors",
    "device_limits",
    "load_kernel",
    "matrix_factor",
    "place",
    "replace",
    "upload",
]

DeviceArray = Any  # cupy.ndarray, of which CuPy has no types

# No driver, or one that is older than CuPy's CUDA; no device.
_ABSENT = {35, 100}
# After these the driver refuses all further work of the process: illegal address or instruction,
# misaligned address, stack or assertion failure, time-out, failed launch, uncorrectable memory.
_LOST = {214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 720, 999}


@contextmanager
def device_errors() -> Iterator[None]:
    """Say so where there is no device, or where an error of it has cost the context."""
    try:
        yield
    except (driver.CUDADriverError, runtime.CUDARuntimeError) as error:
        if error.status in _ABSENT:
            raise BackendUnavailableError(f"there is no usable CUDA device: {error}") from error
        if error.status in _LOST:
            raise ContextLostError(
                f"the CUDA context is lost ({error}): an earlier kernel failed, no array of this "
                f"process on the device can be used any more. Start the process again; "
                f"CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer shows which call failed"
            ) from error
        raise


@cache
def device_limits(device: int) -> DeviceLimits:
    """Return what a device offers."""
    return DeviceLimits(
        runtime.deviceGetAttribute(runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        runtime.deviceGetAttribute(runtime.cudaDevAttrMultiProcessorCount, device),
    )


def current_device() -> int:
    """Return the number of CuPy's current device.

    Raises
    ------
    BackendUnavailableError
        If there is none.
    """
    with device_errors():
        return int(runtime.getDevice())


def _compile(program: Program, options: Sequence[str]) -> CompiledKernel:
    """Compile one kernel by NVRTC, for the real architecture."""
    sources = device_sources()
    handle = nvrtc.createProgram(
        program.source,
        "kernel.cu",
        [text.encode() for text in sources.values()],
        [header.encode() for header in sources],
    )
    try:
        nvrtc.addNameExpression(handle, program.expression)
        try:
            nvrtc.compileProgram(handle, options)
        except nvrtc.NVRTCError as error:
            log = nvrtc.getProgramLog(handle)
            raise RuntimeError(f"{program.expression} does not compile: {error}\n{log}") from error
        lowered = nvrtc.getLoweredName(handle, program.expression)
        return CompiledKernel(lowered, nvrtc.getCUBIN(handle))
    finally:
        nvrtc.destroyProgram(handle)


_compiling = threading.Lock()


@cache
def _loaded(program: Program, device: int) -> Any:
    """Return the kernel as a CuPy function of one device, with all shared memory it may ask for."""
    options = compile_options(cupy.cuda.Device(device).compute_capability)
    version = "nvrtc {}.{}".format(*nvrtc.getVersion())
    key = program_key(program, device_sources(), options, version)
    kernel = cached_kernel(key, lambda: _compile(program, options))
    module = cupy.cuda.function.Module()
    module.load(kernel.code)
    function = module.get_function(kernel.name)
    driver.funcSetAttribute(
        function.ptr,
        driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
        device_limits(device).shared_bytes,
    )
    return function


def load_kernel(program: Program, device: int) -> Any:
    """Return a program's kernel as a CuPy function, compiled and loaded when first asked for."""
    with _compiling, device_errors():
        return _loaded(program, device)


def check_device(device: int, *arrays: DeviceArray) -> None:
    """Refuse arrays of another device than the plan's.

    Raises
    ------
    TypeError
        If one lives elsewhere.
    """
    for array in arrays:
        if array.device.id != device:
            raise TypeError(
                f"an array is on CUDA device {array.device.id}, but the operator was built on "
                f"device {device}; copy the array, or build the operator there"
            )


def matrix_factor(matrix: DeviceArray) -> tuple[int, int, int, int, int]:
    """Return a matrix of any strides as the kernels see it."""
    rows, columns = (stride // matrix.itemsize for stride in matrix.strides)
    return matrix.data.ptr, 0, 0, rows, columns


def upload(values: Sequence[Array | DeviceArray], targets: Sequence[DeviceArray]) -> None:
    """Copy arrays to device arrays, and wait: any stream may use them afterwards."""
    with device_errors():
        stream = cupy.cuda.get_current_stream()
        for value, target in zip(values, targets, strict=True):
            if isinstance(value, np.ndarray):
                target.set(np.ascontiguousarray(value, target.dtype), stream=stream)
            else:
                target[...] = value
        stream.synchronize()


def place(arrays: Sequence[Array]) -> tuple[DeviceArray, ...]:
    """Return copies of host arrays on the current device, ready for any stream."""
    with device_errors():
        copies = tuple(cupy.asarray(array) for array in arrays)
        cupy.cuda.get_current_stream().synchronize()
    return copies


def replace(values: Sequence[Array], placed: Sequence[DeviceArray]) -> tuple[DeviceArray, ...]:
    """Overwrite what `place` returned with new values, so that captured graphs see them."""
    upload(values, placed)
    return tuple(placed)


class Workspaces:
    """Device memory of one plan, for each stream and thread.

    A graph that was captured on a stream keeps the memory that it used: later eager calls on that
    stream get other memory.
    """

    def __init__(self) -> None:
        self._current: dict[tuple[int, int], Any] = {}
        self._captured: set[tuple[int, int]] = set()
        self._kept: list[Any] = []

    def pointer(self, size: int) -> int:
        """Return the address of ``size`` bytes for the current stream; 0 for none."""
        return int(self._memory(size).ptr) if size else 0

    def array(self, elements: int, dtype: np.dtype[Any]) -> DeviceArray:
        """Return an uninitialised array (elements,) for the current stream."""
        memory = self._memory(max(1, elements * dtype.itemsize))
        return cupy.ndarray((elements,), dtype, memptr=memory)

    def _memory(self, size: int) -> Any:
        """Return memory for the current stream, the same as long as no more is asked for.

        Raises
        ------
        RuntimeError
            If the stream captures a graph and has not got enough memory yet.
        """
        stream = cupy.cuda.get_current_stream()
        key = (int(stream.ptr), threading.get_ident())
        memory = self._current.get(key)
        if stream.is_capturing():
            if memory is None or memory.mem.size < size:
                raise RuntimeError(
                    "this operator needs workspace, which cannot be allocated while a graph is "
                    "captured; apply the same operator once on this stream before the capture"
                )
            self._captured.add(key)
        elif memory is None or memory.mem.size < size or key in self._captured:
            if memory is not None and key in self._captured:
                self._kept.append(memory)
            self._captured.discard(key)
            memory = self._current[key] = cupy.cuda.alloc(size)
        return memory
