// What the user is told while a job starts slowly: who is missing. Pure.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/types.h"

namespace rueda::launch {

// When the next line is due. The first one after five seconds; lines in a log become rarer, and a line of a
// terminal, which is rewritten in place, is kept up to date.
class NoticePace {
 public:
  explicit NoticePace(bool is_terminal = false) : is_terminal_(is_terminal) {}
  bool is_due(Nanos waited);  // true: the line is shown now

 private:
  bool is_terminal_;
  Nanos next_ = 5 * kSecond;
};

// The first few of them and how many more: "a, b and 510 more".
std::string shortened(std::span<const std::string> names, std::string_view between = ", ");

// Which ranks have come to init. Ranks of a program that never calls init are not waited for.
class InitWatch {
 public:
  InitWatch() = default;
  InitWatch(int size, bool is_terminal) : has_arrived_(static_cast<size_t>(size)), pace_(is_terminal) {}

  void on_arrival(Rank rank, Nanos now);
  void end() { is_over_ = true; }  // all have come, or one never will
  [[nodiscard]] bool is_over() const { return is_over_; }
  // "still waiting for 3 of 8 ranks in init after 7 s: 1 on a, 4-5 on b (…)", or "". Whether a rank that is
  // missing has not called init or cannot connect is not known here.
  std::string notice(const std::function<std::string_view(Rank)>& host_of, Nanos now);

 private:
  std::vector<bool> has_arrived_;
  int arrived_ = 0;
  Nanos first_ = 0;  // when the first rank came
  bool is_over_ = false;
  NoticePace pace_;
};

}  // namespace rueda::launch
