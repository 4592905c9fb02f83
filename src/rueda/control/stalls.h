// Reports tensors that some ranks have submitted and others have not. Pure. The format is Horovod's, because
// people and scripts know it, with one more line for each tensor.
#pragma once

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/types.h"

namespace rueda::control {

struct StallReport {
  std::string text;        // in full
  std::string short_text;  // one sentence: for the other ranks, and for rank 0 if nothing is new
  bool is_news = true;     // names a tensor that the report before did not name
  bool is_fatal = false;   // the shutdown time has passed: end the job with kStalled
};

struct StalledTensor {
  std::string name;
  std::string_view operation;  // "ALLREDUCE"
  int32_t process_set = 0;
  Nanos age = 0;                   // since the first rank submitted it
  std::vector<Rank> missing;       // world ranks, ascending
  std::vector<Rank> waiting = {};  // those that have submitted it, as they came
};

// Decides whether, when and what to report: at most one report per warning interval.
class StallWatch {
 public:
  struct Options {
    bool is_disabled = false;
    Nanos warning = 60 * kSecond;
    Nanos shutdown = 0;  // 0 = never
  };
  static constexpr Nanos kNobody = std::numeric_limits<Nanos>::max();

  explicit StallWatch(const Options& options) : options_(options) {}
  // When the next check is due. oldest: since when the oldest request waits; kNobody if none waits.
  [[nodiscard]] Nanos next_check(Nanos oldest, Nanos now) const;
  [[nodiscard]] bool is_due(Nanos oldest, Nanos now) const {
    return !options_.is_disabled && now >= next_check(oldest, now);
  }
  // The least age of a tensor in a report. A tensor that is a little younger than the stalled ones
  // often explains them.
  [[nodiscard]] Nanos least_age() const { return options_.warning - options_.warning / 10; }
  // waiting: what has waited for least_age() or longer.
  std::vector<StallReport> check(const std::vector<StalledTensor>& waiting, Nanos now);

 private:
  bool is_news(const std::vector<StalledTensor>& tensors, Nanos now);

  Options options_;
  Nanos last_check_ = std::numeric_limits<Nanos>::min() / 2;
  // What the last report named: process set, name, and since when it waits. A later wait under the same name
  // is another wait.
  std::set<std::tuple<int32_t, std::string, Nanos>> named_;
};

}  // namespace rueda::control
