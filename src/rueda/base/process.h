// What Linux says about a process of this host (proc(5)). Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "rueda/base/clock.h"

namespace rueda {

enum class ProcessState : uint8_t {
  kUnknown,  // not visible from here
  kRuns,     // or sleeps, and would be woken
  kStopped,  // by a signal, until it is continued
  kTraced,   // a debugger holds it
  kEnded,
};
inline constexpr int kProcessStates = static_cast<int>(ProcessState::kEnded) + 1;

struct ProcessLook {
  ProcessState state = ProcessState::kUnknown;
  int64_t began = 0;  // in clock ticks since the machine was started: pids are used again, pairs are not
  int32_t parent = 0;
  // That have not ended. A process whose first thread has ended is kEnded here, and its others may run, or
  // still be ending: its children are its own until they have.
  int32_t threads = 0;
  std::string name;
};

// The first 4 KiB of a file of /proc; empty if it cannot be read.
std::string read_proc(const std::string& path);

// stat: the text of /proc/PID/stat.
ProcessLook parse_process_stat(std::string_view stat);
// began: as a look at the same process said before; 0 = not known. A process that began at another time is
// another one, or belongs to another pid namespace: kUnknown.
ProcessLook look_at_process(int64_t pid, int64_t began);
// Why a process in this state does not answer, a clause about "it".
std::string why_no_answer(ProcessState state, int64_t pid);
// Within 64 generations.
bool is_or_descends_from(int64_t pid, int64_t ancestor);
// The pid namespace of the calling process: pids mean the same exactly within one. 0 if /proc does not say.
int64_t pid_space();
// When the calling process began; 0 if /proc does not say.
int64_t process_began();
// How long the calling process has existed, to 10 ms and never too short; 0 if /proc does not say.
Nanos process_age();

// What the calling process has used so far.
struct ProcessUse {
  Nanos at = 0;  // on the clock of its host (monotonic_now)
  // In which threads ran, or could have run on a machine with more cores. Time on a core alone would take a
  // rank that computes on a crowded machine for one that sleeps.
  Nanos cpu = 0;
  int64_t major_faults = 0;
  int64_t swapped_bytes = 0;  // now
};
ProcessUse process_use();

}  // namespace rueda
