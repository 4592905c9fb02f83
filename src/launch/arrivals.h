// Which ranks have come to init, on the way from the store's thread to the loop of the launcher.
#pragma once

#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "rueda/store/arrived.h"

namespace rueda::launch {

class Arrivals {
 public:
  // Any thread.
  void on_set(std::string_view key, std::string_view value) {
    const std::vector<Rank> ranks = store::parse_arrivals(key, value);
    if (ranks.empty()) return;
    const std::scoped_lock lock(mutex_);
    came_.insert(came_.end(), ranks.begin(), ranks.end());
  }

  // The loop's thread.
  std::vector<Rank> take() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(came_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<Rank> came_;
};

}  // namespace rueda::launch
