// What one rank recorded of its steps and of the tensors in them, all at once: for short runs.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/status.h"
#include "timeline/attribution.h"
#include "timeline/job.h"
#include "timeline/records.h"

namespace rueda::timeline {

// A tensor that this rank gave to a collective of all ranks. The times are on the rank's own clock.
struct Submission {
  std::string_view name;  // lives as long as the Names
  Collective what = Collective::kAllreduce;
  int64_t bytes = 0;  // that the rank gave; of an alltoall and an allgather, as the result has it on average
  Nanos when = 0, ended = 0;
  bool is_waited_for = false;  // the program did nothing else until it had ended
};

struct Mark {
  Nanos when = 0;
  bool follows_gap = false;  // records are missing since the mark before
};

// Names of tensors that a workload cannot have, by why: "of a process set".
using LeftOut = std::map<std::string, std::set<std::string>>;

struct StepEvents {
  std::vector<Mark> marks;              // in order
  std::vector<Submission> submissions;  // in the order of the ends of their calls
  std::vector<Interval> blocked;        // the program waited for a collective; may overlap
  bool has_details = false;             // tensors were recorded
};

// Reads until there are more steps or tensors than a workload needs.
Result<StepEvents> read_step_events(const RankFile& file, Epoch epoch, Names& names, LeftOut& left_out);

// The name of an operation that the program did not name, without its running number:
// "allreduce.noname.17_1of2"
// -> "allreduce.noname.#_1of2", "group/all_reduce 17" -> "group/all_reduce #". Others as they are.
std::string without_number(std::string_view name);

// Of the result that a record describes: "float32 [2, 3]" -> 24. 0: it has no elements, or is not understood.
int64_t bytes_of(std::string_view result);

}  // namespace rueda::timeline
