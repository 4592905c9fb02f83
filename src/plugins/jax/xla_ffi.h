// The part of XLA's FFI C interface that the handlers use, declared by hand from its published layout.
//
// One declaration fits every jaxlib since 0.5, because XLA only appends to these structs and to its function
// table. tests/python/test_jax_abi.py compares each field with the header of the installed jaxlib. State,
// type registration and futures are not declared, because their meaning or place changed between releases.
#ifndef RUEDA_PLUGINS_JAX_XLA_FFI_H_
#define RUEDA_PLUGINS_JAX_XLA_FFI_H_

#include <cstddef>
#include <cstdint>

namespace rueda::jax {

// The interface version for which the handlers are written. XLA accepts 0.1 up to its own version.
inline constexpr int kApiMajor = 0;
inline constexpr int kApiMinor = 1;

struct Extension {
  size_t struct_size;
  int32_t type;
  Extension* next;
};
inline constexpr int32_t kMetadataExtension = 1;

struct ApiVersion {
  size_t struct_size;
  Extension* extensions;
  int major;
  int minor;
};

struct Metadata {
  size_t struct_size;
  ApiVersion api_version;
  uint32_t traits;
};

struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

struct Error;  // made by XLA

// absl's canonical codes.
enum class ErrorCode : int32_t { kInvalidArgument = 3, kAborted = 10, kInternal = 13, kUnavailable = 14 };

struct ErrorCreateArguments {
  size_t struct_size;
  Extension* extensions;
  const char* message;
  ErrorCode code;
};

// xla::PrimitiveType
enum class PrimitiveType : int32_t {
  kBool = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUint8 = 6,
  kUint16 = 7,
  kFloat16 = 10,
  kFloat32 = 11,
  kFloat64 = 12,
  kBfloat16 = 16
};

struct Buffer {
  size_t struct_size;
  Extension* extensions;
  PrimitiveType dtype;
  void* data;
  int64_t rank;
  int64_t* dims;  // [rank]
};

struct ByteSpan {
  const char* data;
  size_t bytes;
};

struct Scalar {
  PrimitiveType dtype;
  void* value;
};

enum class AttributeType : int32_t { kArray = 1, kDictionary = 2, kScalar = 3, kString = 4 };

struct Buffers {  // arguments and results look alike
  size_t struct_size;
  Extension* extensions;
  int64_t count;
  int32_t* types;
  Buffer** buffers;  // [count]
};

struct Attributes {
  size_t struct_size;
  Extension* extensions;
  int64_t count;
  AttributeType* types;  // [count]
  ByteSpan** names;      // [count]
  void** values;         // [count] Scalar* or ByteSpan*
};

struct StreamGetArguments {
  size_t struct_size;
  Extension* extensions;
  void* context;
  void* stream;  // out: a CUstream
};

// The beginning of XLA's function table.
struct Api {
  size_t struct_size;
  Extension* extensions;
  ApiVersion api_version;
  const void* internal;
  Error* (*error_create)(ErrorCreateArguments*);
  void* not_used[3];  // reading and freeing an error, registration
  Error* (*stream_get)(StreamGetArguments*);
};

struct CallFrame {
  size_t struct_size;
  Extension* extensions;
  const Api* api;  // null in jaxlib up to 0.7.2 if XLA only asks for metadata
  void* context;
  int32_t stage;
  Buffers arguments;
  Buffers results;
  Attributes attributes;
};

}  // namespace rueda::jax

#endif  // RUEDA_PLUGINS_JAX_XLA_FFI_H_
