"""Arrays of other libraries: read without a copy, and results of the caller's kind.

NumPy's and CuPy's arrays are native. A foreign array is one that speaks DLPack and whose library
can read DLPack: a tensor of torch, an array of JAX or of array-api-strict.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchkron.backends import backend_on

__all__ = [
    "ArrayKind",
    "any_foreign",
    "common_kind",
    "cuda_view",
    "cupy_stream",
    "dtype_in_numpy",
    "in_kind",
    "kind_of",
    "native",
    "native_entries",
    "on_stream_of",
]

# Device types of DLPack (dlpack.h): memory that the CPU reads, and that CuPy reads.
_CPU_DEVICES = {1, 3}  # kDLCPU, kDLCUDAHost
_CUDA_DEVICES = {2, 13}  # kDLCUDA, kDLCUDAManaged


@dataclass(frozen=True, slots=True)
class ArrayKind:
    """A library's type of arrays.

    ``name``: as in error messages: "torch.Tensor".
    ``library``: the name of the module that the type comes from.
    """

    name: str
    library: str

    def namespace(self, value: Any) -> Any:
        """Return the module whose ``from_dlpack`` makes arrays of this kind."""
        asked = getattr(value, "__array_namespace__", None)
        return sys.modules[self.library] if asked is None else asked()


_known: dict[type, ArrayKind | None] = dict.fromkeys(
    (np.ndarray, list, tuple, int, float, complex, bool, type(None))
)


def kind_of(value: object) -> ArrayKind | None:
    """Return the kind of a foreign array; None for a native one, and for all that is no array."""
    try:
        return _known[type(value)]
    except KeyError:
        return _learn(value)


def _learn(value: object) -> ArrayKind | None:
    """Find the kind of a type that was not asked for before."""
    given, cupy = type(value), sys.modules.get("cupy")
    native_types = (np.ndarray, np.generic) if cupy is None else (np.ndarray, cupy.ndarray)
    library = given.__module__.partition(".")[0]
    kind = None
    if hasattr(given, "__dlpack__") and not isinstance(value, native_types):
        found = ArrayKind(f"{library}.{given.__name__}", library)
        if hasattr(found.namespace(value), "from_dlpack"):
            kind = found
    _known[given] = kind
    return kind


def any_foreign(*operands: object) -> bool:
    """Whether an operand, or an entry of one that is a list or tuple, is a foreign array."""
    for operand in operands:
        if type(operand) is list or type(operand) is tuple:
            for entry in operand:
                if kind_of(entry) is not None:
                    return True
        elif kind_of(operand) is not None:
            return True
    return False


def _named_kind(value: object) -> tuple[ArrayKind | None, str]:
    """Return a value's kind, and the name of its kind; "" if it is no array."""
    kind = kind_of(value)
    if kind is not None:
        return kind, kind.name
    if isinstance(value, np.ndarray):
        return None, "NumPy array"
    cupy = sys.modules.get("cupy")
    return None, "CuPy array" if cupy and isinstance(value, cupy.ndarray) else ""


def common_kind(**operands: Any) -> ArrayKind:
    """Return the kind of the foreign arrays among operands, of which there is one at least.

    Lists, tuples and numbers go with any kind; of a list or tuple the entries count.

    ``**operands``: the operands by their names, for the error.

    Raises `TypeError` if there are arrays of two kinds, one of them foreign.
    """
    arrays: list[tuple[str, Any]] = []
    for name, operand in operands.items():
        if type(operand) in (list, tuple):
            arrays += [(f"{name}[{k}]", entry) for k, entry in enumerate(operand)]
        else:
            arrays.append((name, operand))
    first: tuple[str, str] | None = None
    found: ArrayKind | None = None
    for name, value in arrays:
        kind, called = _named_kind(value)
        if not called:
            continue
        if first is None:
            first, found = (name, called), kind
        elif (kind and kind.library) != (found and found.library):
            raise TypeError(
                f"{first[0]} is a {first[1]}, but {name} is a {called}; expected arrays of one "
                f"kind. Convert one of them, as with from_dlpack of its library"
            )
    assert found is not None
    return found


