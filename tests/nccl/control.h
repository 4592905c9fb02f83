// What tests plant in the tests' libnccl, and what they read from it. The library exports one function that
// returns the one Control of the process: find it with dlsym(handle, kControlName). Any thread.
//
// For other processes: FAKE_NCCL_VERSION sets the version.
#pragma once

#include <atomic>

namespace rueda::fake_nccl {

struct Control {
  static constexpr int kVersion = 23004;

  std::atomic<int> version{kVersion};
  // ---- faults; a member is its rank in the communicator ----
  std::atomic<int> failing_member{-1};   // whose faults the next three are; -1: nobody's
  std::atomic<int> fail_init{0};         // ncclResult_t with which communicators end their start
  std::atomic<int> fail_begin{0};        // ncclResult_t with which ncclCommInitRankConfig refuses
  std::atomic<int> fail_group{0};        // ncclResult_t with which groups are refused
  std::atomic<int> lost_member{-1};      // drops its connections with its next group
  std::atomic<bool> never_ready{false};  // communicators stay in progress until they are aborted
  // ---- speed, of every member ----
  std::atomic<int> us_per_group{0}, us_per_kib{0};
  // ---- counts ----
  std::atomic<int> communicators{0};     // alive
  std::atomic<int> starts{0};            // communicators begun
  std::atomic<int> groups{0};            // launched
  std::atomic<int> groups_elsewhere{0};  // begun by other threads than the engine's own
  std::atomic<int> operations{0};        // in those groups
  std::atomic<int> aborts{0};

  // Forgets faults and counts, but not which communicators are alive.
  void reset() {
    version = kVersion;
    failing_member = lost_member = -1;
    us_per_group = us_per_kib = 0;
    fail_init = fail_begin = fail_group = starts = groups = groups_elsewhere = operations = aborts = 0;
    never_ready = false;
  }
};

inline constexpr const char* kControlName = "fake_nccl_control";
using ControlFunction = Control* (*)();

}  // namespace rueda::fake_nccl
