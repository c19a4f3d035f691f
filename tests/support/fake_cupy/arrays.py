"""Arrays on the device, their arithmetic, and NumPy's functions of them."""

import operator

import numpy as np

from fake_cupy.memory import DEVICES, Memory, at


def on_stream(work):
    """Do work, or hand it over to the graph that the current stream captures."""
    from fake_cupy.device import on_stream

    on_stream(work)


def keep(memory):
    """Keep memory as long as the graph that the current stream captures, as a graph's pool does."""
    streams = DEVICES[-1].streams if DEVICES else []
    if streams and streams[-1].capturing:
        streams[-1].graph.memory.append(memory)


class Array:
    """An array on the device, as `cupy.ndarray`."""

    def __init__(self, shape, dtype=float, host=None, memptr=None):
        if memptr is not None:
            host = at(memptr.ptr, shape, dtype)
        self.memory = memptr  # kept as long as the array
        self.host = np.full(shape, 7, dtype) if host is None else host
        self.data, self.dtype = Memory(self.host), self.host.dtype
        keep(self.host)

    def __getattr__(self, name):
        found = getattr(self.host, name)
        if not callable(found):
            return wrapped(found)
        return lambda *values, **options: wrapped(found(*values, **options))

    def __len__(self):
        return len(self.host)

    def __getitem__(self, key):
        return Array(None, host=self.host[inside(key)])

    def __setitem__(self, key, value):
        key, value = inside(key), inside(value)
        on_stream(lambda: self.host.__setitem__(key, value))

    def fill(self, value):
        on_stream(lambda: self.host.fill(value))

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        assert method == "__call__"
        values = [inside(value) for value in inputs]
        if out is None:
            return wrapped(ufunc(*values, **options))
        on_stream(lambda: ufunc(*values, out=out[0].host, **options))
        return out[0]

    def __array_function__(self, function, kinds, values, options):
        if function is np.copyto:
            target, source = (inside(value) for value in values)
            on_stream(lambda: np.copyto(target, source, **options))
            return None
        return from_numpy(function.__name__)(*values, **options)

    @property
    def __cuda_array_interface__(self):
        return self.host.__array_interface__

    def get(self, out=None):
        DEVICES[-1].finish()
        if out is None:
            return self.host.copy()
        out[...] = self.host
        return out

    def set(self, values, stream=None):
        self.host[...] = values

    def astype(self, dtype, copy=True):
        return (
            self if self.dtype == dtype and not copy else Array(None, host=self.host.astype(dtype))
        )


def inside(value):
    """What NumPy takes in the place of an array on the device; CuPy takes none of NumPy's."""
    if isinstance(value, (list, tuple)):
        return type(value)(inside(one) for one in value)
    if isinstance(value, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    return value.host if isinstance(value, Array) else value


def wrapped(value):
    return Array(None, host=value) if isinstance(value, np.ndarray) else value


def _arithmetic(name):
    function = getattr(operator, name)

    def method(self, other):
        result = function(self.host, inside(other))
        return self if result is self.host else Array(None, host=np.asarray(result))

    return method


_NAMES = (
    *("add", "sub", "mul", "truediv", "floordiv", "matmul", "pow", "iadd", "isub", "imul"),
    *("gt", "ge", "lt", "le", "and"),
)
for _name in _NAMES:
    setattr(Array, f"__{_name}__", _arithmetic(f"__{_name}__"))
Array.__radd__ = Array.__add__
Array.__rmul__ = Array.__mul__
Array.__eq__ = _arithmetic("__eq__")
Array.__hash__ = object.__hash__
Array.__neg__ = lambda self: Array(None, host=-self.host)
Array.__invert__ = lambda self: Array(None, host=~self.host)
Array.__rtruediv__ = lambda self, other: Array(None, host=np.asarray(other / self.host))
Array.__abs__ = lambda self: Array(None, host=np.abs(self.host))


def from_numpy(name):
    """A function of NumPy that takes and returns arrays on the device."""

    def function(*values, **options):
        options = {key: inside(value) for key, value in options.items()}
        values = [inside(value) for value in values]
        return wrapped(getattr(np, name)(*values, **options))

    return function


def from_numpy_fft(name):
    """A transform of CuPy's module fft; as that, it keeps single precision."""

    def function(x, n, axis):
        found = getattr(np.fft, name)(x.host, n, axis)
        single = x.dtype.itemsize == {"c": 8, "f": 4}[x.dtype.kind]
        narrow = {"c": np.complex64, "f": np.float32}[found.dtype.kind]
        return Array(None, host=found.astype(narrow) if single else found)

    return function
