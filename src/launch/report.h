// Who failed first, what the user is told, and what the launcher exits with. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/types.h"

namespace rueda::launch {

// How one rank ended, as the launcher learnt it.
struct Ending {
  Rank rank = 0;
  std::string host;
  int pid = 0;               // 0: never started
  int exit_code = 0;         // of a process that exited
  int signal = 0;            // that ended it, 0 = none
  Nanos at = 0;              // since the ranks were started, in the launcher's clock
  bool was_stopped = false;  // after rueda or the user had told it to stop
  std::string trouble{};     // instead of a code: it could not be started, or its host was lost
  std::optional<bool>
      was_out_of_memory{};  // whether the oom_kill counter of its cgroup rose; unset: unreadable
  std::vector<std::string> last_lines{};  // of its stderr; of its stdout where it said nothing there
  std::string_view stream = "stderr";     // that they are from
  std::string log_path{};                 // of that stream, "" = none

  [[nodiscard]] bool is_failure() const { return exit_code != 0 || signal != 0 || !trouble.empty(); }
};

// The earliest failure that was not of our own making; of two at the same moment the one killed by a signal,
// since an exit code is more often the echo of somebody else's death. Index into endings.
std::optional<size_t> first_cause(std::span<const Ending> endings);

// 128 + signal, or the exit code.
int exit_status(const Ending& ending);
// Of the whole job: that of the first cause; 128 + interrupt when the user stopped it; 0 when all is well.
int job_exit_status(std::span<const Ending> endings, int interrupt);

std::string signal_name(int signal);  // "SIGKILL"; "signal 70" for one without a name

// The one block at the end of a failed job; "" if nothing failed. interrupt: the signal by which the user
// ended the job, 0 = none.
std::string failure_report(std::span<const Ending> endings, int interrupt);

}  // namespace rueda::launch
