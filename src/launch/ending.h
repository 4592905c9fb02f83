// How a rank ended, and the words for it. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/types.h"

namespace rueda::launch {

// How one rank ended, as far as the launcher knows.
struct Ending {
  Rank rank = 0;
  std::string host;
  int pid = 0;               // 0 = it was never started
  int exit_code = 0;         // if the process exited
  int signal = 0;            // the signal that killed it; 0 = none
  Nanos at = 0;              // since the ranks were started, in the launcher's clock
  bool was_stopped = false;  // it ended after rueda or the user had told it to stop
  std::string trouble{};     // set if there is no exit code: it was not started, or its host was lost
  // Whether the oom_kill counter of its cgroup rose. Unset: the counter could not be read.
  std::optional<bool> was_out_of_memory{};
  std::vector<std::string> last_lines{};  // of its stderr, or of its stdout if stderr was empty
  std::string_view stream = "stderr";     // where last_lines come from
  std::string log_path{};                 // the log of that stream; "" = none

  [[nodiscard]] bool is_failure() const { return exit_code != 0 || signal != 0 || !trouble.empty(); }
};

// 128 + signal if a signal killed the rank, otherwise its exit code.
int exit_status(const Ending& ending);
std::string what_happened(const Ending& ending);  // "exited with code 1"
// "rank 1 on localhost (pid 4711) exited with code 1"
std::string describe(const Ending& ending);

std::string rank_list(const std::vector<Rank>& ranks);  // "0, 1, 4-7"
std::string signal_name(int signal);                    // "SIGKILL", or "signal 70" if it has no name

}  // namespace rueda::launch
