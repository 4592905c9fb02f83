// Failures of the outside world, as values. Bugs are for RUEDA_CHECK (check.h). Nothing in the core throws.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "rueda/base/check.h"

namespace rueda {

// The numbers are part of the C ABI (rueda_status in rueda.h): append only.
enum class Code : int {
  kOk = 0,
  kInvalidArgument = 1,   // the caller's arguments are wrong; only this rank knows
  kMismatch = 2,          // ranks disagree about a collective; every member gets the error
  kNotInitialized = 3,    // call init first
  kDuplicateName = 4,     // the name is already in flight in this process set
  kShutDown = 5,          // this or another rank shut down in an orderly way
  kPeerLost = 6,          // a rank died, closed its connection or was cut off
  kTimeout = 7,           // a deadline passed; the text says who was waited for
  kUnavailable = 8,       // a resource of this machine: port, memory, file, network
  kPermissionDenied = 9,  // a wrong secret, a wrong job, a version that does not match
  kUnsupported = 10,      // a valid request that this build or collective cannot serve
  kInternal = 11,         // a fault of rueda
  kStalled = 12,          // the stall inspector ended the job
};

std::string_view code_name(Code code);

struct [[nodiscard]] Status {
  Code code = Code::kOk;
  std::string why;  // one sentence: what, where (tensor, ranks, bytes), what to do

  Status() = default;
  Status(Code c, std::string w) : code(c), why(std::move(w)) {}

  static Status ok() { return {}; }
  [[nodiscard]] bool is_ok() const { return code == Code::kOk; }
  [[nodiscard]] std::string to_string() const;
};

// Either a value, or the Status that says why there is no value.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor): reads like a return
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    RUEDA_CHECK(!status_.is_ok(), "a Result without a value needs a failing Status");
  }

  [[nodiscard]] bool is_ok() const { return value_.has_value(); }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] T& value() & {
    RUEDA_CHECK(value_.has_value(), status_.why.c_str());
    return *value_;
  }
  [[nodiscard]] const T& value() const& {
    RUEDA_CHECK(value_.has_value(), status_.why.c_str());
    return *value_;
  }
  [[nodiscard]] T&& value() && {
    RUEDA_CHECK(value_.has_value(), status_.why.c_str());
    return std::move(*value_);
  }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace rueda
