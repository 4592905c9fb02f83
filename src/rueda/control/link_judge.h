// Names slow links while the job runs, from what every rank says that it has sent to other hosts (facts.h).
// What counts as slow is decided by trace/link_speeds.h, as in `rueda timeline summary`; this class says it
// once, and once more when it is over. Both are said only when bytes that moved later show the same once
// more: on a busy machine one message may be late by chance. Pure: events in (time included), news out.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/types.h"
#include "rueda/control/facts.h"
#include "rueda/trace/link_speeds.h"

namespace rueda::control {

class LinkJudge {
 public:
  struct News {
    trace::SlowLink link;  // its ends are hosts, each named by its first rank
    bool is_over = false;
    Nanos age = 0;  // of what is over
  };
  // hosts: by rank, the first rank of its host.
  explicit LinkJudge(std::vector<Rank> hosts) : hosts_(std::move(hosts)) {}

  void on_facts(Rank from, const std::vector<LinkFact>& links, Nanos now);
  std::vector<News> tick(Nanos now);

 private:
  using Link = std::pair<Rank, Rank>;
  struct Sample {
    Nanos when = 0;
    trace::LinkTotal total;
  };
  struct Suspect {
    trace::SlowLink link;
    Nanos since = 0;       // it has been slow, as far as its speed was known
    Nanos seen = 0;        // last
    Nanos fast_since = 0;  // 0: it is slow
    Nanos said_at = 0;     // last; 0: never
    bool is_said = false;  // and not over
  };
  // Both ends of a link tell what they know, each at times of its own.
  enum class Teller : uint8_t { kSender, kReceiver };
  static Sample between(const Sample& before, const Sample& after, Nanos when);
  void forget(Nanos now);
  [[nodiscard]] trace::LinkTotals totals_since(Nanos when) const;
  void see(const std::vector<trace::SlowLink>& slow, Nanos now);
  [[nodiscard]] bool is_told_of(Rank end) const;
  [[nodiscard]] bool has_told_pair(Rank end) const;
  [[nodiscard]] bool is_doubted(Rank end, Nanos now) const;
  [[nodiscard]] std::optional<trace::SlowLink> certain(const Link& key, const Suspect& one, Nanos now) const;
  [[nodiscard]] bool is_certainly_over(const Link& key, const Suspect& one, Nanos now) const;

  std::vector<Rank> hosts_;
  // By (from, to), ranks, and who has told; of 30 s, oldest first.
  std::map<std::pair<Link, Teller>, std::deque<Sample>> samples_;
  std::map<Link, Suspect> suspects_;  // by the ends of the link; (end, -1): all links of it
  Nanos next_ = 0;
};

}  // namespace rueda::control
