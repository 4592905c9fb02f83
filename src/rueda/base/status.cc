#include "rueda/base/status.h"

namespace rueda {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kMismatch:
      return "mismatch between ranks";
    case Code::kNotInitialized:
      return "not initialized";
    case Code::kDuplicateName:
      return "duplicate name";
    case Code::kShutDown:
      return "shut down";
    case Code::kPeerLost:
      return "peer lost";
    case Code::kTimeout:
      return "timeout";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kPermissionDenied:
      return "permission denied";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kInternal:
      return "internal error";
    case Code::kStalled:
      return "stalled";
  }
  return "unknown code";
}

std::string Status::to_string() const {
  if (is_ok()) return "ok";
  return std::string(code_name(code)) + ": " + why;
}

}  // namespace rueda
