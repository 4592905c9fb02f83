// Bytes that wait until a descriptor can be written.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "rueda/base/bytes.h"

namespace rueda::launch {

// One thread. The owner keeps the bound: it adds nothing while is_full().
class OutQueue {
 public:
  explicit OutQueue(size_t max_bytes) : max_bytes_(max_bytes) {}

  void push(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  // Writes as much as fd, which must be non-blocking, takes now. Returns false if nobody will ever read it.
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
