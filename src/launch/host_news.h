// What the launcher has heard from the agents about the processes of their ranks, for the ranks of all hosts.
// Pure.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/status/job_news.h"

namespace rueda::launch {

class HostNews {
 public:
  // From the agent of a host that has these ranks. Refuses what is not about them.
  Status on_held(const std::string& host, const std::vector<Rank>& ranks, std::span<const std::byte> payload);
  struct Host {
    std::string name;
    std::vector<Rank> ranks;
    bool is_silent = false;  // its agent has not been heard of for some seconds
  };
  // What the ranks are told. An agent that is silent says nothing about processes any more.
  [[nodiscard]] status::JobNews news(std::span<const Host> hosts) const;

 private:
  std::map<std::string, std::vector<status::HeldProcess>> held_;  // by host
};

}  // namespace rueda::launch
