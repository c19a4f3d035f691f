"""A function in the place of the driver's that launches kernels."""

import ctypes

EARLY = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


class Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("_", ctypes.c_char * 4), ("value", ctypes.c_int * 16))


class Configuration(ctypes.Structure):
    _fields_ = (
        ("sizes", ctypes.c_uint * 6),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint),
    )


LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(Configuration),
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)


class FakeDriver:
    """Notes launches of kernels whose arguments have `size` bytes, and returns `status`."""

    def __init__(self, size, status=0):
        self.calls, self.statuses = [], []
        self._size, self._status = size, status
        self._launch = LAUNCH(self._note)

    @property
    def address(self):
        return ctypes.cast(self._launch, ctypes.c_void_p).value

    def _note(self, configuration, kernel, parameters, extra):
        asked = configuration.contents
        early = [(a.id, a.value[0]) for a in asked.attributes[: asked.count]]
        arguments = ctypes.string_at(parameters[0], self._size)
        sizes = tuple(asked.sizes), asked.shared_bytes
        self.calls.append((sizes, asked.stream, early, kernel, arguments, extra))
        return self._status

    def check(self, status):
        self.statuses.append(status)
        raise OSError(f"status {status}")
