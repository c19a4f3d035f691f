"""Access to CUDA devices through CuPy: limits, kernels, workspace. The only importer of CuPy."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from batchkron.arrays import device_errors
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.kernel_cache import CompiledKernel, cached_kernel
from batchkron.backends.cuda.runtime.matrix_library import has_matrix_library
from batchkron.backends.cuda.runtime.program import (
    Program,
    compile_options,
    device_sources,
    program_key,
)
from batchkron.errors import BackendUnavailableError
from batchkron.spec.kron import Array

try:
    import cupy
    from cupy.cuda import driver, nvrtc, runtime
except ImportError as error:
    raise BackendUnavailableError(
        "arrays on a CUDA device need CuPy; install it with: pip install 'batchkron[cuda13]' "
        "(or 'batchkron[cuda12]' where the driver is older)"
    ) from error

__all__ = ["cupy", "device_errors", "runtime"]  # imported from here by others

DeviceArray = Any  # a cupy.ndarray; CuPy has no type hints
# Compute capabilities are given times ten, as in sm_90.
# Largest cluster, in thread blocks, of every device with clusters (CUDA C++ programming guide).
_PORTABLE_CLUSTER_BLOCKS = 8
_MIN_CLUSTER_CAPABILITY = 90  # compute capability from which devices have clusters
# Compute capability from which a kernel can be launched before the one ahead of it ends
# (programmatic dependent launch), and the CUDA version, 12.3, whose graphs capture such launches.
_MIN_EARLY_LAUNCH_CAPABILITY = 90
_MIN_EARLY_LAUNCH_DRIVER = 12_030
_USE_NODE_PRIORITY = 8  # CU_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY
# Compute capabilities whose float64 matrix units are as fast as float32 arithmetic.
_FAST_FLOAT64_CAPABILITIES = (80, 90)


@cache
def device_limits(device: int) -> DeviceLimits:
    """Return the limits of a device."""
    capability = int(cupy.cuda.Device(device).compute_capability)
    multiprocessors = runtime.deviceGetAttribute(runtime.cudaDevAttrMultiProcessorCount, device)
    name = runtime.getDeviceProperties(device)["name"].decode()
    return DeviceLimits(
        runtime.deviceGetAttribute(runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        multiprocessors,
        _PORTABLE_CLUSTER_BLOCKS if capability >= _MIN_CLUSTER_CAPABILITY else 1,
        capability in _FAST_FLOAT64_CAPABILITIES,
        f"{name}, sm_{capability}, {multiprocessors} multiprocessors",
        has_matrix_library(),
    )


@cache
def can_launch_early(device: int) -> bool:
    """Return whether kernels can be launched before those ahead of them on the stream have ended.

    This is CUDA's programmatic dependent launch: the kernel itself waits for the earlier ones. The
    driver must also be able to capture such launches in CUDA graphs.
    """
    capability = int(cupy.cuda.Device(device).compute_capability)
    is_new = runtime.driverGetVersion() >= _MIN_EARLY_LAUNCH_DRIVER
    return capability >= _MIN_EARLY_LAUNCH_CAPABILITY and is_new


def _refuse(status: int) -> None:
    raise driver.CUDADriverError(status)


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


class Graph:
    """An executable graph whose kernels have the priorities of the streams they were captured on.

    CuPy's graphs have that of the stream that launches them, so that sends to other devices wait
    behind the kernels beside them.

    ``captured``: address of a cudaGraph_t, which belongs to this object from then on.
    """

    def __init__(self, captured: int) -> None:
        self._executable = ctypes.c_void_p()
        flags = ctypes.c_ulonglong(_USE_NODE_PRIORITY)
        try:
            status = _driver().cuGraphInstantiateWithFlags(
                ctypes.byref(self._executable), ctypes.c_void_p(captured), flags
            )
        finally:
            runtime.graphDestroy(captured)
        if status:
            _refuse(status)

    def launch(self, stream: Any) -> None:
        """Enqueue the work on a stream of CuPy."""
        runtime.graphLaunch(self._executable.value, stream.ptr)

    def __del__(self) -> None:
        if self._executable.value:
            with suppress(Exception):  # the context may be gone already
                runtime.graphExecDestroy(self._executable.value)


def end_capture(stream: Any) -> Graph:
    """Return the graph of what a stream has captured."""
    return Graph(runtime.streamEndCapture(stream.ptr))


@cache
def driver_launch() -> tuple[int, Callable[[int], None]]:
    """Return the address of ``cuLaunchKernelEx``, and a function that raises its error status."""
    address = ctypes.cast(_driver().cuLaunchKernelEx, ctypes.c_void_p).value
    assert address is not None
    return address, _refuse


def driver_context() -> tuple[int, int, int]:
    """Return the addresses of cuCtxGetCurrent and cuCtxSetCurrent, and the current context."""
    runtime.memGetInfo()  # makes it current
    found, names = ctypes.c_void_p(), ("cuCtxGetCurrent", "cuCtxSetCurrent")
    error = _driver().cuCtxGetCurrent(ctypes.byref(found))
    if error:
        _refuse(error)
    get, put = (ctypes.cast(getattr(_driver(), name), ctypes.c_void_p).value for name in names)
    return get or 0, put or 0, found.value or 0


def capture_number(stream: int) -> int:
    """Return the number of the graph that a stream captures; no other of this process has it."""
    status, number = ctypes.c_int(), ctypes.c_uint64()
    asked = ctypes.byref(status), ctypes.byref(number), None, None, None
    error = _driver().cuStreamGetCaptureInfo_v2(ctypes.c_void_p(stream), *asked)
    if error:
        _refuse(error)
    return number.value


def current_device() -> int:
    """Return the number of CuPy's current device; BackendUnavailableError if there is none."""
    try:
        return int(runtime.getDevice())
    except Exception:
        with device_errors():
            raise


