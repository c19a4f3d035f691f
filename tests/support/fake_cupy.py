"""A CuPy whose device is main memory, for processes of their own on machines without a device.

`install` takes the place of CuPy, and of the driver: a launch computes in NumPy what its kernel
would, from the bytes of the kernel's arguments. Only what the functions on device arrays use is
there.
"""

import ctypes
import math
import operator
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace

import numpy as np

from batchkron.backends.cuda.batch.records import unsorted_arguments
from batchkron.backends.cuda.diagonal.kernel import diagonal_arguments
from batchkron.backends.cuda.general_kernel import batch_arguments
from batchkron.backends.cuda.interpolated.kernel import interpolation_arguments
from batchkron.backends.cuda.interpolated.pieces import fold_arguments
from batchkron.backends.cuda.kron_sparse.kernel import sparse_arguments, sum_dtype
from batchkron.backends.cuda.kron_sparse.stored import store_arguments, stored_shape
from batchkron.backends.cuda.kron_sum.back_substitution import back_substitution_arguments

LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p
)


class Memory:
    """A pointer into memory of the pool, as `cupy.cuda.MemoryPointer`."""

    def __init__(self, host):
        self.host, self.mem, self.device_id = host, SimpleNamespace(size=host.nbytes), 0
        self.ptr = host.__array_interface__["data"][0]

    def copy_from_device_async(self, source, size, stream):
        ctypes.memmove(self.ptr, source.ptr, size)

    def memset_async(self, value, size):
        ctypes.memset(self.ptr, value, size)


class Array:
    """An array on the device, as `cupy.ndarray`."""

    def __init__(self, shape, dtype=float, host=None, memptr=None):
        if memptr is not None:
            host = at(memptr.ptr, shape, dtype)
        self.memory = memptr  # kept as long as the array
        self.host = np.full(shape, 7, dtype) if host is None else host
        self.data, self.dtype = Memory(self.host), self.host.dtype

    def __getattr__(self, name):
        found = getattr(self.host, name)
        if not callable(found):
            return wrapped(found)
        return lambda *values, **options: wrapped(found(*values, **options))

    def __len__(self):
        return len(self.host)

    def __getitem__(self, key):
        return Array(None, host=self.host[key])

    def __setitem__(self, key, value):
        self.host[key] = getattr(value, "host", value)

    @property
    def __cuda_array_interface__(self):
        return self.host.__array_interface__

    def get(self):
        return self.host.copy()

    def set(self, values, stream=None):
        self.host[...] = values

    def astype(self, dtype, copy=True):
        return (
            self if self.dtype == dtype and not copy else Array(None, host=self.host.astype(dtype))
        )


def from_numpy_fft(name):
    """A transform of CuPy's module fft; as that, it keeps single precision."""

    def function(x, n, axis):
        found = getattr(np.fft, name)(x.host, n, axis)
        single = x.dtype.itemsize == {"c": 8, "f": 4}[x.dtype.kind]
        narrow = {"c": np.complex64, "f": np.float32}[found.dtype.kind]
        return Array(None, host=found.astype(narrow) if single else found)

    return function


def _arithmetic(name):
    function = getattr(operator, name)

    def method(self, other):
        result = function(self.host, getattr(other, "host", other))
        return self if result is self.host else Array(None, host=np.asarray(result))

    return method


for _name in ("add", "sub", "mul", "truediv", "matmul", "pow", "gt", "iadd", "isub", "imul"):
    setattr(Array, f"__{_name}__", _arithmetic(f"__{_name}__"))
Array.__radd__ = Array.__add__
Array.__rmul__ = Array.__mul__
Array.__rtruediv__ = lambda self, other: Array(None, host=np.asarray(other / self.host))
Array.__abs__ = lambda self: Array(None, host=np.abs(self.host))


def from_numpy(name):
    """A function of NumPy that takes and returns arrays on the device."""

    def function(*values, **options):
        options = {key: getattr(value, "host", value) for key, value in options.items()}
        values = [
            [getattr(one, "host", one) for one in value]
            if isinstance(value, list)
            else getattr(value, "host", value)
            for value in values
        ]
        return wrapped(getattr(np, name)(*values, **options))

    return function


