// What the groups of collectives of one run of a block of a program share: how many have not ended, and the
// first failure. Any thread.
#ifndef RUEDA_PLUGINS_JAX_RUNS_H_
#define RUEDA_PLUGINS_JAX_RUNS_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

namespace rueda::jax {

class Runs {
 public:
  // The number of a new run that will end so many groups.
  int32_t begin(int64_t groups);
  // One group has ended, failed if `why` is not empty. For the last group of the run: why the first that
  // failed did, empty if none has. For the others empty.
  std::string end_group(int32_t run, std::string why);

 private:
  struct Run {
    int64_t groups_left;
    std::string why;
  };
  std::mutex mutex_;
  int32_t next_ = 0;
  std::unordered_map<int32_t, Run> runs_;  // one that a failure elsewhere in its program ended stays
};

// The one of this process. Never destroyed: threads of XLA may still use it while the process ends.
Runs& runs();

}  // namespace rueda::jax

#endif  // RUEDA_PLUGINS_JAX_RUNS_H_
