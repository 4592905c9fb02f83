// When the log names a rank that is late in step after step: the first time, again after five minutes, with
// the number of times and the sum of the waits so far, and once when it is over, which is when others have
// not waited for it for three times as long as makes a rank late. Pure: events in (time included), verdicts
// out.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/types.h"
#include "rueda/control/verdict.h"

namespace rueda::control {

class LateRanks {
 public:
  // limit: for so long others wait before a rank is late.
  explicit LateRanks(Nanos limit) : limit_(limit) {}

  // found: by rank, those that are late now. held: ranks whose processes do not run. They are not late for
  // that, and the waits for them go on.
  std::vector<Verdict> tick(const std::map<Rank, Verdict>& found, const std::set<Rank>& held, Nanos now);

 private:
  struct Late {
    Verdict verdict;               // what was said last
    bool is_said = false;          // and not over
    std::map<Fault, Nanos> said;   // when each class was said last
    Nanos said_at = 0;             // the last of these times
    Nanos began = 0;               // the first wait
    int64_t times = 0;             // waits
    Nanos waited = 0;              // in all waits before this one
    Nanos longest = 0;             // of these
    Nanos wait_began = 0;          // this one, or the last one
    Nanos wait_age = 0, seen = 0;  // when it was last seen
    bool is_wait_said = false;
  };
  void see(Late& late, const Verdict& verdict, Nanos now) const;
  [[nodiscard]] static bool is_news(const Late& late, const Verdict& verdict, Nanos now);
  [[nodiscard]] static Verdict with_sums(const Late& late, Verdict verdict);

  Nanos limit_;
  std::map<Rank, Late> late_;
};

}  // namespace rueda::control
