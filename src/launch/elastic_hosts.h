// The hosts of an elastic job: those that were given or that a script names, without those that were told to
// go and those that cannot be reached. One thread; running the script is its only effect.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/host_discovery.h"
#include "launch/hosts.h"
#include "launch/job_options.h"

namespace rueda::launch {

class ElasticHosts {
 public:
  using Say = std::function<void(const std::string& sentence)>;
  // Whether processes can start on this host now. If not, its agent is started, and may answer later.
  using Reach = std::function<bool(const std::string& host)>;
  ElasticHosts(const ElasticOptions& options, Say say, Reach reach);

  void begin(const std::vector<HostSlots>& hosts) { wanted_ = offered_ = hosts; }
  void watch(PollSet& set);
  // Whether others can be used than before.
  bool tick(Nanos now);
  [[nodiscard]] const std::vector<HostSlots>& offered() const { return offered_; }
  [[nodiscard]] Nanos next() const { return discovery_ ? discovery_->next() : 0; }
  [[nodiscard]] bool are_discovered() const { return discovery_.has_value(); }

  // An agent has called by itself, and offers so many slots.
  void on_joined(const std::string& host, int slots);
  // This host was told to go. It is not used again until a script has left it out and names it again. Returns
  // false if no other is left.
  bool on_leaving(const std::string& host);
  [[nodiscard]] bool is_leaving(const std::string& host) const { return leaving_.contains(host); }

 private:
  void discover(Nanos now);
  [[nodiscard]] std::vector<HostSlots> staying() const;

  const ElasticOptions& options_;
  Say say_;
  Reach reach_;
  std::optional<HostDiscovery> discovery_;
  std::vector<HostSlots> wanted_, offered_;  // as the script says; of these, those with agents
  std::vector<HostSlots> joined_;
  std::set<std::string> leaving_;
  std::string trouble_;  // what was said about the script last
};

}  // namespace rueda::launch
