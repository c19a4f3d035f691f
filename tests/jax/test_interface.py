"""The declaration of XLA's interface is that of the installed jaxlib; what handlers refuse."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import jax
import numpy as np
import pytest
from fake_driver import FakeDriver

from batchkron.backends.cpu import native
from batchkron.jax import device_calls, python_calls

CSRC = Path(__file__).parents[2] / "csrc"

# our structure, XLA's, and pairs of fields
STRUCTURES = {
    ("Extension", "XLA_FFI_Extension_Base"): "bytes:struct_size kind:type next:next",
    ("Version", "XLA_FFI_Api_Version"): (
        "bytes:struct_size extensions:extension_start major:major_version minor:minor_version"
    ),
    ("Metadata", "XLA_FFI_Metadata"): (
        "bytes:struct_size version:api_version traits:traits state_type:state_type_id"
    ),
    ("MetadataExtension", "XLA_FFI_Metadata_Extension"): ("base:extension_base metadata:metadata"),
    ("NewError", "XLA_FFI_Error_Create_Args"): (
        "bytes:struct_size extensions:extension_start text:message code:errc"
    ),
    ("GetStream", "XLA_FFI_Stream_Get_Args"): (
        "bytes:struct_size extensions:extension_start context:ctx stream:stream"
    ),
    ("DeleteError", "XLA_FFI_Error_Destroy_Args"): (
        "bytes:struct_size extensions:extension_start error:error"
    ),
    ("AllocateMemory", "XLA_FFI_DeviceMemory_Allocate_Args"): (
        "bytes:struct_size extensions:extension_start context:ctx size:size alignment:alignment "
        "data:data"
    ),
    ("FreeMemory", "XLA_FFI_DeviceMemory_Free_Args"): (
        "bytes:struct_size extensions:extension_start context:ctx size:size data:data"
    ),
    ("GetDevice", "XLA_FFI_DeviceOrdinal_Get_Args"): (
        "bytes:struct_size extensions:extension_start context:ctx number:device_ordinal"
    ),
    ("Functions", "XLA_FFI_Api"): (
        "bytes:struct_size extensions:extension_start version:api_version internal:internal_api "
        "new_error:XLA_FFI_Error_Create delete_error:XLA_FFI_Error_Destroy "
        "get_stream:XLA_FFI_Stream_Get allocate:XLA_FFI_DeviceMemory_Allocate "
        "free:XLA_FFI_DeviceMemory_Free get_device:XLA_FFI_DeviceOrdinal_Get"
    ),
    ("Buffer", "XLA_FFI_Buffer"): (
        "bytes:struct_size extensions:extension_start dtype:dtype data:data axes:rank sizes:dims"
    ),
    ("Values", "XLA_FFI_Args"): (
        "bytes:struct_size extensions:extension_start count:size kinds:types values:args"
    ),
    ("Values", "XLA_FFI_Rets"): (
        "bytes:struct_size extensions:extension_start count:size kinds:types values:rets"
    ),
    ("Text", "XLA_FFI_ByteSpan"): "first:ptr length:len",
    ("Scalar", "XLA_FFI_Scalar"): "dtype:dtype value:value",
    ("Attributes", "XLA_FFI_Attrs"): (
        "bytes:struct_size extensions:extension_start count:size kinds:types names:names "
        "values:attrs"
    ),
    ("CallFrame", "XLA_FFI_CallFrame"): (
        "bytes:struct_size extensions:extension_start functions:api context:ctx stage:stage "
        "arguments:args results:rets attributes:attrs"
    ),
}
# structures of which we declare the first fields only
PARTIAL = {"Functions", "CallFrame"}
CONSTANTS = {
    "kMajorVersion": "XLA_FFI_API_MAJOR",
    "kMetadata": "XLA_FFI_Extension_Metadata",
    "kInvalidArgument": "XLA_FFI_Error_Code_INVALID_ARGUMENT",
    "kResourceExhausted": "XLA_FFI_Error_Code_RESOURCE_EXHAUSTED",
    "kFailedPrecondition": "XLA_FFI_Error_Code_FAILED_PRECONDITION",
    "kOutOfRange": "XLA_FFI_Error_Code_OUT_OF_RANGE",
    "kInternal": "XLA_FFI_Error_Code_INTERNAL",
    "kBool": "XLA_FFI_DataType_PRED",
    "kInt32": "XLA_FFI_DataType_S32",
    "kInt64": "XLA_FFI_DataType_S64",
    "kFloat16": "XLA_FFI_DataType_F16",
    "kFloat32": "XLA_FFI_DataType_F32",
    "kFloat64": "XLA_FFI_DataType_F64",
    "kComplex64": "XLA_FFI_DataType_C64",
    "kBfloat16": "XLA_FFI_DataType_BF16",
    "kComplex128": "XLA_FFI_DataType_C128",
    "kBuffer": "XLA_FFI_ArgType_BUFFER",
    "kScalar": "XLA_FFI_AttrType_SCALAR",
    "kString": "XLA_FFI_AttrType_STRING",
    "kExecute": "XLA_FFI_ExecutionStage_EXECUTE",
}


def assertions():
    """A program that compiles if all offsets, sizes and constants are the same."""
    lines = [
        '#include "bindings/jax/xla_ffi.hpp"',
        '#include "xla/ffi/api/c_api.h"',
        "namespace ours = batchkron::xla;",
        "static_assert(XLA_FFI_API_MINOR >= ours::kMinorVersion);",
    ]
    for (own, theirs), fields in STRUCTURES.items():
        relation = "<=" if own in PARTIAL else "=="
        lines.append(f"static_assert(sizeof(ours::{own}) {relation} sizeof({theirs}));")
        for pair in fields.split():
            a, b = pair.split(":")
            lines += [
                f"static_assert(offsetof(ours::{own}, {a}) == offsetof({theirs}, {b}));",
                f"static_assert(sizeof(ours::{own}::{a}) {relation} sizeof({theirs}::{b}));",
            ]
    for own, theirs in CONSTANTS.items():
        lines.append(f"static_assert(int(ours::{own}) == int({theirs}));")
    return "\n".join(lines)


@pytest.mark.parametrize("broken", [False, True])
def test_layouts_are_those_of_the_installed_jaxlib(tmp_path, broken):
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no compiler")
    text = assertions()
    if broken:  # the test itself can fail
        text = text.replace("ours::Buffer, axes)", "ours::Buffer, sizes)")
    source = tmp_path / "layouts.cpp"
    source.write_text(text)
    options = ["-std=c++17", "-fsyntax-only", f"-I{CSRC}", f"-I{jax.ffi.include_dir()}"]
    run = subprocess.run([compiler, *options, str(source)], capture_output=True, text=True)
    assert (run.returncode != 0) == broken, run.stderr
    if broken:
        assert "static assertion failed" in run.stderr


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
STREAM, MEMORY, DEVICE = 0x5EA, 0x3E3, 5


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


HANDLERS = [name for name in dir(native) if name.startswith("jax_")]


def call(
    name, version=(0, 3), extension=None, stage=3, missing=0, fill=lambda frame: None, memory=None
):
    """Call a handler as XLA does, without arguments; return its error's code and text, or None.

    What it allocates and frees of the device is appended to ``memory``; None: there is none.
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
        asked.contents.number = DEVICE

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


