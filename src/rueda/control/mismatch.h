// Checks whether the ranks agree about a tensor. Pure. The sentences begin with Horovod's words, and the
// checks are made in Horovod's order, because programs and tests look for these texts. Then each sentence
// names the tensor and says what each rank has submitted.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/control/tensor.h"

namespace rueda::control {

// Returns ok, kMismatch, or kUnsupported (the collective needs a rank that has joined).
Status find_mismatch(const CompleteTensor& tensor);

// Of ranks that disagree, those that are outnumbered: all but the largest group of equal requests. Where two
// are equally large, the one with the lowest rank counts as the larger.
struct Outnumbered {
  std::vector<Rank> ranks = {};  // ascending
  bool is_certain = false;       // no other group is as large as the largest
};
// groups: the ranks that submitted equal requests; none of them is empty.
Outnumbered outnumbered_among(const std::vector<std::vector<Rank>>& groups);
Outnumbered outnumbered_ranks(const CompleteTensor& tensor);
// " Outnumbered: rank 2.", which `rueda run` and the Spark and Ray launchers look for (launch/last_words.h,
// rueda/failures.py); empty where it is not certain.
std::string outnumbered_text(const Outnumbered& outnumbered);

// One line for the log: the ranks, and what is wrong. who: a rank, as people know it.
std::string mismatch_verdict(const std::vector<Rank>& ranks, const std::function<std::string(Rank)>& who,
                             const Status& why);

// "rank 0" or "ranks 0, 2". Lists at most ten, then says how many more there are.
std::string rank_list(const std::vector<Rank>& ranks);

}  // namespace rueda::control
