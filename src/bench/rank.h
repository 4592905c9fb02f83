// One rank of a measurement: a thin, checked layer over the C ABI. One thread, except where said.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/library.h"
#include "rueda/base/status.h"

namespace rueda::bench {

// Nothing is waited for longer: a rank that hangs is a finding, not a night lost.
inline constexpr double kWaitLimitS = 120;

struct Operation {
  rueda_collective what = RUEDA_ALLREDUCE;
  const char* name = "";
  int64_t count = 0;  // elements of the input
  const float* input = nullptr;
  float* output = nullptr;  // may be the input for allreduce and broadcast; null: the engine's memory
  std::span<const int32_t> splits = {};  // alltoall
  int32_t priority = 0;
};

class Rank {
 public:
  // Collective: returns when all ranks have come.
  static Result<std::unique_ptr<Rank>> join(const std::string& own_path);
  ~Rank() { library_.shutdown(); }
  Rank(const Rank&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] bool is_first() const { return rank_ == 0; }
  [[nodiscard]] const Library& library() const { return library_; }
  [[nodiscard]] std::string transports()
      const;  // what the other ranks are reached by: "shm", "tcp", "shm+tcp"
  [[nodiscard]] std::string algorithm() const;  // of the last batch that ran
  // Messages about which tensors run that this rank has sent so far; none while a learned plan holds.
  [[nodiscard]] int64_t negotiation_frames() const;

  // Any thread. The handle is finish()ed once.
  Result<int64_t> submit(const Operation& operation);
  Result<int64_t> submit_group(std::span<const Operation> operations);
  Status finish(int64_t handle);  // waits and releases
  Status run(const Operation& operation);
  // Of a handle that is done but not released: what the engine allocated for it.
  Result<std::span<const float>> output_of(int64_t handle) const;
  Status barrier();
  // Collective: everybody's numbers, [ranks * numbers.size()], rank-major; all give equally many.
  Result<std::vector<int64_t>> gather(std::span<const int64_t> numbers);
  Result<bool> all_agree(bool claim);  // collective: whether it is true on every rank

 private:
  explicit Rank(Library library)
      : library_(std::move(library)), rank_(library_.rank()), size_(library_.size()) {}
  Status failure(int64_t handle, int code) const;
  Library library_;
  int rank_, size_;
  int64_t gathers_ = 0;
};

// Memory for collectives, touched once so that no call pays for page faults.
class Buffer {
 public:
  // kind: "private" (this process's own, as malloc gives) or "bucket" (rueda_alloc).
  static Result<Buffer> make(const Library& library, std::string_view kind, int64_t count);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();
  [[nodiscard]] std::span<float> values() const { return values_; }

 private:
  Buffer() = default;
  void (*release_bucket_)(void*) = nullptr;  // null: private
  std::span<float> values_;
};

}  // namespace rueda::bench
