// Runs collectives through the MPI of the site, in host memory. It is used only where RUEDA_CPU_OPERATIONS
// names it, because MPI adds in an order of its own. Adasum is left to the native backend. Engine thread
// only.
//
// All memory that MPI sees belongs to this backend: inputs are copied in and results out. MPI cannot cancel a
// collective, and some libraries let other processes write into the memory of one. When a job fails with
// calls under way, their memory is therefore kept until the process ends, and the callers' buffers are free
// at once.
//
// MPI moves data only while somebody calls it, and rings no bell when something has arrived. While a call is
// under way, the engine's thread therefore looks again and again, and yields in between (needs_polling()).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/backend/mpi/communicators.h"
#include "rueda/backend/mpi/process.h"
#include "rueda/backend/mpi/reduce_functions.h"

namespace rueda::backend::mpi {

struct MpiOptions {
  int64_t chunk_bytes = int64_t{1} << 30;  // of one operation of MPI at most; the same on every rank
};

class MpiBackend final : public Backend {
 public:
  // Calls under way at once, so that copying one hides behind the transfer of the other.
  static constexpr size_t kCalls = 2;

  MpiBackend(std::shared_ptr<Process> process, Team team, MpiOptions options = {});
  ~MpiBackend() override;
  MpiBackend(const MpiBackend&) = delete;
  MpiBackend& operator=(const MpiBackend&) = delete;

  [[nodiscard]] std::string_view name() const override { return "mpi"; }
  [[nodiscard]] bool accepts(const Group& group, const schedule::Spec& spec,
                             const Memory& memory) const override;
  [[nodiscard]] bool copies_fused(const Group&, const schedule::Spec&) const override { return true; }
  [[nodiscard]] bool keeps_order() const override { return false; }
  [[nodiscard]] bool has_room(uint64_t /*order*/) const override {
    return !idle_.empty() || !broken_.is_ok();
  }
  void start(const Call& call) override;
  bool progress(std::vector<Done>& done) override;
  [[nodiscard]] bool is_idle() const override { return running_.empty() && failed_.empty(); }
  void abort(const Status& why) override;
  [[nodiscard]] bool needs_polling() const override { return !running_.empty(); }
  bool prepare_sleep() override { return running_.empty(); }

 private:
  struct CallInFlight;

  // Posts the call; false while its communicator is made.
  Result<bool> begin(CallInFlight& in_flight);
  Status pack(CallInFlight& in_flight);
  void end(std::unique_ptr<CallInFlight> in_flight, const Status& status);
  void abandon();

  std::shared_ptr<Process> process_;
  Team team_;
  MpiOptions options_;
  Communicators communicators_;
  ReduceOps ops_;
  std::vector<std::unique_ptr<CallInFlight>> idle_;
  std::vector<std::unique_ptr<CallInFlight>> running_;  // in start order
  std::vector<Done> failed_;                            // to be returned by progress()
  Status broken_;                                       // why nothing can run any more
};

}  // namespace rueda::backend::mpi
