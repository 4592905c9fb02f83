// Allreduce and barrier in shared memory. The size and the place of the tensors decide which algorithm runs,
// and all ranks make the same decision:
//   inline      Up to 96 bytes: the values travel in the posts.
//   one_shot    Each rank copies its input into its one-shot buffer, and then reduces all one-shot buffers
//               into its output. One synchronisation; each rank reads (n - 1) * S bytes from the others.
//   registered  All tensors of all ranks lie in arenas. Each rank reduces its slice of all inputs and writes
//               the result into all outputs. Every input is read once and every output is written once.
//   staged      Chunks pass through small rings that stay in cache: each rank contributes its input, reduces
//               its slice and takes the results of the others.
// Every algorithm adds in rank order, in the accumulator type, and rounds once (reduce_sources). The bits of
// a result therefore depend neither on fusion nor on the place of the tensors.
//
// Example: 4 ranks, float32, and memory with a latency of 1 us, in which a rank copies 8 GB/s and adds 6 GB/s
// (cost.h).
//   24 elements are 96 bytes: inline, 1.4 us.
//   16,384 elements are 64 KiB: one_shot. 1.4 us for the synchronisation, 8.2 us to copy 64 KiB, and 32.8 us
//   to add 3 * 64 KiB: 42.4 us. One element more is staged, or registered.
//   1,048,576 elements are 4 MiB. Staged: 32 chunks of 128 KiB, of each of which every rank adds 32 KiB;
//   1,371 us. Registered: every rank adds 1 MiB (262,144 elements) where it lies; 920 us.
// Engine thread only.
#pragma once

#include <string_view>
#include <vector>

#include "rueda/backend/local/local_call.h"

namespace rueda::backend {

class Reduction final : public LocalWork {
 public:
  // stages: who may still read my stages, which other kinds of collectives use as well.
  explicit Reduction(BufferUsers& stages) : stages_(stages) {}

  void begin(const LocalCall& call) override;
  [[nodiscard]] size_t bytes() const override { return bytes_; }
  [[nodiscard]] bool is_inline() const override { return bytes_ <= kInlineBytes; }
  void prepare() override;
  [[nodiscard]] bool shows_table() const override { return shows_registered_; }
  void write_payload(const LocalPeer& peer, std::byte* payload) const override;
  std::string_view choose() override;
  LocalTurn advance() override { return (this->*run_)(); }

 private:
  LocalTurn reduce_posts();
  LocalTurn reduce_slots();
  LocalTurn run_stages();
  LocalTurn reduce_registered();
  bool contribute();
  bool reduce_chunk();
  bool take_chunk();

  [[nodiscard]] size_t elements() const { return call_->segments.count(); }
  void load_range(size_t begin, size_t end, std::byte* to) const;
  [[nodiscard]] size_t slice_begin(size_t count, Rank member) const;
  void reduce(std::byte* result, size_t size);

  BufferUsers& stages_;
  const LocalCall* call_ = nullptr;
  LocalTurn (Reduction::*run_)() = nullptr;  // one of the four algorithms
  size_t bytes_ = 0;
  bool shows_registered_ = false;
  alignas(64) std::byte payload_[kInlineBytes];  // inline: my contribution
  size_t chunk_elements_ = 0;
  uint64_t chunks_ = 0, contributed_ = 0, reduced_ = 0, taken_ = 0;
  size_t reduced_to_ = 0;  // registered: how many elements of my slice are done
  std::vector<const void*> sources_;
};

}  // namespace rueda::backend
