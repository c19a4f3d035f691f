"""Handlers of batchkron.jax called as XLA calls them, by its structures in ctypes."""

import ctypes

import numpy as np

from batchkron.backends.cpu import native

HANDLERS = [name for name in dir(native) if name.startswith("jax_")]
STREAM, MEMORY = 0x5EA, 0x3E3  # addresses of XLA's stream, and of memory that it allocates
INITIALIZE, EXECUTE = 2, 3  # stages
_DTYPES = {"uint8": 6, "float64": 12, "complex128": 18}


class Version(ctypes.Structure):
    _fields_ = (
        ("bytes", ctypes.c_size_t),
        ("extensions", ctypes.c_void_p),
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
    )


class NewError(ctypes.Structure):
    _fields_ = (
        ("bytes", ctypes.c_size_t),
        ("extensions", ctypes.c_void_p),
        ("text", ctypes.c_char_p),
        ("code", ctypes.c_int),
    )


class GetStream(ctypes.Structure):
    _fields_ = (
        ("bytes", ctypes.c_size_t),
        ("extensions", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    )


class AllocateMemory(ctypes.Structure):
    _fields_ = (
        ("bytes", ctypes.c_size_t),
        ("extensions", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("alignment", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
    )


class FreeMemory(ctypes.Structure):
    _fields_ = (
        ("bytes", ctypes.c_size_t),
        ("extensions", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
    )


class GetDevice(ctypes.Structure):
    _fields_ = (
        ("bytes", ctypes.c_size_t),
        ("extensions", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("number", ctypes.c_int32),
    )


MakeError = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(NewError))
DeleteError = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
Allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(AllocateMemory))
Free = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(FreeMemory))
FindDevice = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(GetDevice))
FindStream = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(GetStream))


class Functions(ctypes.Structure):
    _fields_ = (
        ("bytes", ctypes.c_size_t),
        ("extensions", ctypes.c_void_p),
        ("version", Version),
        ("internal", ctypes.c_void_p),
        ("new_error", MakeError),
        ("unused", ctypes.c_void_p),
        ("delete_error", DeleteError),
        ("unused_too", ctypes.c_void_p),
        ("get_stream", FindStream),
        ("more_unused", ctypes.c_void_p * 4),
        ("allocate", Allocate),
        ("free", Free),
        ("others", ctypes.c_void_p * 6),
        ("get_device", FindDevice),
    )