def use_device(number: int) -> int:
    """Make a device, any number modulo their count, the thread's current one; return its number."""
    with device_errors():
        device = number % int(runtime.getDeviceCount())
        cupy.cuda.Device(device).use()
    return device


def nccl_module() -> Any:
    """Return CuPy's module of NCCL; BackendUnavailableError if it finds none."""
    try:
        from cupy.cuda import nccl

        if not getattr(nccl, "available", True):
            raise ImportError("it is not available")
    except ImportError as error:
        raise BackendUnavailableError(
            "CuPy finds no NCCL, which ranks with a device each need; install it with: pip install "
            "nvidia-nccl-cu13 (or nvidia-nccl-cu12 where CuPy is cupy-cuda12x)"
        ) from error
    return nccl


_moves = 0


def note_move() -> None:
    """Record that an update moves arrays of an operator to other addresses.

    Called while the old arrays are still there: they are free for others when work on them has
    ended, on whichever stream that is.
    """
    global _moves
    cupy.cuda.Device().synchronize()
    _moves += 1


def moves() -> int:
    """Return the number of calls of `note_move`: graphs of a smaller one may read old addresses."""
    return _moves


class _Prepared(threading.local):
    """The devices for which the calling thread has a current CUDA context."""

    def __init__(self) -> None:
        self.devices: set[int] = set()


_prepared = _Prepared()


def prepare_thread(device: int) -> None:
    """Make the current device's CUDA context current in the calling thread.

    The driver cannot launch kernels from a thread without one; the first call of the runtime in a
    thread makes it current there.
    """
    if device not in _prepared.devices:
        runtime.memGetInfo()
        _prepared.devices.add(device)


def ready_stream(device: int) -> int:
    """Return the handle of the current stream of the current device, ready for launches."""
    prepare_thread(device)
    address: int = cupy.cuda.get_current_stream(device).ptr
    return address


def compile_program(program: Program, options: Sequence[str]) -> CompiledKernel:
    """Compile one kernel with NVRTC to machine code of the architecture in the options."""
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


@cache
def _compiler() -> str:
    """Return the versions of NVRTC, CuPy and NVRTC's wheel, as a part of cache keys."""
    known = ["nvrtc {}.{}".format(*nvrtc.getVersion()), f"cupy {cupy.__version__}"]
    for wheel in ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"):
        with suppress(PackageNotFoundError):
            known.append(f"{wheel} {version(wheel)}")
    return ", ".join(known)


