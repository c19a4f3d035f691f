"""The declaration of XLA's interface is that of the installed jaxlib; what handlers refuse."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import jax
import pytest
from xla_frames import HANDLERS, Metadata, MetadataExtension, Version, call

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
    "kUint8": "XLA_FFI_DataType_U8",
    "kFloat16": "XLA_FFI_DataType_F16",
    "kFloat32": "XLA_FFI_DataType_F32",
    "kFloat64": "XLA_FFI_DataType_F64",
    "kComplex64": "XLA_FFI_DataType_C64",
    "kBfloat16": "XLA_FFI_DataType_BF16",
    "kComplex128": "XLA_FFI_DataType_C128",
    "kBuffer": "XLA_FFI_ArgType_BUFFER",
    "kScalar": "XLA_FFI_AttrType_SCALAR",
    "kString": "XLA_FFI_AttrType_STRING",
    "kInitialize": "XLA_FFI_ExecutionStage_INITIALIZE",
    "kExecute": "XLA_FFI_ExecutionStage_EXECUTE",
    "kCapturable": "XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE",
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


def test_there_are_handlers():
    assert len(HANDLERS) == 8


@pytest.mark.parametrize("name", HANDLERS)
def test_handlers_say_what_version_they_are_for(name):
    metadata = Metadata(ctypes.sizeof(Metadata), Version(), 7, 7)
    asked = MetadataExtension(ctypes.sizeof(MetadataExtension), 1, None, ctypes.pointer(metadata))
    assert call(name, version=(1, 5), extension=asked) is None
    assert (metadata.version.major, metadata.version.minor) == (0, 3)
    traits = 1 if name == "jax_captured_on_device" else 0  # 1: may be captured into graphs
    assert (metadata.traits, metadata.state_type) == (traits, 0)


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
    for stage in (0, 1) if name == "jax_captured_on_device" else (0, 1, 2):
        assert call(name, version=(0, 4), stage=stage) is None
    assert call(name, version=(0, 4))[0] == 13
