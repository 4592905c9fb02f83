// What the groups of collectives share during one run of a block of a program: how many have not ended, and
// the first failure. Any thread.
#ifndef RUEDA_PLUGINS_JAX_RUNS_H_
#define RUEDA_PLUGINS_JAX_RUNS_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

namespace rueda::jax {

class Runs {
 public:
  // Begins a run that will end this many groups, and returns its number.
  int32_t begin(int64_t groups);
  // One group has ended; it has failed if `why` is not empty. For the last group of the run, returns the
  // first failure of the run (empty if none). For the others, returns an empty text.
  std::string end_group(int32_t run, std::string why);

 private:
  struct Run {
    int64_t groups_left;
    std::string why;
  };
  std::mutex mutex_;
  int32_t next_ = 0;
  std::unordered_map<int32_t, Run> runs_;  // a run stays here if a failure elsewhere ended its program
};

// The only instance. Never destroyed, because threads of XLA may still use it while the process ends.
Runs& runs();

}  // namespace rueda::jax

#endif  // RUEDA_PLUGINS_JAX_RUNS_H_