def pinned(size):
    """Memory of the host that kernels may write to, as `cupy.cuda.alloc_pinned_memory`."""

    class Pinned(ctypes.Array):
        _type_, _length_ = ctypes.c_char, size

    memory = Pinned()
    memory.ptr = ctypes.addressof(memory)
    return memory


def wrapped(value):
    return Array(None, host=value) if isinstance(value, np.ndarray) else value


class Stream:
    """A stream; `capturing` is the number of the graph that it captures, 0 for none."""

    def __init__(self, ptr):
        self.ptr, self.capturing = ptr, 0

    def is_capturing(self):
        return self.capturing != 0

    def synchronize(self):
        assert not self.capturing

    def __enter__(self):
        DEVICES[-1].streams.append(self)

    def __exit__(self, *error):
        DEVICES[-1].streams.pop()

    def wait_event(self, event):
        DEVICES[-1].waits.append((self, event.stream))

    def begin_capture(self):
        assert not self.capturing
        self.capturing, self.graph = 1, Graph()

    def end_capture(self):
        assert self.capturing
        self.capturing = 0
        return self.graph


class Graph:
    """What a stream captures: functions, which work on it hands over instead of running them."""

    def __init__(self):
        self.nodes, self.launches = [], 0

    def launch(self, stream):
        assert not stream.capturing
        self.launches += 1
        for node in self.nodes:
            node()


class Event:
    """An event, which knows the stream that it was recorded on."""

    def __init__(self, disable_timing=False):
        self.stream = None

    def record(self, stream):
        assert not stream.capturing
        self.stream = stream


@contextmanager
def using_allocator(allocator):
    yield


DEVICES = []  # the one that is installed


class Device:
    """The current device and stream; what was allocated in bytes, and launched on which stream.

    Its kernels compute at once, so that an order of streams cannot be seen here.
    """

    def __init__(self):
        self.current, self.stream = 0, Stream(0)
        self.streams, self.waits, self.made = [], [], 0  # those of "with" blocks; of wait_event
        self.allocated, self.launches, self.kernels, self.known = [], [], [], {}
        self.launch = LAUNCH(self._launch)

    def new_stream(self, non_blocking=False):
        self.made += 1
        return Stream(16 + self.made)  # 1 and 2 are default streams

    def alloc(self, size):
        self.allocated.append(size)
        memory = Memory(np.full(size + 256, 255, np.uint8))
        memory.ptr += -memory.ptr % 256
        memory.mem.size = size
        return memory

    def _launch(self, configuration, number, parameters, extra):
        try:
            kernel = self.known[self.kernels[number - 1].program]
            stream = ctypes.c_void_p.from_address(configuration + 32).value or 0
            self.launches.append((kernel, stream))
            COMPUTE[type(kernel).__name__](kernel, parameters[0])
        except Exception as error:  # would not leave the callback
            self.error = error
            return 999
        return 0

    def check(self, status):
        raise self.error


def at(address, shape, dtype, strides=None):
    """The array at an address; strides in elements."""
    dtype = np.dtype(dtype)
    strides = None if strides is None else [step * dtype.itemsize for step in strides]
    reach = math.prod(shape) * dtype.itemsize if strides is None else 1 << 40
    memory = (ctypes.c_char * reach).from_address(int(address))
    return np.ndarray(shape, dtype, memory, strides=strides)


def multiply(kernel, address):
    """What kernels of Kron-Matmuls do."""
    run = kernel.run
    given = at(address, (), kernel.arguments().dtype)
    left = given["L"] if "L" in given.dtype.fields else given["columns"] // given["R"]
    factors = given["factors"] if "factors" in given.dtype.fields else given["steps"]["factors"]
    x = at(given["x"], (left, *run.inputs, given["R"]), run.dtype)
    for mode, one in zip(kernel.modes, factors, strict=True):
        axis = mode - run.first
        matrix = at(
            one["data"],
            (run.outputs[axis], run.inputs[axis]),
            run.dtype,
            (one["row"], one["column"]),
        )
        x = np.moveaxis(np.tensordot(matrix, x, (1, axis + 1)), 0, axis + 1)
    result = given["alpha"] * x
    shape = (left, *run.outputs, given["R"])
    if given["previous"]:
        result = result + given["beta"] * at(given["previous"], shape, run.dtype)
    at(given["y"], shape, run.dtype)[...] = result


