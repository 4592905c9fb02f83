// The report about tensors that some ranks submitted and others did not. Pure; the shape is the one operators
// of Horovod know, with the tensors' own lines added.
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
  std::string short_text;  // one sentence: for the other ranks, and for rank 0 where nothing is new
  bool is_news = true;     // names a tensor that no earlier report of this wait has named
  bool is_fatal = false;   // the shutdown time passed: end the job with kStalled
};

struct StalledTensor {
  std::string name;
  std::string_view operation;  // "ALLREDUCE"
  int32_t process_set = 0;
  Nanos age = 0;              // since the first rank submitted it
  std::vector<Rank> missing;  // world ranks, ascending
};

// Whether, when and what to report. At most one report per warning interval.
class StallWatch {
 public:
  struct Options {
    bool is_disabled = false;
    Nanos warning = 60 * kSecond;
    Nanos shutdown = 0;  // 0 = never
  };
  static constexpr Nanos kNobody = std::numeric_limits<Nanos>::max();

  explicit StallWatch(const Options& options) : options_(options) {}
  // When the next check is due. oldest: since when the oldest request waits; kNobody: none does.
  [[nodiscard]] Nanos next_check(Nanos oldest, Nanos now) const;
  [[nodiscard]] bool is_due(Nanos oldest, Nanos now) const {
    return !options_.is_disabled && now >= next_check(oldest, now);
  }
  // What a report lists: it is often a little younger than what is reported, and explains it.
  [[nodiscard]] Nanos least_age() const { return options_.warning - options_.warning / 10; }
  // A check. waiting: what has waited for least_age() or longer.
  std::vector<StallReport> check(const std::vector<StalledTensor>& waiting, Nanos now);

 private:
  bool is_news(const std::vector<StalledTensor>& tensors, Nanos now);

  Options options_;
  Nanos last_check_ = std::numeric_limits<Nanos>::min() / 2;
  // What the last report named: process set, name and since when. A later wait under the same name is another
  // one.
  std::set<std::tuple<int32_t, std::string, Nanos>> named_;
};

}  // namespace rueda::control
