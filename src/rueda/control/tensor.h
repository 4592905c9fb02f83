// The values that the parts of the coordinator hand to one another, from "these ranks have submitted this
// tensor" to "these tensors run together". Arrivals come to pending. Submission and CompleteTensor come from
// it and go to mismatch, which compares them, and to respond, which makes a Candidate of them. ready, fusion
// and priority_queue put Units of candidates into buckets. Pure values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rueda/base/types.h"
#include "rueda/control/messages.h"
#include "rueda/control/rank_set.h"

namespace rueda::control {

// Equal requests of several ranks, which came together.
struct Arrival {
  RankSet ranks;  // world ranks, never empty
  std::shared_ptr<const TensorRequest> request;
  uint64_t sequence = 0;  // of all requests that the coordinator has received
};

// A view of what one rank has submitted.
struct Submission {
  Rank rank = 0;  // world rank
  const TensorRequest& request;
};

// A view of one complete tensor: what mismatch compares and respond answers.
struct CompleteTensor {
  const std::vector<Submission>& submissions;  // ascending world ranks, never empty; see submissions_of()
  const std::vector<Rank>& members;            // of the set, ascending world ranks
  const std::vector<Rank>& joined;             // members that joined and did not submit, ascending
};

// A tensor that may run, not yet fused with others.
struct Candidate {
  Bucket bucket;      // one entry
  int64_t bytes = 0;  // its share of a fused transfer
  int32_t priority = 0;
  bool shares_memory = false;  // on one of the ranks: it travels alone
};

// Candidates that run together: one tensor, or all of a group.
struct Unit {
  std::vector<Candidate> candidates;
  bool is_group = false;
};

}  // namespace rueda::control
