"""NVRTC from its own wheel, `nvidia-cuda-nvrtc`, through ctypes: compiles without any device."""

import ctypes
from functools import lru_cache
from importlib.metadata import files

from batchkron.backends.cuda.runtime.hardware import DeviceLimits

# shared memory that a thread block may ask for, multiprocessors, and thread blocks of a cluster
DEVICES = {"80": DeviceLimits(163 << 10, 108), "90": DeviceLimits(227 << 10, 132, 8)}


@lru_cache(maxsize=1)
def library():
    """The wheel's libnvrtc; the driver is not needed to compile."""
    names = [file for file in files("nvidia-cuda-nvrtc") if "libnvrtc.so." in file.name]
    assert names, "the wheel nvidia-cuda-nvrtc has no libnvrtc"
    nvrtc = ctypes.CDLL(str(names[0].locate()))
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
    return nvrtc


def _check(status):
    if status:
        raise RuntimeError(library().nvrtcGetErrorString(status).decode())


def _strings(values):
    return (ctypes.c_char_p * len(values))(*[value.encode() for value in values])


def _bytes(handle, size_of, content_of):
    size = ctypes.c_size_t()
    _check(size_of(handle, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(content_of(handle, buffer))
    return buffer.raw


def compile_program(source, headers, expression, options):
    """Compile one kernel; return its lowered name and machine code.

    Raises
    ------
    RuntimeError
        With the compiler's log.
    """
    nvrtc, handle = library(), ctypes.c_void_p()
    _check(
        nvrtc.nvrtcCreateProgram(
            ctypes.byref(handle),
            source.encode(),
            b"kernel.cu",
            len(headers),
            _strings(headers.values()),
            _strings(headers.keys()),
        )
    )
    try:
        _check(nvrtc.nvrtcAddNameExpression(handle, expression.encode()))
        if nvrtc.nvrtcCompileProgram(handle, len(options), _strings(options)):
            log = _bytes(handle, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
            raise RuntimeError(f"{expression}\n{log.rstrip(bytes(1)).decode()}")
        name = ctypes.c_char_p()
        _check(nvrtc.nvrtcGetLoweredName(handle, expression.encode(), ctypes.byref(name)))
        code = _bytes(handle, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
        return name.value.decode(), code
    finally:
        _check(nvrtc.nvrtcDestroyProgram(ctypes.byref(handle)))
