// What runs next, in which order: the pure heart of scheduling. Rank 0 of the world holds the one
// Coordinator; it orders the operations of all process sets in a single global sequence, so that overlapping
// sets cannot deadlock. Takes values (time included), returns values. No I/O, no threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/trace_sink.h"
#include "rueda/base/types.h"
#include "rueda/control/messages.h"

namespace rueda::control {

struct CoordinatorOptions {
  Rank world_size = 1;
  int64_t fusion_bytes = 64 << 20;   // 0 = off
  int64_t alone_bytes = 0;           // as in FusionOptions
  int64_t priority_bytes = 2 << 20;  // of tensors with a priority; the smaller of the two counts
  bool group_fusion_disabled = false;
  bool stall_check_disabled = false;
  Nanos stall_warning = 60 * kSecond;
  Nanos stall_shutdown = 0;                           // 0 = never
  std::map<int32_t, std::vector<Rank>> process_sets;  // without the world; ids from 1
};

struct StallReport {
  std::string text;        // in full
  std::string short_text;  // one sentence: for the other ranks, and for rank 0 where nothing is new
  bool is_news = true;     // names a tensor that no earlier report of this wait has named
  bool is_fatal = false;   // stall_shutdown passed: end the job with kStalled
};

class Coordinator {
 public:
  explicit Coordinator(CoordinatorOptions options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Requests one rank made ready, in its submission order. trace may be null: RankReady and NEGOTIATE events.
  void submit(Rank from, std::vector<Request> requests, Nanos now, TraceSink* trace);
  // What may run now, fused, in the order all ranks must follow: one bucket of what has a priority,
  // everything of what has none. Empty when nothing is ready.
  std::vector<Response> take_ready(Nanos now, TraceSink* trace);
  // Call now and then (at least every stall_warning); at most one report per interval.
  std::vector<StallReport> check_stalls(Nanos now);
  // When check_stalls should be called next.
  [[nodiscard]] Nanos next_check(Nanos now) const;
  // Names that wait for ranks, and for which ones: for the log when a job ends.
  [[nodiscard]] std::string pending_summary() const;
  [[nodiscard]] const std::map<int32_t, std::vector<Rank>>& process_sets() const;

  // May ranks run the named tensors of the world without negotiation from now on? Not while anything else
  // waits.
  [[nodiscard]] bool may_begin_plan(const std::unordered_set<std::string>& names) const;
  // Forgets what waits: a plan begins, and the ranks keep or repeat what they have submitted.
  void forget_waiting(Nanos now, TraceSink* trace);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Checks that need no other rank, at the call: root, splits, scalar inputs, dtypes, op, membership, unknown
// set. members: the set's world ranks, or null when the set is unknown. The texts begin as
// Horovod's.
Status check_request(const Request& request, const std::vector<Rank>* members, Rank me, Rank world_size);

// Rows rank r of n receives from a reducescatter of `rows` rows: rows / n, plus one for r < rows % n.
int64_t reducescatter_rows(int64_t rows, Rank n, Rank r);

}  // namespace rueda::control