def test_there_are_handlers():
    assert len(HANDLERS) == 6


@pytest.mark.parametrize("name", HANDLERS)
def test_handlers_say_what_version_they_are_for(name):
    metadata = Metadata(ctypes.sizeof(Metadata), Version(), 7, 7)
    asked = MetadataExtension(ctypes.sizeof(MetadataExtension), 1, None, ctypes.pointer(metadata))
    assert call(name, version=(1, 5), extension=asked) is None
    assert (metadata.version.major, metadata.version.minor) == (0, 3)
    assert (metadata.traits, metadata.state_type) == (0, 0)


@pytest.mark.parametrize("name", HANDLERS)
@pytest.mark.parametrize("version", [(0, 2), (1, 0)])
def test_other_versions_are_refused(name, version):
    code, text = call(name, version)
    assert code == 9  # FAILED_PRECONDITION
    assert f"this jaxlib has {version[0]}.{version[1]}; install a jaxlib" in text


@pytest.mark.parametrize("name", HANDLERS)
def test_calls_that_do_not_fit_are_errors(name):
    assert call(name, missing=8)[0] == 9
    code, text = call(name)
    assert code == 13  # INTERNAL
    assert "internal error of batchkron: unexpected" in text


@pytest.mark.parametrize("name", HANDLERS)
def test_later_versions_and_other_stages(name):
    assert call(name, version=(0, 4), stage=0) is None
    assert call(name, version=(0, 4))[0] == 13


def pointers(*structures):
    return (ctypes.c_void_p * len(structures))(*(ctypes.addressof(one) for one in structures))


