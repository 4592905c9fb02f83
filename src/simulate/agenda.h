// Virtual time: what is to happen, and when. Deterministic: equal times keep their order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "rueda/base/clock.h"

namespace rueda::simulate {

class Agenda {
 public:
  [[nodiscard]] Nanos now() const { return now_; }
  // Never before now().
  void at(Nanos when, std::function<void()> what) {
    events_.push({.when = std::max(when, now_), .order = next_order_++, .what = std::move(what)});
  }
  [[nodiscard]] Nanos next() const { return events_.empty() ? INT64_MAX : events_.top().when; }
  void move_to(Nanos when) { now_ = std::max(now_, when); }
  // Lets the next one happen. There must be one.
  void run_next() {
    move_to(events_.top().when);
    const std::function<void()> what = events_.top().what;
    events_.pop();
    what();
  }

 private:
  struct Event {
    Nanos when = 0;
    uint64_t order = 0;
    std::function<void()> what;
    bool operator>(const Event& other) const {
      return std::tie(when, order) > std::tie(other.when, other.order);
    }
  };
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t next_order_ = 0;
  Nanos now_ = 0;
};

}  // namespace rueda::simulate
