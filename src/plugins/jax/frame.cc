#include "plugins/jax/frame.h"

#include "rueda/rueda.h"

namespace rueda::jax {
namespace {

// Returns the value of the attribute if it has the wanted type, otherwise null.
const void* find(const CallFrame* frame, std::string_view name, AttributeType type) {
  const Attributes& all = frame->attributes;
  for (int64_t i = 0; i < all.count; ++i) {
    if (std::string_view{all.names[i]->data, all.names[i]->bytes} == name) {
      return all.types[i] == type ? all.values[i] : nullptr;
    }
  }
  return nullptr;
}

template <typename T>
std::optional<T> scalar(const CallFrame* frame, std::string_view name, PrimitiveType type) {
  const auto* found = static_cast<const Scalar*>(find(frame, name, AttributeType::kScalar));
  if (found == nullptr || found->dtype != type) {
    return std::nullopt;
  }
  return *static_cast<const T*>(found->value);
}

}  // namespace

bool answer_metadata(CallFrame* frame) {
  for (Extension* one = frame->extensions; one != nullptr; one = one->next) {
    if (one->type == kMetadataExtension) {
      Metadata* metadata = reinterpret_cast<MetadataExtension*>(one)->metadata;
      metadata->api_version.major = kApiMajor;
      metadata->api_version.minor = kApiMinor;
      metadata->traits = 0;
      return true;
    }
  }
  return false;
}

Error* make_error(const CallFrame* frame, ErrorCode code, const std::string& why) {
  ErrorCreateArguments arguments{.struct_size = sizeof(ErrorCreateArguments),
                                 .extensions = nullptr,
                                 .message = why.c_str(),
                                 .code = code};
  return frame->api->error_create(&arguments);
}

Error* get_stream(const CallFrame* frame, void** stream) {
  StreamGetArguments arguments{.struct_size = sizeof(StreamGetArguments),
                               .extensions = nullptr,
                               .context = frame->context,
                               .stream = nullptr};
  Error* const error = frame->api->stream_get(&arguments);
  *stream = arguments.stream;
  return error;
}

std::optional<int64_t> int_attribute(const CallFrame* frame, std::string_view name) {
  return scalar<int64_t>(frame, name, PrimitiveType::kInt64);
}

std::optional<double> double_attribute(const CallFrame* frame, std::string_view name) {
  return scalar<double>(frame, name, PrimitiveType::kFloat64);
}

std::optional<std::string> string_attribute(const CallFrame* frame, std::string_view name) {
  const auto* found = static_cast<const ByteSpan*>(find(frame, name, AttributeType::kString));
  return found == nullptr ? std::nullopt : std::optional{std::string{found->data, found->bytes}};
}

int dtype_of(PrimitiveType type) {
  switch (type) {
    case PrimitiveType::kBool:
      return RUEDA_BOOL;
    case PrimitiveType::kInt8:
      return RUEDA_INT8;
    case PrimitiveType::kInt16:
      return RUEDA_INT16;
    case PrimitiveType::kInt32:
      return RUEDA_INT32;
    case PrimitiveType::kInt64:
      return RUEDA_INT64;
    case PrimitiveType::kUint8:
      return RUEDA_UINT8;
    case PrimitiveType::kUint16:
      return RUEDA_UINT16;
    case PrimitiveType::kFloat16:
      return RUEDA_FLOAT16;
    case PrimitiveType::kFloat32:
      return RUEDA_FLOAT32;
    case PrimitiveType::kFloat64:
      return RUEDA_FLOAT64;
    case PrimitiveType::kBfloat16:
      return RUEDA_BFLOAT16;
  }
  return -1;
}

size_t element_bytes(PrimitiveType type) {
  switch (type) {
    case PrimitiveType::kBool:
    case PrimitiveType::kInt8:
    case PrimitiveType::kUint8:
      return 1;
    case PrimitiveType::kInt16:
    case PrimitiveType::kUint16:
    case PrimitiveType::kFloat16:
    case PrimitiveType::kBfloat16:
      return 2;
    case PrimitiveType::kInt32:
    case PrimitiveType::kFloat32:
      return 4;
    case PrimitiveType::kInt64:
    case PrimitiveType::kFloat64:
      return 8;
  }
  return 0;
}

size_t bytes_of(const Buffer& buffer) {
  size_t bytes = element_bytes(buffer.dtype);
  for (int64_t size : shape_of(buffer)) {
    bytes *= static_cast<size_t>(size);
  }
  return bytes;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace rueda::jax
