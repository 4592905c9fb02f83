// Bytes on their way into a descriptor that may not take them now.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "rueda/base/bytes.h"

namespace rueda::launch {

// One thread. The bound is kept by the owner: it stops producing while is_full().
class OutQueue {
 public:
  explicit OutQueue(size_t max_bytes) : max_bytes_(max_bytes) {}

  void push(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  // Writes what fd takes without blocking (it must be non-blocking). False: nobody will ever read it.
  bool flush(int fd);
  void clear();
  [[nodiscard]] bool is_empty() const { return sent_ == bytes_.size(); }
  [[nodiscard]] bool is_full() const { return bytes_.size() - sent_ >= max_bytes_; }

 private:
  size_t max_bytes_;
  Bytes bytes_;
  size_t sent_ = 0;
};

}  // namespace rueda::launch
