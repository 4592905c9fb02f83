// Which marks end the steps of a training. A program may have several optimizers, and each marks its steps:
// of two in use at the same time (a generator and a discriminator) the one that marked first counts; one that
// first marks after the last mark of another goes on with the count (a second training in the same program).
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "rueda/base/clock.h"

namespace rueda::timeline {

struct Steps {
  int64_t marks = 0;  // of the sources that count
  Nanos first_mark = 0, last_mark = 0;
  std::set<int64_t> sources;

  [[nodiscard]] bool is_mark_of(int64_t source) const { return sources.contains(source); }
};

class StepSources {
 public:
  // In the order of the marks.
  void add(int64_t source, Nanos when);
  [[nodiscard]] Steps steps() const;

 private:
  struct Marks {
    int64_t count = 0;
    Nanos first = 0, last = 0;
  };
  std::map<int64_t, Marks> marks_;
};

}  // namespace rueda::timeline
