#include "launch/elastic_hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "rueda/base/counted.h"

namespace rueda::launch {

ElasticHosts::ElasticHosts(const ElasticOptions& options, Say say, Reach reach)
    : options_(options), say_(std::move(say)), reach_(std::move(reach)) {
  if (!options_.discovery_script.empty())
    discovery_.emplace(options_.discovery_script, options_.default_slots);
}

void ElasticHosts::watch(PollSet& set) {
  if (discovery_) discovery_->watch(set);
}

// A script that fails or says too little changes nothing. Each trouble is told once.
void ElasticHosts::discover(Nanos now) {
  if (!discovery_) return;
  const auto found = discovery_->tick(now);
  if (!found) return;
  std::string trouble = found->is_ok() ? "" : found->status().why;
  const int slots = found->is_ok() ? count_slots(found->value()) : 0;
  if (trouble.empty() && slots < options_.least)
    trouble = fmt::format("the discovery script {} names {}, fewer than --min-np {}",
                          options_.discovery_script, counted(slots, "slot"), options_.least);
  if (trouble != trouble_ && !trouble.empty()) say_(trouble + "; the hosts stay as they were");
  trouble_ = std::move(trouble);
  if (!trouble_.empty()) return;
  wanted_ = found->value();
  std::erase_if(leaving_, [this](const std::string& host) {
    return std::ranges::find(wanted_, host, &HostSlots::name) == wanted_.end();
  });
}

std::vector<HostSlots> ElasticHosts::staying() const {
  std::vector<HostSlots> staying;
  const auto stays = [this](const HostSlots& host) { return !is_leaving(host.name); };
  const auto has_joined = [this](const HostSlots& host) {
    return std::ranges::find(joined_, host.name, &HostSlots::name) != joined_.end();
  };
  std::ranges::copy_if(wanted_, std::back_inserter(staying),
                       [&](const HostSlots& host) { return stays(host) && !has_joined(host); });
  std::ranges::copy_if(joined_, std::back_inserter(staying), stays);
  return staying;
}

void ElasticHosts::on_joined(const std::string& host, int slots) {
  std::erase_if(joined_, [&](const HostSlots& one) { return one.name == host; });
  joined_.push_back({host, slots});
  leaving_.erase(host);
}

// Where agents may join, others may come.
bool ElasticHosts::on_leaving(const std::string& host) {
  leaving_.insert(host);
  return !staying().empty() || !options_.accept_agents.empty();
}

bool ElasticHosts::tick(Nanos now) {
  discover(now);
  std::vector<HostSlots> reached;
  for (const HostSlots& host : staying())
    if (reach_(host.name)) reached.push_back(host);
  if (reached == offered_) return false;
  offered_ = std::move(reached);
  return true;
}

}  // namespace rueda::launch
