// A byte ring in shared memory with one writer and one reader. Positions only grow; the peer's position is
// never trusted beyond the ring: a value that cannot be is a fault, not an address.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace rueda::transport {

inline constexpr size_t kLine = 64;  // headers and pieces begin at multiples of this

inline size_t round_to_line(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// Shared state of one direction: each word has a cache line, and a writer, of its own. Zero to begin with.
struct RingControl {
  alignas(kLine) uint64_t head;  // bytes published; written by the writer
  alignas(kLine) uint64_t tail;  // bytes consumed; written by the reader
};

// Who sleeps, and what would wake it. Written by the sleeper; taken back by the one who rings.
struct SleepControl {
  alignas(kLine) uint32_t interest;
};
inline constexpr uint32_t kWantsData = 1;
inline constexpr uint32_t kWantsRoom = 2;

// Publishing a position and looking whether the other side sleeps, against declaring sleep and looking at the
// positions: one side must see the other's store, which needs a single order of all four.
template <class T>
T load_shared(T& word) {
  return std::atomic_ref<T>(word).load(std::memory_order_seq_cst);
}
template <class T>
void store_shared(T& word, T value) {
  std::atomic_ref<T>(word).store(value, std::memory_order_seq_cst);
}

class RingWriter {
 public:
  RingWriter() = default;
  RingWriter(RingControl& control, std::span<std::byte> data) : control_(&control), data_(data) {}

  // Bytes that may be written now, a multiple of kLine. wanted: do not look again as long as there are that
  // many.
  size_t room(size_t wanted) {
    if (data_.size() - (head_ - tail_) < wanted) refresh();
    return data_.size() - (head_ - tail_);
  }
  // At most room(); ends at a line.
  void put(std::span<const std::byte> bytes) {
    const size_t at = head_ % data_.size();
    const size_t first = std::min(bytes.size(), data_.size() - at);
    if (first > 0) std::memcpy(data_.data() + at, bytes.data(), first);
    if (first < bytes.size()) std::memcpy(data_.data(), bytes.data() + first, bytes.size() - first);
    head_ += round_to_line(bytes.size());
  }
  void publish() { store_shared(control_->head, head_); }
  [[nodiscard]] bool is_broken() const { return is_broken_; }

 private:
  void refresh() {
    const uint64_t tail = load_shared(control_->tail);
    if (tail < tail_ || tail > head_ || tail % kLine != 0) {
      is_broken_ = true;
      return;
    }
    tail_ = tail;
  }

  RingControl* control_ = nullptr;
  std::span<std::byte> data_;
  uint64_t head_ = 0, tail_ = 0;
  bool is_broken_ = false;
};

class RingReader {
 public:
  RingReader() = default;
  RingReader(RingControl& control, std::span<const std::byte> data) : control_(&control), data_(data) {}

  // Bytes that may be read now, a multiple of kLine.
  size_t available(size_t wanted) {
    if (head_ - tail_ < wanted) refresh();
    return head_ - tail_;
  }
  // What lies at the position without a break, at most `most`.
  [[nodiscard]] std::span<const std::byte> peek(size_t most) const {
    const size_t at = tail_ % data_.size();
    return data_.subspan(at, std::min({most, data_.size() - at, static_cast<size_t>(head_ - tail_)}));
  }
  void skip(size_t bytes) { tail_ += round_to_line(bytes); }
  void publish() { store_shared(control_->tail, tail_); }
  [[nodiscard]] bool is_broken() const { return is_broken_; }

 private:
  void refresh() {
    const uint64_t head = load_shared(control_->head);
    if (head < head_ || head - tail_ > data_.size() || head % kLine != 0) {
      is_broken_ = true;
      return;
    }
    head_ = head;
  }

  RingControl* control_ = nullptr;
  std::span<const std::byte> data_;
  uint64_t head_ = 0, tail_ = 0;
  bool is_broken_ = false;
};

}  // namespace rueda::transport
