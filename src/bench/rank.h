// One rank of a measurement: a thin, checked layer over the C ABI. One thread, unless stated otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/library.h"
#include "rueda/base/status.h"

namespace rueda::bench {

// The limit of every wait unless the caller gives another, so that a rank that hangs is reported and does not
// block the benchmark.
inline constexpr double kWaitLimitS = 120;

struct BenchOperation {
  rueda_collective what = RUEDA_ALLREDUCE;
  const char* name = "";
  int64_t count = 0;  // elements of the input
  const float* input = nullptr;
  float* output = nullptr;  // for allreduce and broadcast it may be the input; null = memory of the engine
  std::span<const int32_t> splits = {};  // alltoall
  int32_t priority = 0;
  int32_t process_set = 0;
  rueda_wire wire = RUEDA_WIRE_DEFAULT;
};

struct ProcessSet {
  int32_t id = 0;
  int size = 0;  // ranks
};

class Rank {
 public:
  // Collective: returns when all ranks have called it.
  static Result<std::unique_ptr<Rank>> join(const std::string& own_path, double wait_limit_s = kWaitLimitS);
  ~Rank() { library_.shutdown(); }
  Rank(const Rank&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] int local_rank() const { return library_.local_rank(); }
  [[nodiscard]] bool is_one_host() const { return library_.local_size() == size_; }
  [[nodiscard]] bool is_first() const { return rank_ == 0; }
  void set_wait_limit(double seconds) { wait_limit_s_ = seconds; }
  [[nodiscard]] ProcessSet world() const { return {.id = 0, .size = size_}; }
  [[nodiscard]] std::string host() const;  // this rank's, as the library names it
  [[nodiscard]] const Library& library() const { return library_; }
  [[nodiscard]] std::string transports() const;  // the transports to the other ranks: "shm", "tcp", "shm+tcp"
  // To another rank: the shortest that the network stack has counted; 0 = it counts none.
  [[nodiscard]] int64_t round_trip_ns(int peer) const;
  [[nodiscard]] std::string algorithm() const;  // of the last batch that ran
  // How sums travel between hosts if the name is empty, and the constant of a name that rueda knows.
  [[nodiscard]] std::string default_wire() const;
  static std::optional<rueda_wire> find_wire(std::string_view name);
  // The control messages for negotiation that this rank has sent so far. It sends none while a
  // learned plan runs.
  [[nodiscard]] int64_t negotiation_messages() const;

  // Any thread. Call finish() once for each handle.
  Result<int64_t> submit(const BenchOperation& operation);
  Result<int64_t> submit_group(std::span<const BenchOperation> operations);
  Status finish(int64_t handle);  // waits and releases
  Status run(const BenchOperation& operation);
  // The output that the engine allocated for a handle that is done but not released.
  Result<std::span<const float>> output_of(int64_t handle) const;
  // Two barriers of one iteration need two names: recurring names tell learned plans where a step ends.
  Status barrier(const char* name = "bench.barrier", int32_t process_set = 0);
  // Collective. Returns the numbers of all ranks: [ranks * numbers.size()], rank-major. All ranks
  // pass equally many.
  Result<std::vector<int64_t>> gather(std::span<const int64_t> numbers) { return gather(numbers, world()); }
  // The same among the ranks of the set.
  Result<std::vector<int64_t>> gather(std::span<const int64_t> numbers, const ProcessSet& set);
  // Collective: the texts of all ranks, one after the other.
  Result<std::string> gather_text(std::string_view text);
  // Collective over all ranks, also those that are not in the set. A set of all ranks is the world.
  Result<ProcessSet> add_process_set(std::span<const int32_t> ranks);
  Result<bool> all_agree(bool claim);  // collective: whether it is true on every rank

 private:
  Rank(Library library, double wait_limit_s)
      : library_(std::move(library)),
        wait_limit_s_(wait_limit_s),
        rank_(library_.rank()),
        size_(library_.size()) {}
  Status failure(int64_t handle, int code) const;
  // The outputs of all ranks of an allgather, which gets a name of its own.
  Result<std::string> gather_bytes(rueda_request request);
  Library library_;
  double wait_limit_s_;
  int rank_, size_;
  int64_t gathers_ = 0;
};

// Memory for collectives. Every page is touched once, so that no measured call pays for page faults.
class Buffer {
 public:
  // kind: "private" (memory of this process, as from malloc) or "shared" (rueda_alloc). count may be 0.
  static Result<Buffer> make(const Library& library, std::string_view kind, int64_t count);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();
  [[nodiscard]] std::span<float> values() const { return values_; }

 private:
  Buffer() = default;
  void (*release_shared_)(void*) = nullptr;  // null: private
  std::span<float> values_;
};

}  // namespace rueda::bench
