// The hosts that LSF or PBS has given to the job in which `rueda run` was started. Pure, but for a file that
// the scheduler has written.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launch/hosts.h"
#include "rueda/base/status.h"
#include "rueda/store/world.h"

namespace rueda::launch {

struct BatchHosts {
  enum class Scheduler { kNone, kLsf, kPbs } scheduler = Scheduler::kNone;
  std::vector<HostSlots> hosts;  // in the scheduler's order
};

using ReadFile = std::function<Result<std::string>(const std::string& path)>;

// None outside a job of these schedulers. What cannot be read is refused by the variable's name.
Result<BatchHosts> read_batch_hosts(const store::GetEnv& get_env, const ReadFile& read_file);

}  // namespace rueda::launch