def multiply_batch(kernel, address):
    """What the kernel of any batch list does, for lists of one mode."""
    shape, (step,) = kernel.shape, kernel.shape.steps
    given = at(address, (), batch_arguments(shape.dtype, len(shape.steps), True))
    ids = at(given["ids"], (shape.products,), np.int32)
    inputs = at(given["inputs"], (shape.products,), np.int64)
    starts = at(given["starts"], (shape.num_outputs + 1,), np.int64)
    x = at(given["x"], (shape.num_inputs, step.L, step.C), shape.dtype)
    y = at(given["y"], (shape.num_outputs, step.L, step.K), shape.dtype)
    factor = given["steps"]["factors"][0]
    for k in range(shape.num_outputs):
        total = np.zeros((step.L, step.K), shape.dtype)
        for b in range(starts[k], starts[k + 1]):
            matrix = at(
                factor["data"] + factor["matrix"] * shape.dtype.itemsize * int(ids[b]),
                (step.K, step.C),
                shape.dtype,
                (factor["row"], factor["column"]),
            )
            total += x[inputs[b]] @ matrix.T
        y[k] = given["alpha"] * total + (y[k] if given["accumulate"] else 0)


def write_product(kernel, address):
    """What kernels of explicit products do."""
    dtype = kernel.shape.dtype
    given = at(address, (), kernel.arguments().dtype)

    def matrix(name):
        layout = given[name]
        shape, strides = (layout["rows"], layout["columns"]), (layout["row"], layout["column"])
        return at(given[f"{name}_data"], shape, dtype, strides)

    def product_of(name):
        inner = f"{name}_inner"
        if inner not in given.dtype.names or given[inner]["rows"] == 0:
            return matrix(name)
        return np.kron(matrix(name), matrix(inner))

    product = np.kron(product_of("a"), product_of("b"))
    at(given["out"], product.shape, dtype)[...] = product


@dataclass(frozen=True)
class UnsortedKernel:
    """A kernel of batched_kron: its dtype, tile, and the C++ type of the list's numbers."""

    dtype: np.dtype
    tile: object
    number: str


def add_unsorted(kernel, address):
    """What the kernel of lists in no order does, with pools as they are and no identities."""
    steps, dtype = kernel.tile.steps, kernel.dtype
    given = at(address, (), unsorted_arguments(dtype, len(steps)))
    number = {"int": np.int32, "long long": np.int64}[kernel.number]
    products, modes = int(given["products"]), len(steps)
    ids = at(given["ids"], (products, modes), number)
    inputs, outputs = (at(given[name], (products,), number) for name in ("inputs", "outputs"))
    columns, rows = [0] * modes, [0] * modes
    for step in steps:
        columns[step.mode], rows[step.mode] = step.C, step.K
    lead, blocks = int(given["outer"]), (int(given["num_inputs"]), int(given["num_outputs"]))
    x = at(given["x"], (lead, blocks[0], *columns), dtype)
    y = at(given["y"], (lead, blocks[1], *rows), dtype)
    weights = at(given["weights"], (products,), dtype) if given["weights"] else None
    for b in range(products):
        numbers = [*zip(ids[b, given["columns"]], given["limits"], strict=True)]
        numbers += [(inputs[b], blocks[0]), (outputs[b], blocks[1])]
        if not all(0 <= one < limit for one, limit in numbers):
            refused = at(given["refused"], (1,), np.int64)
            refused[0] = min(refused[0], b)
            continue
        part = x[:, inputs[b]]
        for s, step in enumerate(steps):
            pool = at(given["pools"][s], (given["limits"][s], step.K, step.C), dtype)
            matrix = pool[ids[b, step.mode]]
            part = np.moveaxis(np.tensordot(matrix, part, (1, step.mode + 1)), 0, step.mode + 1)
        y[:, outputs[b]] += given["alpha"] * (1 if weights is None else weights[b]) * part