class Buffer(ctypes.Structure):
    _fields_ = (
        ("bytes", ctypes.c_size_t),
        ("extensions", ctypes.c_void_p),
        ("dtype", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("axes", ctypes.c_int64),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
    )


class Text(ctypes.Structure):
    _fields_ = (("first", ctypes.c_char_p), ("length", ctypes.c_size_t))


class Scalar(ctypes.Structure):
    _fields_ = (("dtype", ctypes.c_int), ("value", ctypes.c_void_p))


class Values(ctypes.Structure):
    """Arguments or results."""

    _fields_ = (
        ("bytes", ctypes.c_size_t),
        ("extensions", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("kinds", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
    )


class Attributes(ctypes.Structure):
    _fields_ = (
        ("bytes", ctypes.c_size_t),
        ("extensions", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("kinds", ctypes.c_void_p),
        ("names", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
    )


class CallFrame(ctypes.Structure):
    _fields_ = (
        ("bytes", ctypes.c_size_t),
        ("extensions", ctypes.c_void_p),
        ("functions", ctypes.POINTER(Functions)),
        ("context", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("arguments", Values),
        ("results", Values),
        ("attributes", Attributes),
    )


class Metadata(ctypes.Structure):
    _fields_ = (
        ("bytes", ctypes.c_size_t),
        ("version", Version),
        ("traits", ctypes.c_uint32),
        ("state_type", ctypes.c_int64),
    )


class MetadataExtension(ctypes.Structure):
    _fields_ = (
        ("bytes", ctypes.c_size_t),
        ("kind", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("metadata", ctypes.POINTER(Metadata)),
    )


def call(
    name,
    version=(0, 3),
    extension=None,
    stage=EXECUTE,
    missing=0,
    fill=lambda frame: None,
    memory=None,
    device=5,
):
    """Call a handler as XLA does; return its error's code and text, or None.

    ``fill`` puts arguments, results and attributes into the frame. What the handler allocates and
    frees of the device is appended to ``memory``; None: there is none.
    """
    found = []

    @MakeError
    def new_error(error):
        found.append((error.contents.code, error.contents.text.decode()))
        return 1

    own = Version(ctypes.sizeof(Version), None, *version)

    @FindStream
    def get_stream(asked):
        asked.contents.stream = STREAM

    @FindDevice
    def get_device(asked):
        asked.contents.number = device

    @Allocate
    def allocate(asked):
        if memory is None:
            return 1
        memory.append(asked.contents.size)
        asked.contents.data = MEMORY
        return None

    @Free
    def free(asked):
        memory.append((asked.contents.size, asked.contents.data))

    @DeleteError
    def delete_error(_):
        pass

    functions = Functions(ctypes.sizeof(Functions), None, own, None, new_error)
    functions.get_stream, functions.get_device = get_stream, get_device
    functions.allocate, functions.free = allocate, free
    functions.delete_error = delete_error
    frame = CallFrame(ctypes.sizeof(CallFrame) - missing, None, ctypes.pointer(functions))
    frame.stage = stage
    fill(frame)
    if extension is not None:
        frame.extensions = ctypes.addressof(extension)
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(CallFrame))
    result = handler(address(getattr(native, name), None))(ctypes.byref(frame))
    assert bool(result) == bool(found)
    return found[0] if found else None


def _pointers(structures):
    return (ctypes.c_void_p * len(structures))(*map(ctypes.addressof, structures))


class Filled:
    """Fills a frame with buffers in the memory of arrays, and with attributes: texts and flags."""

    def __init__(self, arguments, results, **attributes):
        self._arguments, self._results, self._attributes = arguments, results, attributes
        self._kept = []

    def __call__(self, frame):
        for values, arrays in ((frame.arguments, self._arguments), (frame.results, self._results)):
            self._set(values, [self._buffer(array) for array in arrays], [1] * len(arrays))
        given = self._attributes.values()
        kinds = [4 if isinstance(one, str) else 3 for one in given]
        self._set(frame.attributes, [self._attribute(one) for one in given], kinds)
        names = [Text(name.encode(), len(name)) for name in self._attributes]
        self._kept += [names, all_names := _pointers(names)]
        frame.attributes.names = ctypes.addressof(all_names)

    def _set(self, values, structures, kinds):
        numbers, places = (ctypes.c_int * len(kinds))(*kinds), _pointers(structures)
        self._kept += [structures, numbers, places]
        values.count = len(structures)
        values.kinds, values.values = ctypes.addressof(numbers), ctypes.addressof(places)

    def _buffer(self, array):
        sizes = (ctypes.c_int64 * array.ndim)(*array.shape)
        self._kept.append(sizes)
        dtype = _DTYPES[array.dtype.name]
        return Buffer(ctypes.sizeof(Buffer), None, dtype, array.ctypes.data, array.ndim, sizes)

    def _attribute(self, value):
        if isinstance(value, str):
            return Text(value.encode(), len(value))
        flag = ctypes.c_bool(value)
        self._kept.append(flag)
        return Scalar(1, ctypes.addressof(flag))


def filled(number=1, wanted="", workspace=None, plans=""):
    """A call with one argument (2, 3) and so many results, and the addresses of all.

    With ``workspace`` there is one more result, of so many bytes; ``plans``: which it is compiled
    with.
    """
    arrays = [np.zeros((2, 3), "complex128") for _ in range(1 + number)]
    if workspace is not None:
        arrays.append(np.zeros(workspace, "uint8"))
    texts = {"function": "kron_matmul", "wanted": wanted, "plans": plans}
    fill = Filled(arrays[:1], arrays[1:], transpose=True, **texts)
    return fill, [array.ctypes.data for array in arrays]
