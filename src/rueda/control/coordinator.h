// Decides what runs next, and in which order. Rank 0 has the only Coordinator of a job. It orders the
// operations of all process sets in one global sequence, so that overlapping sets cannot deadlock. Pure: it
// takes values (time included) and returns values. It has no threads, and does no I/O except for log records.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/trace_sink.h"
#include "rueda/base/types.h"
#include "rueda/control/backend_traits.h"
#include "rueda/control/dependents.h"
#include "rueda/control/joins.h"
#include "rueda/control/messages.h"
#include "rueda/control/pending.h"
#include "rueda/control/process_sets.h"
#include "rueda/control/rank_set.h"
#include "rueda/control/ready.h"
#include "rueda/control/stalls.h"

namespace rueda::control {

struct CoordinatorOptions {
  Rank world_size = 1;
  int64_t fusion_bytes = 64 << 20;   // 0 = off
  int64_t priority_bytes = 2 << 20;  // for tensors with a priority; the smaller limit holds
  bool group_fusion_disabled = false;
  bool stall_check_disabled = false;
  Nanos stall_warning = 60 * kSecond;
  Nanos stall_shutdown = 0;                           // 0 = never
  std::map<int32_t, std::vector<Rank>> process_sets;  // without the world; ids from 1
  BackendTraitsLookup traits_of = default_traits;
  // A rank, as people know it.
  std::function<std::string(Rank)> who = [](Rank rank) { return "rank " + std::to_string(rank); };
};

class Coordinator {
 public:
  explicit Coordinator(const CoordinatorOptions& options);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Takes requests that each of these ranks has made, in the order in which it submitted them. They cost the
  // same as those of one rank. trace learns which ranks are ready for what; it may be null.
  void submit(const RankSet& from, const SharedRequests& requests, Nanos now, TraceSink* trace);
  void submit(const RankSet& from, std::vector<Request> requests, Nanos now, TraceSink* trace) {
    submit(from, std::make_shared<const std::vector<Request>>(std::move(requests)), now, trace);
  }
  // Returns what may run now, fused, in the order that all ranks must follow: one bucket of the tensors with
  // a priority, and all tensors without one. Empty if nothing is ready.
  std::vector<Response> take_ready();
  // To be called at least once in every stall_warning. Returns at most one report in that time. in_plan: what
  // waits in a learned plan, which is not negotiated.
  std::vector<StallReport> check_stalls(Nanos now, std::vector<StalledTensor> in_plan = {});
  // When check_stalls() should be called next.
  [[nodiscard]] Nanos next_check(Nanos now) const;
  // Something that is ordered still runs: a join does not count as stalled then.
  void moves(Nanos now) { moved_at_ = now; }
  // What some ranks have submitted and others have not, for so long or longer; and a join that counts as
  // stalled. Ranks that train may keep those that have joined waiting for hours, so a join does so only when
  // nothing else waits, and when no rank has submitted anything, and nothing has run, for the warning time.
  [[nodiscard]] std::vector<StalledTensor> waiting_longer_than(Nanos age, Nanos now) const;
  // The names that wait, and the ranks for which they wait: for the log when a job ends.
  [[nodiscard]] std::string pending_summary() const;
  [[nodiscard]] const std::map<int32_t, std::vector<Rank>>& process_sets() const;

  // Whether the ranks may run the planned tensors without negotiation from now on: only if nothing else
  // waits.
  [[nodiscard]] bool may_begin_plan(const std::function<bool(const TensorRequest&)>& is_planned) const;
  // Forgets all requests that wait, because a plan begins. The ranks put theirs into the plan or
  // submit them again.
  void forget_waiting();

 private:
  using SharedTensor = std::shared_ptr<const TensorRequest>;  // one of the requests that ranks have in common
  void submit_one(const RankSet& from, const SharedTensor& request);
  void submit_tensor(const RankSet& from, const SharedTensor& request);
  void submit_to(PendingSet& set, const RankSet& members, SharedTensor request);
  void submit_join(Rank from, const TensorRequest& request);
  void submit_change(Rank from, SetChange&& change);
  void match_set_changes();
  void apply(SetAdded added);
  void apply(SetRemoved removed);
  void fail_outstanding(int32_t id);  // of a set that is removed
  void collect(PendingSet& set);
  void collect_conflicts(PendingSet& set);
  void finish(const PendingSet& set, Finished finished);
  [[nodiscard]] std::set<uint64_t> unordered_before(const Complete& complete) const;
  [[nodiscard]] Status judge(const PendingSet& set, const Finished& finished,
                             std::vector<Candidate>& out) const;
  [[nodiscard]] Status mismatch(const CompleteTensor& complete) const;
  [[nodiscard]] Nanos oldest_request() const;
  [[nodiscard]] Nanos oldest() const;  // with a join

  Rank world_size_;
  ProcessSets sets_;
  Joins joins_;
  std::map<int32_t, PendingSet> pending_;  // by process set; that of the world always exists
  Dependents dependents_;                  // complete, and not yet ready
  Ready ready_;
  StallWatch stalls_;
  std::function<std::string(Rank)> who_;
  int64_t round_ = 0;
  uint64_t sequence_ = 0;  // of the last request
  Nanos moved_at_ = 0;     // when a rank last submitted anything, or a collective still ran
  // Of submit(), while it runs.
  Nanos now_ = 0;
  TraceSink* trace_ = nullptr;  // null: not traced
};

}  // namespace rueda::control