def multiply_sparse(kernel, address):
    """What kernels of Kronecker-sparse matrices do; other products may have the same kernel."""
    shape = kernel.shape
    kind = np.dtype(shape.dtype)
    given = at(address, (), sparse_arguments(shape.dtype))
    sizes = [int(given[name]) for name in ("outer", "a", "b", "c", "d", "inner")]
    outer, a, b, c, d, inner = sizes
    assert int(given["x"]) % (getattr(kernel.tile, "pack", 1) * kind.itemsize) == 0
    stored = stored_shape((a, b, c, d), kind.itemsize, kernel.stored)
    values = at(given["values"], stored, kind)
    if kernel.stored == "blocks":
        assert int(given["values"]) % 16 == 0
        assert not values[..., c:].any()
        values = values[..., :c].transpose(0, 2, 3, 1)
    x = at(given["x"], (outer, a, c, d, inner), kind)
    y = at(given["y"], (outer, a, b, d, inner), kind)
    wide = sum_dtype(shape.dtype)
    result = given["alpha"] * np.einsum("oiljr,iklj->oikjr", x.astype(wide), values.astype(wide))
    y[...] = result + y if given["accumulate"] else result


def store_values(kernel, address):
    """What the kernel does that copies values of Kronecker-sparse matrices."""
    given, kind = at(address, (), store_arguments()), np.dtype(kernel.dtype)
    sizes, strides = given["sizes"].tolist(), given["strides"].tolist()
    stored = at(given["stored"], (*sizes[:3], int(given["row"])), kind)
    stored[...] = 0
    stored[..., : sizes[3]] = at(given["values"], sizes, kind, strides)


@dataclass(frozen=True)
class OtherKernel:
    """A kernel that is known by its dtype and numbers."""

    kind: str
    dtype: np.dtype
    numbers: tuple


def run_other(kernel, address):
    others = {
        "diagonal": multiply_diagonal,
        "back_substitution": substitute_back,
        "store": store_values,
        "fold": fold_pieces,
    }
    others.get(kernel.kind, interpolate)(kernel, address)


