// When the agent of a host that was lost is started again, in an elastic job: after 1, 2, 4 … 60 s. Pure.
#pragma once

#include <algorithm>
#include <map>
#include <string>

#include "launch/slots.h"
#include "rueda/base/clock.h"

namespace rueda::launch {

class AgentTries {
 public:
  // The agent of this host has ended, or never came. Once for each agent.
  // Returns whether the user is to be told: the reason is not the one of the last time.
  bool on_lost(const std::string& host, const std::string& why, Nanos now) {
    Tries& tries = hosts_[host];
    tries.again_at = now + std::min(kLongestRest, kFirstRest << std::min(tries.count++, 6));
    const bool is_news = why != tries.why;
    tries.why = why;
    return is_news;
  }
  void on_success(const std::string& host) { hosts_.erase(host); }
  // The next agent may be started, and then on_lost may be called again.
  bool begins(const std::string& host, Nanos now) {
    Tries& tries = hosts_[host];
    if (tries.again_at == 0 || now < tries.again_at) return false;
    tries.again_at = 0;
    return true;
  }
  // on_lost was called, and begins() not since.
  [[nodiscard]] bool rests(const std::string& host) const {
    const auto tries = hosts_.find(host);
    return tries != hosts_.end() && tries->second.again_at != 0;
  }

 private:
  struct Tries {
    int count = 0;
    Nanos again_at = 0;  // 0: one is under way
    std::string why;
  };
  std::map<std::string, Tries> hosts_;
};

}  // namespace rueda::launch
