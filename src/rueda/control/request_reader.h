// Reads the requests of many ranks, most of which ask for the same in the same order: a message that equals
// the one before it is read once.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "rueda/base/bytes.h"
#include "rueda/base/limits.h"
#include "rueda/base/status.h"
#include "rueda/control/messages.h"

namespace rueda::control {

struct SharedSubmitted {
  int64_t plans_begun = 0;
  SharedRequests requests;
};

class RequestReader {
 public:
  static constexpr size_t kMaxKept = 256 << 10;  // bytes; 161 gradients of ResNet-50 are 18 KiB

  Result<SharedSubmitted> read(std::span<const std::byte> payload);

 private:
  Bytes last_;
  SharedSubmitted of_last_;
};

}  // namespace rueda::control
