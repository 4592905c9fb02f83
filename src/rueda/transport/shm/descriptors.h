// Passes descriptors over a UNIX socket: one message with a magic number and some of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rueda/base/unique_fd.h"

namespace rueda::transport {

inline constexpr size_t kMaxDescriptors = 240;  // Linux takes 253

// Returns false if the socket does not take the message at once.
bool send_descriptors(int socket, uint32_t magic, std::span<const int> descriptors);

struct ReceivedDescriptors {
  enum class Receipt : uint8_t {
    kNothingYet,
    kReceived,
    kClosed,
    kGarbage,
    kNoRoom
  } state = Receipt::kNothingYet;
  std::vector<UniqueFd> descriptors;
};
// Never waits. kGarbage: the message is not exactly the magic number. kNoRoom: this process may open no more
// descriptors, and the kernel has dropped those that did not fit.
ReceivedDescriptors receive_descriptors(int socket, uint32_t magic);

}  // namespace rueda::transport
