// Which tensor of a plan a request means. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/control/messages.h"

namespace rueda::control {

class PlanNames {
 public:
  // Fails if two tensors of the plan cannot be told apart, or a number does not grow from pass to pass. A
  // name without a number may recur within a pass, because a rank cannot have it in flight twice.
  static Result<PlanNames> of(std::span<const Bucket> buckets);

  struct Found {
    size_t position = 0;  // among the tensors of all buckets; the first of those with this name
    int64_t number = 0;   // in the name of the request; 0: the name recurs as it is
  };
  // None if the plan has no such name, whatever the number in it.
  [[nodiscard]] std::optional<Found> find(const TensorRequest& request) const;

 private:
  // Names of one process set that differ in their number alone.
  struct Series {
    int64_t first = 0, stride = 0;
    std::vector<int32_t> positions;  // [(number - first) % stride], -1: none
  };
  struct OfSet {
    std::unordered_map<std::string, size_t> plain;
    std::unordered_map<std::string, Series> numbered;
  };
  Status add_numbered(OfSet& names, const Entry& entry, size_t position);

  std::unordered_map<int32_t, OfSet> of_set_;
  mutable std::string key_;  // kept for its memory
};

}  // namespace rueda::control
