// The ways in which the buckets of a step can be made and run, and which of them are next to one another: a
// value for each thing that can be chosen without changing a bit. The tuner (tuner.h) tries them. Pure.
//
// * Which tensors travel together: up to a size, or computed (bucket_programme.h).
// * From which size on a tensor travels alone, because it is then not copied into the buffer of its bucket.
// * By which algorithm calls run, of those that add in the same order.
// * In chunks of which size.
// * In which order buckets start: that of the answers when the plan was learned, or that in which tensors
//   were ready (ready_order.h).
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "rueda/control/bucket_programme.h"
#include "rueda/control/bucketing.h"

namespace rueda::control {

struct BucketWay {
  bool is_computed = false;
  int exponent = 0;         // computed: of four, for what a call costs; otherwise of two, for the size
  int64_t alone_bytes = 0;  // a tensor of this size or more travels alone; 0: none does
  int algorithm = 0;        // one of the others, counted from 1; 0: the cost model chooses for each bucket
  int chunk = 0;            // exponent of four, for the size
  bool is_by_ready = false;

  auto operator<=>(const BucketWay&) const = default;
};

// An algorithm that adds in the same order as those that the cost model chooses.
struct OtherAlgorithm {
  uint8_t number = 0;  // CallTuning::algorithm
  std::string name;
  std::function<double(int64_t bytes)> call_us;  // as predicted; infinity: it cannot run such a call
};

class BucketWays {
 public:
  struct Options {
    BucketCosts costs = {};
    std::vector<OtherAlgorithm> algorithms = {};  // which may be tried
    int64_t chunk_bytes = 0;                      // as set; 0: no other size may be tried
  };
  BucketWays(Options options, BucketLimits limits)
      : options_(std::move(options)), limits_(std::move(limits)) {}

  void set_step(std::vector<SeenTensor> step, const SetMembers& sets);
  [[nodiscard]] const std::vector<SeenTensor>& step() const { return step_; }
  [[nodiscard]] std::vector<Bucket> buckets_of(const BucketWay& way) const;
  // Those that differ from it in one thing, the most promising first. buckets: its own.
  [[nodiscard]] std::vector<BucketWay> next_to(const BucketWay& way, std::span<const Bucket> buckets) const;
  // Whether these are the same calls in the same order.
  [[nodiscard]] static bool are_alike(std::span<const Bucket> some, std::span<const Bucket> others);
  [[nodiscard]] int64_t step_bytes() const;
  // The size up to which tensors are fused; of computed buckets: of the largest with several tensors.
  [[nodiscard]] int64_t fused_bytes_of(const BucketWay& way, std::span<const Bucket> buckets) const;
  // For people: "computed buckets, a call as it is predicted; tensors from 512 KiB on alone".
  [[nodiscard]] std::string text_of(const BucketWay& way) const;

 private:
  [[nodiscard]] std::vector<ReadyTensor> ready_of(const std::vector<SeenTensor>& step,
                                                  int64_t alone_bytes) const;
  [[nodiscard]] BucketCosts costs_of(const BucketWay& way) const;
  [[nodiscard]] BucketLimits sizes_of(const BucketWay& way) const;
  [[nodiscard]] CallTuning tuning_of(const BucketWay& way, const Bucket& bucket) const;
  // Whether calls of so many bytes are to run by another algorithm.
  [[nodiscard]] bool is_worth_trying(const OtherAlgorithm& other, int64_t bytes) const;
  void add_chunks(const BucketWay& way, std::span<const Bucket> buckets, std::vector<BucketWay>& ways) const;
  void add_algorithms(const BucketWay& way, std::span<const Bucket> buckets,
                      std::vector<BucketWay>& ways) const;
  void add_alone(const BucketWay& way, std::vector<BucketWay>& ways) const;
  void add_sizes(const BucketWay& way, std::vector<BucketWay>& ways) const;
  [[nodiscard]] int64_t chunk_of(const BucketWay& way) const;

  Options options_;
  BucketLimits limits_;
  std::vector<SeenTensor> step_;
  SetMembers sets_;
  bool copies_ = false;  // tensors of a bucket
};

}  // namespace rueda::control