def native(value: Any, name: str) -> Any:
    """Return a foreign array as one of NumPy or CuPy in the same memory; others unchanged.

    ``name``: the argument, for errors.

    Raises `TypeError` if it is a tensor of torch whose gradient is wanted, is on a device that is
    neither the CPU nor a CUDA device, or has a dtype that neither DLPack nor NumPy can carry.
    `BackendUnavailableError` if it is on a CUDA device, and CuPy is not installed.
    """
    kind = kind_of(value)
    if kind is None:
        return value
    half = False
    if kind.library == "torch":
        value, half = _plain_tensor(value, name)
        array = None
        if value.is_cpu:  # half the time of from_dlpack
            array = value.numpy()
        elif value.is_cuda and _own_stream(value.device) is None:  # a tenth of its time
            try:
                array = cuda_view(value)
            except RuntimeError as error:  # such as of a sparse tensor, which has no such memory
                raise TypeError(f"{name}, a {kind.name}, cannot be read: {error}") from error
        if array is not None:
            return array.view(_bfloat16(name)) if half else array
    device = int(value.__dlpack_device__()[0])
    if device in _CPU_DEVICES:
        module: Any = np
    elif device in _CUDA_DEVICES:
        module = backend_on("cuda").array_module
    else:
        raise TypeError(
            f"{name} is a {kind.name} on a device of DLPack's type {device}; expected one on the "
            f"CPU or on a CUDA device"
        )
    try:
        array = module.from_dlpack(value)
    except (BufferError, RuntimeError) as error:
        if module is not np:
            raise TypeError(f"{name}, a {kind.name}, cannot be read: {error}") from error
        array = np.asarray(value)
    return array.view(_bfloat16(name)) if half else array


def cuda_view(tensor: Any) -> Any:
    """Return an array of CuPy in the memory of a tensor of torch, for work on the same stream.

    ``tensor``: on a CUDA device; neither a lazy conjugate nor of bfloat16.

    Returns cupy.ndarray: it keeps the tensor alive.
    """
    cupy = backend_on("cuda").array_module
    dtype, itemsize, device = dtype_in_numpy(tensor), tensor.itemsize, tensor.get_device()
    shape, steps = tuple(tensor.shape), None
    size = tensor.numel() * itemsize
    if size and not tensor.is_contiguous():
        steps = tuple([itemsize * step for step in tensor.stride()])
        reach = [(n - 1) * step for n, step in zip(shape, steps, strict=True)]
        size = itemsize + sum(reach)
    memory = cupy.cuda.UnownedMemory(tensor.data_ptr(), size, tensor, device)
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0), steps)


_dtypes: dict[Any, np.dtype[Any]] = {}  # of NumPy, by those of torch


def dtype_in_numpy(tensor: Any) -> np.dtype[Any]:
    """Return the dtype of NumPy that a tensor's is, which is not bfloat16."""
    known = _dtypes.get(tensor.dtype)
    if known is None:
        empty = sys.modules["torch"].empty(0, dtype=tensor.dtype)
        known = _dtypes[tensor.dtype] = empty.numpy().dtype
    return known


def native_entries(values: Any, name: str) -> Any:
    """Return a foreign array, or a list or tuple that has some, by `native`; others unchanged."""
    if type(values) in (list, tuple):
        return [native(value, f"{name}[{k}]") for k, value in enumerate(values)]
    return native(values, name)


def _plain_tensor(value: Any, name: str) -> tuple[Any, bool]:
    """Return a tensor that DLPack can carry, and whether its elements are bfloat16.

    Raises `TypeError` if its gradient is wanted.
    """
    torch = sys.modules["torch"]
    if value.requires_grad:
        if torch.is_grad_enabled():
            raise TypeError(
                f"{name} is a torch.Tensor that requires a gradient, which this function would "
                f"lose; use the functions of batchkron.torch, or pass {name}.detach()"
            )
        value = value.detach()
    value = value.resolve_conj().resolve_neg()
    half = value.dtype == torch.bfloat16
    return (value.view(torch.int16) if half else value), half


def _bfloat16(name: str) -> np.dtype[Any]:
    """Return the dtype bfloat16 of the package ml_dtypes.

    Raises `TypeError` if it is not installed.
    """
    try:
        from ml_dtypes import bfloat16
    except ImportError as error:
        raise TypeError(
            f"{name} has dtype bfloat16, which NumPy has from the package ml_dtypes; install it "
            f"with: pip install ml_dtypes"
        ) from error
    dtype: np.dtype[Any] = np.dtype(bfloat16)
    return dtype


