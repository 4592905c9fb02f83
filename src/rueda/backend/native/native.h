// Our own algorithms on our own transports: chooses a schedule for each call and executes it step by step.
// Where `schedule` and `transport` meet. Engine thread only.
//
// How it is driven. The owner of the transports passes every completion of a data lane to on_completion() -
// from within its loop over Transport::progress() if it likes: on_completion() posts sends and receives but
// never calls progress() - and calls progress() as long as that returns true. Tickets of this class carry
// kTicketByte in their high byte, so that one transport can serve other lanes as well.
//
// Failure. When a ticket fails, the call stays open until its other tickets are complete, because the
// transports still hold the caller's memory until then; it then ends with the first failure, and so does
// every later call: the lanes are out of step. abort() ends that wait. Its precondition: every transport was
// aborted before, so that no wire touches a buffer any more. Completions that arrive after abort() are
// ignored.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/backend/native/execution.h"
#include "rueda/backend/native/plan_cache.h"
#include "rueda/backend/native/scratch.h"
#include "rueda/backend/packing.h"
#include "rueda/schedule/topology.h"
#include "rueda/transport/transport.h"

namespace rueda::backend {

// What the backend sees of the world.
struct Mesh {
  // The data lane to a world rank other than mine; never null while calls run.
  std::function<transport::Endpoint*(Rank world_rank)> endpoint;
  // Where the members of a group live. The same on every member.
  std::function<schedule::Topology(const Group&)> topology;
};

struct NativeOptions {
  std::string algorithm;            // forces one by name; empty: the cost model chooses
  bool is_bitwise = false;          // sums in rank order, wherever the ranks are; the same on every rank
  int64_t chunk_bytes = 256 << 10;  // pipelining granule; the same on every rank
  // A tensor up to this size that may be taken back is copied: sooner done than hearing that all members have
  // started. The same on every rank.
  size_t copied_bytes = 256 << 10;
  Planner planner;  // tests: how to make a schedule; empty: choose() and build
};

class NativeBackend final : public Backend {
 public:
  static constexpr uint8_t kTicketByte = 0x01;

  explicit NativeBackend(Mesh mesh, NativeOptions options = {});
  ~NativeBackend() override;
  NativeBackend(const NativeBackend&) = delete;
  NativeBackend& operator=(const NativeBackend&) = delete;

  [[nodiscard]] std::string_view name() const override { return "native"; }
  [[nodiscard]] bool accepts(const Group&, const schedule::Spec&, const Memory& memory) const override {
    return memory.kind != MemoryKind::kDevice;
  }
  [[nodiscard]] bool copies_fused(const Group&, const schedule::Spec&) const override { return true; }
  [[nodiscard]] bool can_take_back(const Group&, const schedule::Spec&) const override { return true; }
  [[nodiscard]] size_t room() const override { return is_idle() ? 1 : 0; }
  void start(const Call& call) override { begin(call, std::nullopt); }
  std::vector<int32_t> pause() override;
  void resume() override;
  void take_back(std::span<const int32_t> arrivals) override;
  void drain(const Call& call, std::span<const int32_t> arrivals) override;
  bool progress(std::vector<Done>& done) override;
  [[nodiscard]] bool is_idle() const override { return !is_running_ && finished_.empty(); }
  void abort(const Status& why) override;

  void on_completion(const transport::Completion& completion);

  [[nodiscard]] const PlanCache& plans() const { return plans_; }

 private:
  using Arrivals = std::optional<std::span<const int32_t>>;  // of a call that is drained
  [[nodiscard]] bool needs_gate(const Call& call) const;
  void begin(const Call& call, Arrivals drained);
  Status load(const Call& call, bool is_drained);
  Status prepare(const schedule::Spec& spec, Arrivals drained);
  void pass_gate();
  void end(const Status& status);

  Mesh mesh_;
  NativeOptions options_;
  PlanCache plans_;
  Scratch scratch_;
  bool is_running_ = false;
  bool is_at_gate_ = false;  // a barrier runs before the call itself
  bool is_taken_back_ = false;
  Call current_;
  Packing packing_;      // of current_
  schedule::Spec spec_;  // of what runs: of current_, or of its gate
  Execution execution_;
  std::string_view how_ = "";
  std::shared_ptr<const Plan> plan_;  // of current_, or of the last call; alive even if the cache drops it
  std::vector<transport::Endpoint*> endpoints_;  // [rank in the group of current_]
  std::vector<Done> finished_;                   // to be handed out by progress()
  Status broken_;  // why nothing can run any more: the first failure of a wire, or the abort
};

}  // namespace rueda::backend