class OneBuffer:
    """Fills a frame with one argument and one result, a buffer (2, 3) of complex128, in memory."""

    def __init__(self):
        self.address, self._kept = None, []

    def __call__(self, frame):
        shape, elements = (ctypes.c_int64 * 2)(2, 3), (ctypes.c_double * 12)()
        self.address = ctypes.addressof(elements)
        buffer = Buffer(ctypes.sizeof(Buffer), None, 18, self.address, 2, shape)
        buffers, kinds = pointers(buffer), (ctypes.c_int * 2)(1, 1)
        for values in (frame.arguments, frame.results):
            values.count = 1
            values.kinds, values.values = ctypes.addressof(kinds), ctypes.addressof(buffers)
        names = [Text(b"function", 8), Text(b"transpose", 9)]
        yes = ctypes.c_bool(True)
        attributes = [Text(b"kron_matmul", 11), Scalar(1, ctypes.addressof(yes))]
        kinds_of = (ctypes.c_int * 2)(4, 3)
        all_names, all_values = pointers(*names), pointers(*attributes)
        frame.attributes.count = 2
        frame.attributes.kinds = ctypes.addressof(kinds_of)
        frame.attributes.names = ctypes.addressof(all_names)
        frame.attributes.values = ctypes.addressof(all_values)
        self._kept += [shape, elements, buffer, buffers, kinds, names, yes, attributes]
        self._kept += [kinds_of, all_names, all_values]


def test_what_python_gets_on_a_device():
    """Addresses, dtypes, shapes and the stream, as `batchkron.jax.python_calls` reads them."""
    fill, calls = OneBuffer(), []
    try:
        native.set_jax_function(lambda *given: calls.append(given))
        assert call("jax_python_on_device", fill=fill) is None
        array = (fill.address, "complex128", (2, 3))
        assert calls == [("kron_matmul", [array], [array], True, STREAM)]

        def fails(*given):
            raise KeyError("no such kernel")

        native.set_jax_function(fails)
        code, text = call("jax_python_on_device", fill=fill)
        assert code == 13
        assert "KeyError: 'no such kernel'" in text
    finally:
        native.set_jax_function(python_calls.call)


@pytest.fixture
def planner(monkeypatch):
    """Sets the function that plans calls on a device; each test's are for a device of its own."""
    yield native.set_jax_planner
    native.set_jax_planner(device_calls.planned)


def sequence_on(driver, size):
    """A launch of a kernel whose arguments are all addresses that a call passes."""
    launch = native.DeviceLaunch(
        driver.address, driver.check, 1, *(1,) * 5, False, bytes(8 * size), 0, 8 * size
    )
    places = [(8 * k, k, 0) for k in range(size)]
    return native.DeviceSequence([launch], [places], size)


def test_calls_on_a_device_are_planned_once(planner, monkeypatch):
    monkeypatch.setitem(globals(), "DEVICE", 6)
    fill, memory, asked, driver = OneBuffer(), [], [], FakeDriver(40)
    sources = [(0, 16), (-1, 32), (-2, 0), (-3, 0), (0, 0)]
    current, own, changes = [40], 41, []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))
    def get_current(place):
        place[0] = current[0]
        return 0

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    def set_current(context):
        current[0] = context
        changes.append(context)
        return 0

    contexts = *(ctypes.cast(one, ctypes.c_void_p).value for one in (get_current, set_current)), own

    def plan(*given):
        asked.append(given)
        return sequence_on(driver, 5), 1000, 2, sources, contexts

    planner(plan)
    for count in (1, 2):
        assert call("jax_planned_on_device", fill=fill, memory=memory) is None
        first = fill.address
        launched = [np.frombuffer(one[4], np.uint64).tolist() for one in driver.calls[-2:]]
        assert launched == [
            [first, first, MEMORY, 0, first],
            [first + 16, first + 32, MEMORY, 0, first],
        ]
        assert {one[1] for one in driver.calls} == {STREAM}
        assert memory == [1000, (1000, MEMORY)] * count
    assert asked == [("kron_matmul", True, 6, [("complex128", (2, 3))])]
    assert changes == [own, 40] * 2
    current[0] = own
    assert call("jax_planned_on_device", fill=fill)[0] == 8  # RESOURCE_EXHAUSTED
    assert call("jax_planned_on_device", fill=fill, memory=memory) is None
    assert changes == [own, 40] * 2
    native.forget_jax_plans()
    assert call("jax_planned_on_device", fill=fill, memory=memory) is None
    assert len(asked) == 2


def test_errors_of_planned_calls(planner, monkeypatch):
    monkeypatch.setitem(globals(), "DEVICE", 7)
    fill, driver = OneBuffer(), FakeDriver(8, status=700)

    def fails(*given):
        raise KeyError("no such kernel")

    planner(fails)
    code, text = call("jax_planned_on_device", fill=fill)
    assert code == 13
    assert "KeyError: 'no such kernel'" in text
    for sources in ([(0, 0), (0, 0)], [(1, 0)]):
        planner(lambda *given, own=sources: (sequence_on(driver, 1), 0, 1, own, (0, 0, 0)))
        code, text = call("jax_planned_on_device", fill=fill)
        assert code == 13
        assert "internal error of batchkron" in text
    planner(lambda *given: (sequence_on(driver, 1), 0, 3, [(0, 0)], (0, 0, 0)))
    code, text = call("jax_planned_on_device", fill=fill)
    assert code == 13
    assert "status 700" in text
    assert len(driver.calls) == 1
