// Collectives among ranks of one host, through memory that all of them map. Engine thread only.
//
// How a call runs: every member announces the call to the others in a post (control_block.h). Nothing is
// written to any tensor before all members have announced it. Then one of a few algorithms runs. The size and
// the place of the tensors decide which one, and all ranks make the same decision. reduction.h has those of
// allreduce and barrier, exchange.h those of allgather, broadcast, reducescatter and alltoall. Short
// reductions among many members are announced along a tree instead, and reduced by one of them (gathered.h).
//
// A rank that has nothing to do sleeps until the one member rings that it waits for. Others write and do not
// ring.
//
// One call runs at a time. When it has ended on this rank, others may still read the shared buffers of this
// rank, so two one-shot buffers and tables alternate, and the next call that needs the stages waits for them.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/backend/local/exchange.h"
#include "rueda/backend/local/gathered.h"
#include "rueda/backend/local/host.h"
#include "rueda/backend/local/local_call.h"
#include "rueda/backend/local/reduction.h"

namespace rueda::backend {

class LocalBackend final : public Backend, public Cancellation {
 public:
  explicit LocalBackend(std::shared_ptr<LocalHost> host) : host_(std::move(host)) {
    call_.host = host_.get();
  }
  LocalBackend(const LocalBackend&) = delete;
  LocalBackend& operator=(const LocalBackend&) = delete;

  [[nodiscard]] std::string_view name() const override { return "local"; }
  [[nodiscard]] bool accepts(const Group& group, const schedule::Spec& spec,
                             const Memory& memory) const override;
  [[nodiscard]] Cancellation* cancellation() override { return this; }
  [[nodiscard]] bool has_room(uint64_t) const override { return is_idle(); }
  void start(const Call& call) override;
  bool progress(std::vector<Done>& done) override;
  [[nodiscard]] bool is_idle() const override { return state_ == CallState::kIdle && finished_.empty(); }
  [[nodiscard]] bool waits_on_memory() const override { return state_ != CallState::kIdle; }
  bool prepare_sleep() override;
  void wake_up() override;
  void cancel(CallId call, std::span<const int32_t> arrivals) override;
  void discard(const Call& call, std::span<const int32_t> arrivals) override;
  void abort(const Status& why) override;

 private:
  enum class CallState : uint8_t { kIdle, kWaitingForBuffer, kPosted, kRunning, kLeaving, kGathering };

  bool advance();  // does a bounded amount of work; false if there was nothing to do
  bool post();
  bool choose_algorithm();
  bool run();
  bool run_gathered();
  void end(const Status& status);
  bool have_arrived();
  [[nodiscard]] std::optional<size_t> waits_for() const;

  std::shared_ptr<LocalHost> host_;
  std::vector<Done> finished_;
  Status broken_;

  // The running call.
  CallState state_ = CallState::kIdle;
  std::string_view how_ = "";  // the algorithm, when it is chosen
  LocalCall call_;
  LocalWork* work_ = nullptr;
  size_t missing_ = 0;  // the peers behind the first `missing_` have announced it

  uint64_t calls_ = 0;  // calls of this backend so far; its parity chooses one-shot buffer and table
  BufferUsers one_shot_users_[2], stage_users_;
  Reduction reduction_{stage_users_};
  LocalExchange exchange_{stage_users_};
  Gathered gathered_;
};

}  // namespace rueda::backend
