// Delivers the bytes of an arriving message to the receive that waits for it: into its memory, or to its
// consumer, which takes only whole units (for example elements). The bytes arrive cut at any place.
// The incomplete unit at the end of a piece is kept until the rest arrives. Each channel has one.
// Engine thread only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "rueda/base/bytes.h"
#include "rueda/transport/message.h"

namespace rueda::transport {

class Reassembly {
 public:
  // How many bytes are kept: less than a unit.
  [[nodiscard]] size_t size() const { return bytes_.size(); }

  // Puts the kept bytes in front of a piece that was read behind size() bytes of room. Together they begin
  // where the room does, with its alignment.
  void prepend_to(std::span<std::byte> room) {
    if (!bytes_.empty()) std::memcpy(room.data(), bytes_.data(), bytes_.size());
    bytes_.clear();
  }

  // received: how many bytes of the message have arrived, including this piece.
  void deliver(const RecvRequest& request, size_t received, std::span<const std::byte> piece) {
    if (piece.empty()) return;
    if (request.consumer == nullptr) {
      std::memcpy(request.into + (received - piece.size()), piece.data(), piece.size());
      return;
    }
    if (!bytes_.empty()) {
      const size_t missing = std::min(request.unit_bytes - bytes_.size(), piece.size());
      bytes_.insert(bytes_.end(), piece.begin(), piece.begin() + static_cast<ptrdiff_t>(missing));
      piece = piece.subspan(missing);
      if (bytes_.size() < request.unit_bytes) return;
      request.consumer->consume(received - piece.size() - bytes_.size(), bytes_);
      bytes_.clear();
    }
    const size_t whole = piece.size() / request.unit_bytes * request.unit_bytes;
    if (whole > 0) request.consumer->consume(received - piece.size(), piece.first(whole));
    bytes_.assign(piece.begin() + static_cast<ptrdiff_t>(whole), piece.end());
  }

 private:
  Bytes bytes_;
};

}  // namespace rueda::transport
