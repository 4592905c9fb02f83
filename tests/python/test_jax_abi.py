"""The hand-written declarations of XLA's FFI agree with the header of the installed jaxlib."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# XLA's struct and field = ours. Sizes and offsets are compared.
FIELDS = """
XLA_FFI_Extension_Base.struct_size = Extension.struct_size
XLA_FFI_Extension_Base.type = Extension.type
XLA_FFI_Extension_Base.next = Extension.next
XLA_FFI_Api_Version.major_version = ApiVersion.major
XLA_FFI_Api_Version.minor_version = ApiVersion.minor
XLA_FFI_Metadata.api_version = Metadata.api_version
XLA_FFI_Metadata.traits = Metadata.traits
XLA_FFI_Metadata_Extension.metadata = MetadataExtension.metadata
XLA_FFI_Error_Create_Args.struct_size = ErrorCreateArguments.struct_size
XLA_FFI_Error_Create_Args.message = ErrorCreateArguments.message
XLA_FFI_Error_Create_Args.errc = ErrorCreateArguments.code
XLA_FFI_Buffer.dtype = Buffer.dtype
XLA_FFI_Buffer.data = Buffer.data
XLA_FFI_Buffer.rank = Buffer.rank
XLA_FFI_Buffer.dims = Buffer.dims
XLA_FFI_ByteSpan.ptr = ByteSpan.data
XLA_FFI_ByteSpan.len = ByteSpan.bytes
XLA_FFI_Scalar.dtype = Scalar.dtype
XLA_FFI_Scalar.value = Scalar.value
XLA_FFI_Args.size = Buffers.count
XLA_FFI_Args.types = Buffers.types
XLA_FFI_Args.args = Buffers.buffers
XLA_FFI_Rets.size = Buffers.count
XLA_FFI_Rets.rets = Buffers.buffers
XLA_FFI_Attrs.size = Attributes.count
XLA_FFI_Attrs.types = Attributes.types
XLA_FFI_Attrs.names = Attributes.names
XLA_FFI_Attrs.attrs = Attributes.values
XLA_FFI_Api.struct_size = Api.struct_size
XLA_FFI_Api.api_version = Api.api_version
XLA_FFI_Api.internal_api = Api.internal
XLA_FFI_Api.XLA_FFI_Error_Create = Api.error_create
XLA_FFI_Api.XLA_FFI_Stream_Get = Api.stream_get
XLA_FFI_Stream_Get_Args.ctx = StreamGetArguments.context
XLA_FFI_Stream_Get_Args.stream = StreamGetArguments.stream
XLA_FFI_CallFrame.struct_size = CallFrame.struct_size
XLA_FFI_CallFrame.extension_start = CallFrame.extensions
XLA_FFI_CallFrame.api = CallFrame.api
XLA_FFI_CallFrame.ctx = CallFrame.context
XLA_FFI_CallFrame.stage = CallFrame.stage
XLA_FFI_CallFrame.args = CallFrame.arguments
XLA_FFI_CallFrame.rets = CallFrame.results
XLA_FFI_CallFrame.attrs = CallFrame.attributes
"""

VALUES = """
XLA_FFI_Extension_Metadata = kMetadataExtension
XLA_FFI_Error_Code_INTERNAL = ErrorCode::kInternal
XLA_FFI_AttrType_SCALAR = AttributeType::kScalar
XLA_FFI_AttrType_STRING = AttributeType::kString
XLA_FFI_DataType_PRED = PrimitiveType::kBool
XLA_FFI_DataType_S8 = PrimitiveType::kInt8
XLA_FFI_DataType_S16 = PrimitiveType::kInt16
XLA_FFI_DataType_S32 = PrimitiveType::kInt32
XLA_FFI_DataType_S64 = PrimitiveType::kInt64
XLA_FFI_DataType_U8 = PrimitiveType::kUint8
XLA_FFI_DataType_U16 = PrimitiveType::kUint16
XLA_FFI_DataType_F16 = PrimitiveType::kFloat16
XLA_FFI_DataType_F32 = PrimitiveType::kFloat32
XLA_FFI_DataType_F64 = PrimitiveType::kFloat64
XLA_FFI_DataType_BF16 = PrimitiveType::kBfloat16
"""


def assertions():
    """C++ that compiles only if every line above holds."""
    yield '#include "xla/ffi/api/c_api.h"'
    yield '#include "plugins/jax/xla_ffi.h"'
    yield "using namespace rueda::jax;"
    for line in FIELDS.strip().splitlines():
        (theirs, theirs_field), (ours, ours_field) = (side.split(".") for side in line.split(" = "))
        yield f"static_assert(offsetof({theirs}, {theirs_field}) == offsetof({ours}, {ours_field}));"
        yield f"static_assert(sizeof({theirs}::{theirs_field}) == sizeof({ours}::{ours_field}));"
    for line in VALUES.strip().splitlines():
        theirs, ours = line.split(" = ")
        yield f"static_assert(static_cast<int>({theirs}) == static_cast<int>({ours}));"
    yield "static_assert(kApiMajor == XLA_FFI_API_MAJOR && kApiMinor <= XLA_FFI_API_MINOR);"


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_declarations_agree_with_jaxlib(tmp_path):
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    jax = pytest.importorskip("jax")
    source = tmp_path / "same.cc"
    source.write_text("\n".join(assertions()) + "\n")
    command = ["g++", "-std=c++20", "-fsyntax-only", "-Wno-invalid-offsetof", f"-I{ROOT / 'src'}"]
    command += [f"-I{jax.ffi.include_dir()}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