_compiling = threading.Lock()


def _load(program: Program, device: int) -> tuple[Any, Any]:
    """Return the kernel as a CuPy function, and its new module, which only the caller has."""
    options = options_for(device)
    key = program_key(program, device_sources(), options, _compiler())
    return load_code(cached_kernel(key, lambda: compile_program(program, options)), device)


def options_for(device: int) -> tuple[str, ...]:
    """Return NVRTC's options for the architecture of a device."""
    return compile_options(cupy.cuda.Device(device).compute_capability)


def load_code(kernel: CompiledKernel, device: int) -> tuple[Any, Any]:
    """Return machine code as a CuPy function with all shared memory, and its module."""
    module = cupy.cuda.function.Module()
    module.load(kernel.code)
    function = module.get_function(kernel.name)
    driver.funcSetAttribute(
        function.ptr,
        driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
        device_limits(device).shared_bytes,
    )
    return function, module


def keep_code(program: Program, kernel: CompiledKernel, device: int) -> None:
    """Put a kernel that another process compiled for this device into the cache on disk."""
    key = program_key(program, device_sources(), options_for(device), _compiler())
    cached_kernel(key, lambda: kernel)


def device_name(device: int) -> str:
    """Return name, architecture and multiprocessors of a device; measured times belong to it."""
    return device_limits(device).name


@cache
def _loaded(program: Program, device: int) -> Any:
    return _load(program, device)[0]


def load_kernel(program: Program, device: int) -> Any:
    """Return a program's kernel as a CuPy function, compiled and loaded on the first request."""
    with _compiling, device_errors():
        return _loaded(program, device)


class ConstantKernel:
    """A kernel of a module of its own, with factors in constant memory; ``code`` if compiled."""

    def __init__(self, program: Program, device: int, code: CompiledKernel | None = None) -> None:
        with _compiling, device_errors():
            loaded = _load(program, device) if code is None else load_code(code, device)
            self.function, self._module = loaded
            self._constants = self._module.get_global_var("constant_factors")

    def set_constants(self, values: Array) -> None:
        """Overwrite the constants, for any stream, when all work that reads them has ended."""
        with device_errors():
            runtime.memcpy(
                self._constants, values.ctypes.data, values.nbytes, runtime.memcpyHostToDevice
            )
            runtime.streamSynchronize(0)  # copies from pageable memory may return before they end


def prefer_shared_memory(kernel: Any, percentage: int) -> None:
    """Set the percentage of on-chip memory that a kernel prefers as shared memory, -1 for any."""
    driver.funcSetAttribute(
        kernel.ptr, driver.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, percentage
    )


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceArray:
    """Return an uninitialised array on the current device."""
    with device_errors():
        return cupy.empty(shape, dtype)


def check_device(device: int, *arrays: DeviceArray) -> None:
    """Raise TypeError unless ``device`` is the current one and all arrays are on it."""
    current = current_device()
    if current != device:
        raise TypeError(
            f"the operator is on CUDA device {device}, but device {current} is the current one; "
            f"call it inside of 'with cupy.cuda.Device({device})', or move it with to('cuda')"
        )
    for array in arrays:
        where = array.data.device_id
        if where != device:
            raise TypeError(
                f"an array is on CUDA device {where}, but the work is done on device {device}; "
                f"copy the array there"
            )


