// The report about tensors that some ranks submitted and others did not. Pure; the shape is the one operators
// of Horovod know, with the tensors' own lines added.
#pragma once

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/types.h"
#include "rueda/control/coordinator.h"

namespace rueda::control {

struct StalledTensor {
  std::string name;
  std::string_view operation;  // "ALLREDUCE"
  int32_t process_set = 0;
  Nanos age = 0;              // since the first rank submitted it
  std::vector<Rank> missing;  // world ranks, ascending
};

// tensors: at least one, each older than warning. shutdown: 0 = never.
StallReport stall_report(const std::vector<StalledTensor>& tensors, Nanos warning, Nanos shutdown);

// What the last report named.
class ReportedStalls {
 public:
  // tensors: what stalls now. True if one of them is new.
  bool add(const std::vector<StalledTensor>& tensors, Nanos now);

 private:
  // Process set, name and since when: a later wait under the same name is another one.
  std::set<std::tuple<int32_t, std::string, Nanos>> named_;
};

}  // namespace rueda::control
