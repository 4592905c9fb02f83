// Bookkeeping that tcp, shm and sim share. Requests: the sends and receives that wait at one channel.
// Outcome: the completions and losses of all channels of a transport, until its owner fetches them. Engine
// thread only (during init, the thread that called it).
#pragma once

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "rueda/transport/message.h"

namespace rueda::transport {

// Collects what the owner of the channels returns from its next progress() or take_losses().
struct Outcome {
  std::vector<Completion> completions;
  std::vector<Loss> losses;

  // Returns whether there was a completion.
  bool hand_over(std::vector<Completion>& done) {
    const bool is_any = !completions.empty();
    done.insert(done.end(), completions.begin(), completions.end());
    completions.clear();
    return is_any;
  }
  std::vector<Loss> take_losses() { return std::exchange(losses, {}); }
};

// The two queues of a channel, and how it ended. A request that is posted after the end completes with the
// reason of the end.
class Requests {
 public:
  explicit Requests(Outcome& outcome) : outcome_(outcome) {}

  void post(SendRequest request) {
    if (is_ended()) return complete(request.ticket, why_);
    sends.push_back(request);
  }
  void post(RecvRequest request) {
    RUEDA_CHECK(request.unit_bytes > 0 && request.bytes % request.unit_bytes == 0,
                "a receive must be a multiple of its unit");
    if (is_ended()) return complete(request.ticket, why_);
    recvs.push_back(request);
  }
  void complete(Ticket ticket, const Status& status) { outcome_.completions.push_back({ticket, status}); }
  void finish_send() {
    complete(sends.front().ticket, Status::ok());
    sends.pop_front();
  }
  void finish_recv() {
    complete(recvs.front().ticket, Status::ok());
    recvs.pop_front();
  }
  // begun: how many of the oldest receives have got a part of their message.
  size_t withdraw(size_t receives, size_t begun) {
    const size_t open = recvs.size() - std::min(begun, recvs.size());
    const size_t taken = std::min(receives, open);
    recvs.resize(recvs.size() - taken);
    return taken;
  }
  // Completes all waiting requests with `why`.
  void end(const Status& why) {
    RUEDA_CHECK(!why.is_ok() && !is_ended(), "a channel ends once, with a reason");
    why_ = why;
    for (const SendRequest& request : sends) complete(request.ticket, why);
    for (const RecvRequest& request : recvs) complete(request.ticket, why);
    sends.clear();
    recvs.clear();
  }
  [[nodiscard]] bool is_ended() const { return !why_.is_ok(); }

  std::deque<SendRequest> sends;
  std::deque<RecvRequest> recvs;

 private:
  Outcome& outcome_;
  Status why_;
};

}  // namespace rueda::transport