def matrix_strides(matrix: DeviceArray) -> tuple[int, int]:
    """Return the elements from row to row and from column to column of a matrix."""
    rows, columns = (stride // matrix.itemsize for stride in matrix.strides)
    return rows, columns


def upload(values: Sequence[Array | DeviceArray], targets: Sequence[DeviceArray]) -> None:
    """Copy ``values`` to ``targets``, between two synchronisations.

    First all earlier work of the device ends, because any stream may read the targets; then the
    copies end, because any stream may use them afterwards.
    """
    with device_errors():
        cupy.cuda.Device().synchronize()
        stream = cupy.cuda.get_current_stream()
        for value, target in zip(values, targets, strict=True):
            if isinstance(value, np.ndarray):
                target.set(np.ascontiguousarray(value, target.dtype), stream=stream)
            else:
                target[...] = value
        stream.synchronize()


def place(arrays: Sequence[Array]) -> tuple[DeviceArray, ...]:
    """Return copies of host arrays on the current device; any stream may use them."""
    with device_errors():
        copies = tuple(cupy.asarray(array) for array in arrays)
        cupy.cuda.get_current_stream().synchronize()
    return copies


def order_streams(first: Any, second: Any) -> None:
    """Let later work on the second stream wait for the present work on the first."""
    done = cupy.cuda.Event(disable_timing=True)
    done.record(first)
    second.wait_event(done)


class GraphMemory:
    """Device memory that captured graphs use, kept as long as this object lives."""

    def __init__(self) -> None:
        self._memories: dict[Any, Any] = {}
        self._outgrown: list[Any] = []

    def get(self, key: Any, size: int) -> Any:
        """Return the memory of a key, None if it has fewer bytes."""
        memory = self._memories.get(key)
        return None if memory is None or memory.mem.size < size else memory

    def put(self, key: Any, memory: Any) -> None:
        """Keep memory for a key; what the key had before is kept, too, for earlier graphs."""
        if key in self._memories:
            self._outgrown.append(self._memories[key])
        self._memories[key] = memory

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Take all workspace of the calling thread from here, while a graph is made."""
        before, _thread.graph_memory = _thread.graph_memory, self
        try:
            yield
        finally:
            _thread.graph_memory = before


class _Thread(threading.local):
    graph_memory: GraphMemory | None = None


_thread = _Thread()


def graph_memory() -> GraphMemory | None:
    """Return the memory of the graph that this thread makes now, None if its owner has none."""
    return _thread.graph_memory


_NO_WORKSPACE = (
    "workspace is needed, which cannot be allocated while a graph is captured; apply the same "
    "operator once on this stream before the capture (functions need contiguous arrays of one "
    "dtype, transpose=False and conj=False)"
)


class Workspaces:
    """Workspace of one operator: separate device memory for each device, stream and thread.

    Memory that a captured CUDA graph uses is reserved for the graph as long as this object lives,
    or belongs to the graph's own `GraphMemory`; later calls outside the graph get other memory. All
    other memory of a thread is freed when the thread ends.
    """

    def __init__(self) -> None:
        self._local = threading.local()
        self._captured: list[Any] = []

    def pointer(self, size: int) -> int:
        """Return the address of ``size`` bytes for the current stream; 0 if size is 0."""
        return int(self._memory(size).ptr) if size else 0

    def array(self, elements: int, dtype: np.dtype[Any]) -> DeviceArray:
        """Return an uninitialised array (elements,) for the current stream."""
        memory = self._memory(max(1, elements * dtype.itemsize))
        return cupy.ndarray((elements,), dtype, memptr=memory)

    def _memory(self, size: int) -> Any:
        """Return the current stream's memory; RuntimeError if there is too little in a capture."""
        stream = cupy.cuda.get_current_stream()
        key = (current_device(), int(stream.ptr))
        if (own := graph_memory()) is not None:
            return self._of_graph(own, (self, *key), size, stream.is_capturing())
        memories: dict[tuple[int, int], Any] = self._local.__dict__.setdefault("memories", {})
        memory = memories.get(key)
        captured = any(memory is kept for kept in self._captured)
        if stream.is_capturing():
            if memory is None or memory.mem.size < size:
                raise RuntimeError(_NO_WORKSPACE)
            if not captured:
                self._captured.append(memory)
        elif memory is None or memory.mem.size < size or captured:
            with device_errors():
                memory = cupy.cuda.alloc(size)
            memories[key] = memory
        return memory

    @staticmethod
    def _of_graph(own: GraphMemory, key: Any, size: int, capturing: bool) -> Any:
        memory = own.get(key, size)
        if memory is None:
            if capturing:
                raise RuntimeError(_NO_WORKSPACE)
            with device_errors():
                memory = cupy.cuda.alloc(size)
            own.put(key, memory)
        return memory