def multiply_diagonal(kernel, address):
    """What the kernel of diagonal products does."""
    given = at(address, (), diagonal_arguments(kernel.dtype))
    count, inner = int(given["count"]), int(given["inner"])
    x, y = (at(given[name], (count,), kernel.dtype) for name in "xy")
    d = at(given["d"], (int(given["period"]),), kernel.dtype)
    result = given["alpha"] * d[np.arange(count) // inner % len(d)] * x
    y[...] = y + result if given["accumulate"] else result


def substitute_back(kernel, address):
    """What a step of back substitution does."""
    given = at(address, (), back_substitution_arguments(kernel.dtype, *kernel.numbers))
    sizes = given["sizes"].tolist()
    x = at(given["x"], (*sizes, int(given["inner"])), kernel.dtype)
    matrices = [
        at(one, (n, n), kernel.dtype) for one, n in zip(given["triangles"], sizes, strict=True)
    ]
    for index in np.ndindex(*sizes):
        if sum(index) != given["level"]:
            continue
        total, divisor = 0, given["shift"]
        for k, (place, matrix) in enumerate(zip(index, matrices, strict=True)):
            divisor = divisor + matrix[place, place]
            fibre = x[(*index[:k], slice(place + 1, None), *index[k + 1 :])]
            total = total + matrix[place, place + 1 :] @ fibre
        x[index] = (x[index] - total) / divisor


def fold_pieces(kernel, address):
    """Add the pieces of points."""
    (vectors,) = kernel.numbers
    given = at(address, (), fold_arguments(kernel.dtype))
    pieces, count, step = (int(given[name]) for name in ("pieces", "count", "point_step"))
    partial = at(given["partial"], (pieces, count, vectors), kernel.dtype)
    starts = given["vectors"][:vectors]
    points = at(given["points"], (count * step + int(starts.max()),), kernel.dtype)
    where = np.arange(count)[:, None] * step + starts
    sums = given["alpha"] * partial.sum(axis=0)
    points[where] = points[where] + sums if given["accumulate"] else sums


def interpolate(kernel, address):
    """What the kernels of interpolation do."""
    modes, vectors, *_ = kernel.numbers
    given = at(address, (), interpolation_arguments(kernel.dtype, modes))
    if kernel.kind in ("segments", "cells"):
        interpolate_by_segments(kernel.kind, given, kernel.dtype, modes, vectors)
        return
    count, step = int(given["count"]), int(given["cell_step"])
    weights = at(given["weights"], (count, modes, 4), kernel.dtype)
    cells = at(given["corners"], (count, 1), np.int64) * step
    entries = np.ones((count, 1), kernel.dtype)
    for k, apart in enumerate(given["steps"]):
        cells = (cells[:, :, None] + np.arange(4) * apart).reshape(count, 4 ** (k + 1))
        entries = (entries[:, :, None] * weights[:, k, None]).reshape(count, 4 ** (k + 1))
    places = at(given["places"], (count,), np.int32).astype(np.int64)
    all_cells = np.arange(math.prod(given["sizes"].tolist())) * step
    far = count * int(given["point_step"]) + int(given["vectors"].max())
    points = at(given["points"], (far,), kernel.dtype)
    grid = at(given["grid"], (all_cells.max() + vectors,), kernel.dtype)
    for r in range(vectors):
        where = places * given["point_step"] + given["vectors"][r]
        if kernel.kind == "gather":
            sums = given["alpha"] * (grid[cells + r] * entries).sum(axis=1)
            points[where] = points[where] + sums if given["accumulate"] else sums
            continue
        grid[all_cells + r] = 0
        np.add.at(grid, cells + r, entries * points[where][:, None])


def interpolate_by_segments(kind, given, dtype, modes, vectors):
    """Sum over the points of segments, or over the segments that meet a cell."""
    leads, segment_count = 4 ** (modes - 1), int(given["segment_count"])
    segments = at(given["segments"], (segment_count + 1, 4), np.int32).tolist()
    spans = sum(segment[1] for segment in segments)
    partial = at(given["partial"], (spans * leads * vectors,), dtype)
    blocks = [
        partial[base * leads * vectors :][: leads * span * vectors].reshape(leads, span, vectors)
        for base, span, _, _ in segments
    ]
    sizes = given["sizes"].tolist()
    if kind == "cells":
        rows = [size - 3 for size in sizes[:-1]]
        covers = at(given["covers"], (*rows, sizes[-1], 2), np.int32)
        far = (math.prod(sizes) - 1) * int(given["cell_step"]) + vectors
        grid = at(given["grid"], (far,), dtype)
        for cell, index in enumerate(np.ndindex(*sizes)):
            total = np.zeros(vectors, dtype)
            for lead, digits in enumerate(np.ndindex(*(4,) * (modes - 1))):
                row = [i - digit for i, digit in zip(index, digits, strict=False)]
                if all(0 <= r < n for r, n in zip(row, rows, strict=True)):
                    for s in range(*covers[(*row, index[-1])].tolist()):
                        total += blocks[s][lead, index[-1] - segments[s][2]]
            begin = cell * int(given["cell_step"])
            grid[begin : begin + vectors] = total
        return
    count, step = int(given["count"]), int(given["point_step"])
    weights = at(given["weights"], (count, modes, 4), dtype)
    entries = at(given["entries"], (count, 2), np.int32).tolist()
    apart = given["vectors"][:vectors]
    points = at(given["points"], (count * step + int(apart.max()),), dtype)
    for s, (block, (_, _, first, begin)) in enumerate(zip(blocks, segments, strict=True)):
        block[...] = 0
        for p in range(begin, segments[s + 1][3] if s < segment_count else begin):
            place, column = entries[p]
            window = np.ones(1, dtype)
            for k in range(modes - 1):
                window = np.kron(window, weights[p, k])
            values = points[place * step + apart]
            block[:, column - first :][:, :4] += (
                window[:, None, None] * weights[p, -1][:, None] * values
            )


COMPUTE = {
    "OtherKernel": run_other,
    "SparseKernel": multiply_sparse,
    "KronKernel": multiply,
    "BatchKernel": multiply_batch,
    "ProductKernel": write_product,
    "UnsortedKernel": add_unsorted,
}


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
        Device=lambda *_: SimpleNamespace(compute_capability="90", synchronize=lambda: None),
    )
    vars(cupy).update(
        ndarray=Array,
        cuda=cuda,
        asarray=lambda value: (
            value if isinstance(value, Array) else Array(None, host=np.array(value))
        ),
        empty=Array,
        zeros=lambda shape, dtype: Array(None, host=np.zeros(shape, dtype)),
        asnumpy=lambda value: value.get(),
        may_share_memory=lambda a, b: np.may_share_memory(a.host, b.host),
        multiply=lambda a, b, out, dtype=None: np.multiply(
            a.host, getattr(b, "host", b), out=out.host
        ),
        fft=SimpleNamespace(
            **{name: from_numpy_fft(name) for name in ("rfft", "irfft", "fft", "ifft")}
        ),
        **{name: from_numpy(name) for name in ("stack", "eye", "exp", "arange", "sqrt", "where")},
        ascontiguousarray=lambda value, dtype=None: (
            value
            if value.flags.c_contiguous and (dtype is None or dtype == value.dtype)
            else Array(None, host=np.ascontiguousarray(value.host, dtype))
        ),
        __version__="0",
    )
    sys.modules.update({"cupy": cupy, "cupy.cuda": cuda})
    _replace_driver(device)
    return device