def in_kind(function: Callable[..., Any], kind: ArrayKind, /, *operands: Any, **named: Any) -> Any:
    """Call a function on native views of foreign arrays; return its result in their kind.

    On a CUDA device the work goes to the library's current stream, and nothing waits for it.

    Parameters
    ----------
    function : callable
        Takes native arrays and returns one.
    kind : ArrayKind
        Of the foreign arrays, see `common_kind`.
    *operands, **named
        Its arguments; foreign arrays also inside of lists and tuples.

    Returns
    -------
    object
        An array of the kind, in the memory of the function's result; the caller's own one if the
        function returned that.
    """
    foreign: list[Any] = []
    views: list[tuple[Any, Any]] = []  # native arrays, and the caller's

    def given(value: Any, name: str) -> Any:
        if type(value) in (list, tuple):
            return [given(entry, f"{name}[{k}]") for k, entry in enumerate(value)]
        if kind_of(value) is None:
            return value
        view = native(value, name)
        views.append((view, value))
        return view

    arrays = [*operands, *named.values()]
    for value in arrays:
        entries = value if type(value) in (list, tuple) else [value]
        foreign += [entry for entry in entries if kind_of(entry) is not None]
    with on_stream_of(*foreign):
        code = function.__code__  # of a method, too
        names = [n for n in code.co_varnames[: code.co_argcount] if n != "self"]
        names += [f"argument {k}" for k in range(len(names), len(operands))]
        positional = [given(value, name) for value, name in zip(operands, names, strict=False)]
        result = function(
            *positional, **{name: given(value, name) for name, value in named.items()}
        )
        for view, value in views:
            if result is view:
                return value
        return _in_library(kind, foreign[0], result)


def _in_library(kind: ArrayKind, example: Any, result: Any) -> Any:
    """Return a native array as one of a kind, in the same memory."""
    namespace = kind.namespace(example)
    if np.isscalar(result):
        return result
    if kind.library == "torch" and result.dtype.name == "bfloat16":
        return namespace.from_dlpack(result.view(np.int16)).view(namespace.bfloat16)
    return namespace.from_dlpack(result)


def on_stream_of(*arrays: Any) -> AbstractContextManager[None]:
    """Return a context in which the current stream of torch is CuPy's.

    It does nothing if no array is a tensor of torch on a CUDA device: other libraries and CuPy
    tell each other by DLPack what to wait for.

    ``*arrays`` (foreign arrays).
    """
    for array in arrays:
        if getattr(array, "is_cuda", False) and type(array).__module__.startswith("torch"):
            return _on_stream(array.device)
    return nullcontext()


def _on_stream(device: Any) -> AbstractContextManager[None]:
    address = _own_stream(device)
    return nullcontext() if address is None else _other_stream(device.index, address)


def _own_stream(device: Any) -> int | None:
    """Return the handle of torch's current stream on a device; None if CuPy's is the same."""
    cuda, index = backend_on("cuda").array_module.cuda, device.index
    address: int = sys.modules["torch"].cuda.current_stream(device).cuda_stream
    if cuda.runtime.getDevice() != index or cuda.get_current_stream().ptr != address:
        return address
    if index not in _thread.devices:
        cuda.runtime.setDevice(index)  # gives a thread of torch's own its context
        _thread.devices.add(index)
    return None


class _Thread(threading.local):
    def __init__(self) -> None:
        self.devices: set[int] = set()  # whose context is current in this thread


_thread = _Thread()


@contextmanager
def _other_stream(device: int, address: int) -> Iterator[None]:
    cupy = backend_on("cuda").array_module
    with cupy.cuda.Device(device), cupy_stream(cupy, address):
        yield


@functools.lru_cache(maxsize=64)
def cupy_stream(cupy: Any, address: int) -> Any:
    """Return the stream of another library, which owns it, as one of CuPy.

    ``address``: the handle of the stream (cudaStream_t); 0 is the default stream.
    """
    streams = cupy.cuda.Stream
    return streams.from_external(_StreamAt(address)) if address else streams.null


class _StreamAt:
    def __init__(self, address: int) -> None:
        self._address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._address  # the protocol's version, and the handle
