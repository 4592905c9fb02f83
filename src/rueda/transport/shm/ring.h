// A byte ring in shared memory with one writer and one reader. Positions only grow. The position that the
// peer wrote is checked: an impossible value is a fault and never becomes an address.
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

// The shared state of one direction. Each word has a cache line and a single writer. Both begin at zero.
struct RingControl {
  alignas(kLine) uint64_t head;  // bytes published; written by the writer
  alignas(kLine) uint64_t tail;  // bytes consumed; written by the reader
};

// Whether a side sleeps, and what would wake it. The sleeper writes it; the side that rings clears it.
struct SleepControl {
  alignas(kLine) uint32_t interest;
};
inline constexpr uint32_t kWantsData = 1;
inline constexpr uint32_t kWantsRoom = 2;

// One side publishes a position and then reads whether the other sleeps. The other announces its sleep
// and then reads the positions. One of them must see what the other stored, which needs a single order of
// all four accesses.
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

  // How many bytes may be written now, a multiple of kLine. The position of the reader is read again only if
  // fewer than `wanted` bytes are known to be free.
  size_t room(size_t wanted) {
    if (data_.size() - (head_ - tail_) < wanted) refresh();
    return data_.size() - (head_ - tail_);
  }
  // Writes at most room() bytes and skips to the end of the line.
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

  // How many bytes may be read now, a multiple of kLine. `wanted` has the same meaning as in room().
  size_t available(size_t wanted) {
    if (head_ - tail_ < wanted) refresh();
    return head_ - tail_;
  }
  // The bytes at the reading position that are contiguous in memory, at most `most`.
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
