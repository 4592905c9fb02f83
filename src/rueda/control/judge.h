// Why ranks wait: names the rank at fault and the class of the fault while it happens. Rank 0 judges from
// what all ranks say about themselves (facts.h), from what it hears of them, and from the tensors that wait.
// docs/verdicts.md lists the classes. Pure: events in (time included), verdicts out.
//
// A verdict of this class never ends a job; runtime/verdicts.h decides about that.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/types.h"
#include "rueda/control/facts.h"
#include "rueda/control/link_judge.h"
#include "rueda/control/stalls.h"

namespace rueda::control {

enum class Fault : uint8_t {
  // of a process
  kStopped,
  kDebugger,
  kSilent,  // it does not answer, and nobody knows why
  // of a rank that answers and for which others wait
  kMissing,
  kOrder,  // it waits in one collective, and those that wait there for it wait in another
  kLateInCompute,
  kLateInInput,
  kSwapping,
  // of numbers
  kNotFinite,
  // of a network
  kSlowLink,
};
std::string_view name_of(Fault fault);  // "late in compute"

struct Verdict {
  Fault fault = Fault::kMissing;
  Rank rank = 0;
  bool is_over = false;            // what was said before no longer holds
  Nanos age = 0;                   // for so long; if it is over, for so long it has held
  std::string tensor = {};         // for which others wait; empty: not known to wait
  std::string other = {};          // kOrder: the tensor in which the rank waits
  std::vector<Rank> waiting = {};  // the ranks that wait for it
  int64_t element = 0;             // kNotFinite: the first that is none
  int core_percent = -1;           // CPU time that it uses, of one core; -1: not known
  trace::SlowLink link = {};       // kSlowLink: between hosts, each named by its first rank
};
// Whether the stacks of the rank say more: it runs, and others wait for it.
bool is_explained_by_stacks(const Verdict& verdict);
// One line: class, rank, tensor, and what to do. who: a rank, as people know it: "rank 3 (host b, pid 4711)".
std::string verdict_line(const Verdict& verdict, const std::function<std::string(Rank)>& who);

class Judge {
 public:
  struct Options {
    Rank me = 0;  // is not judged as a process
    Rank ranks = 1;
    Nanos limit = 5 * kSecond;     // for so long others must have waited, or a rank must have been silent
    std::vector<Rank> hosts = {};  // by rank: the first rank of its host; empty: links are not judged
  };
  Judge(const Options& options, Nanos now);

  void heard(Rank from, Nanos now);
  // What a rank says; also this rank. on_facts counts its sightings, too.
  void on_facts(Rank from, Facts facts, Nanos now);
  void on_sighting(const Sighting& sighting, Nanos now);

  // Tensors of the learned plan that wait, as far as the facts tell.
  [[nodiscard]] std::vector<StalledTensor> waits_in_plan() const;
  // waits: what waits for limit() or longer, outside of plans. Each verdict is said once, and once more when
  // it is over.
  std::vector<Verdict> tick(const std::vector<StalledTensor>& waits, Nanos now);
  [[nodiscard]] Nanos limit() const { return options_.limit; }
  [[nodiscard]] Nanos next_tick() const { return next_tick_; }

 private:
  struct Sample {
    Nanos when = 0;
    ProcessUse use;
  };
  struct Known {  // of one rank
    Nanos heard = 0;
    Facts facts;
    Nanos facts_at = 0;          // 0: none yet
    std::deque<Sample> samples;  // oldest first, a few seconds
    ProcessState state = ProcessState::kUnknown;
    Nanos state_since = 0, state_seen = 0;
  };
  enum class Group : uint8_t { kProcess, kLate };
  using Key = std::pair<Rank, Group>;
  struct Said {
    Verdict verdict;
    Nanos since = 0;  // when the fault began
    Nanos at = 0;     // when it was said
  };
  [[nodiscard]] Known& known(Rank rank) { return known_[static_cast<size_t>(rank)]; }
  [[nodiscard]] const Known& known(Rank rank) const { return known_[static_cast<size_t>(rank)]; }
  void excuse_all(Nanos now);
  [[nodiscard]] bool is_process_judged(Rank rank, Nanos now, Verdict& verdict) const;
  [[nodiscard]] Verdict late(Rank rank, const StalledTensor& wait, const StalledTensor* other,
                             Nanos now) const;
  void find_late(const std::vector<StalledTensor>& waits, std::map<Key, Verdict>& found, Nanos now) const;
  std::vector<Verdict> find_not_finite(Nanos now);
  std::vector<Verdict> find_slow_links(Nanos now);
  [[nodiscard]] int core_percent(Rank rank, Nanos since) const;
  [[nodiscard]] bool is_swapping(Rank rank) const;
  std::vector<Verdict> compare(const std::map<Key, Verdict>& found, Nanos now);

  Options options_;
  std::vector<Known> known_;  // [ranks]
  std::map<Key, Said> said_;
  LinkJudge links_;
  Nanos last_tick_, next_tick_;
  Nanos not_finite_since_ = 0;  // a rank has said so; 0 = none has
  bool has_said_not_finite_ = false;
};

}  // namespace rueda::control