def _replace_driver(device):
    from batchkron.backends.cuda.batch import list_calls
    from batchkron.backends.cuda.batch.kernel import BatchKernel
    from batchkron.backends.cuda.diagonal import plan as diagonal
    from batchkron.backends.cuda.explicit.kernel import ProductKernel
    from batchkron.backends.cuda.interpolated import plan as interpolated
    from batchkron.backends.cuda.kron import plan as kron
    from batchkron.backends.cuda.kron.kernel import KronKernel
    from batchkron.backends.cuda.kron_sparse import function_calls as sparse_calls
    from batchkron.backends.cuda.kron_sparse.kernel import SparseKernel
    from batchkron.backends.cuda.kron_sum import triangular_plan
    from batchkron.backends.cuda.runtime import call_workspace, launch
    from batchkron.backends.cuda.runtime import device as module

    def load(program, _):
        kernel = SimpleNamespace(program=program, ptr=len(device.kernels) + 1)
        device.kernels.append(kernel)
        return kernel, None

    module._load = load
    address = ctypes.cast(device.launch, ctypes.c_void_p).value
    launch.driver_launch = lambda: (address, device.check)
    call_workspace.capture_number = lambda _: device.stream.capturing
    for kind in (KronKernel, BatchKernel, ProductKernel, SparseKernel):
        kind.program = _noting(kind.program, device.known)
    program_of = list_calls.unsorted_program

    def unsorted_program(dtype, tile, number, by_row, identities):
        assert by_row
        assert not identities
        program = program_of(dtype, tile, number, by_row, identities)
        device.known[program] = UnsortedKernel(dtype, tile, number)
        return program

    list_calls.unsorted_program = unsorted_program
    kron._may_be_constant = lambda spec: False
    for place, name in (
        (diagonal, "diagonal"), (interpolated, "gather"), (interpolated, "scatter"),
        (interpolated, "segments"), (interpolated, "cells"), (interpolated, "fold"),
        (triangular_plan, "back_substitution"), (sparse_calls, "store"),
    ):  # fmt: skip
        _note_other(place, name, device.known)


def _note_other(place, kind, known):
    name = f"{kind}_program"
    program_of = getattr(place, name)

    def program(dtype, *numbers):
        found = program_of(dtype, *numbers)
        known[found] = OtherKernel(kind, dtype, numbers)
        return found

    setattr(place, name, program)


def _noting(program_of, known):
    def program(kernel):
        found = program_of(kernel)
        known[found] = kernel
        return found

    return program
