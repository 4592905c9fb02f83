// Ranks that are slow all the time: others wait for them in step after step, although no single wait is long
// enough for another verdict. Pure: events in (time included), verdicts out.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/types.h"
#include "rueda/control/straggler_detector.h"
#include "rueda/control/verdict.h"

namespace rueda::control {

class SlowRanks {
 public:
  // found: as StragglerDetector says now. told: ranks for which others wait for a reason that is already
  // said. Those are not called slow as well.
  std::vector<Verdict> tick(const std::vector<StragglerDetector::Straggler>& found,
                            const std::set<Rank>& told, Nanos now);

 private:
  struct Slow {
    Nanos since = 0;       // others have waited much ever since; 0: they do not
    Nanos seen = 0;        // when they did last
    Nanos waited = 0;      // in sum since then, until they did last
    Nanos said_at = 0;     // 0: never
    bool is_said = false;  // and not over
  };
  std::map<Rank, Slow> slow_;
};

}  // namespace rueda::control
