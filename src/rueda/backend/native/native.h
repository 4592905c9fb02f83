// Runs our own algorithms on our own transports: chooses a schedule for each call and executes it step by
// step. Here `schedule` and `transport` meet. Engine thread only.
//
// Several calls run at once, each on data channels of its own, so that the latency of one hides behind the
// bytes of the next. Channels are FIFO, and messages do not say to which call they belong. The position of
// a call in the global order chooses its channel, so all members make the same choice. No call waits for a
// message of another one.
//
// How it is driven: the owner of the transports passes every completion of a data channel to on_completion(),
// and calls progress() as long as that returns true. on_completion() posts sends and receives but never calls
// Transport::progress(), so the owner may call it from its loop over the completions. Tickets of this class
// carry NativeOptions::ticket_byte in their high byte, so that one transport can serve other channels as
// well.
//
// abort() ends all waiting. Every transport must have been aborted before, so that none touches a buffer any
// more. Completions that arrive after abort() are ignored.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/backend/native/call_runner.h"
#include "rueda/transport/transport.h"

namespace rueda::backend {

class NativeBackend final : public Backend, public Cancellation {
 public:
  explicit NativeBackend(Mesh mesh, NativeOptions options = {});
  ~NativeBackend() override;
  NativeBackend(const NativeBackend&) = delete;
  NativeBackend& operator=(const NativeBackend&) = delete;

  [[nodiscard]] std::string_view name() const override { return "native"; }
  [[nodiscard]] bool accepts(const Group&, const schedule::Spec&, const Memory& memory) const override {
    return memory.kind != MemoryKind::kDevice;
  }
  [[nodiscard]] bool copies_fused(const Group&, const schedule::Spec&) const override { return true; }
  [[nodiscard]] bool encodes(const Group& group) const override {
    return !context_.mesh.topology(group).is_single_host();
  }
  [[nodiscard]] bool obeys_tuning() const override { return true; }
  [[nodiscard]] Cancellation* cancellation() override { return this; }
  [[nodiscard]] bool has_room(uint64_t order) const override { return runners_[channel_of(order)].is_idle(); }
  void start(const Call& call) override;
  std::vector<int32_t> pause(CallId call) override;
  void resume(CallId call) override;
  void cancel(CallId call, std::span<const int32_t> arrivals) override;
  void discard(const Call& call, std::span<const int32_t> arrivals) override;
  bool progress(std::vector<Done>& done) override;
  [[nodiscard]] bool is_idle() const override;
  bool prepare_sleep() override;
  void abort(const Status& why) override;

  void on_completion(const transport::Completion& completion);
  // Whether the completion belongs to a call of this backend.
  [[nodiscard]] bool owns(const transport::Completion& completion) const;

  [[nodiscard]] const ScheduleCache& schedules() const { return context_.schedules; }

 private:
  // The data channel of a call: its position in the global order decides, so all members
  // make the same choice.
  [[nodiscard]] size_t channel_of(uint64_t order) const { return order % runners_.size(); }
  CallRunner& runner_of(CallId call);
  transport::Ticket next_tickets();  // the first one of the next call

  RunnerContext context_;
  std::vector<CallRunner> runners_;  // [channel]
  uint64_t calls_ = 0;               // started so far
  bool has_completions_ = false;     // since the last progress()
};

}  // namespace rueda::backend
