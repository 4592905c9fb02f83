#include "launch/elastic_processes.h"

#include <fmt/format.h>

#include <csignal>

namespace rueda::launch {
namespace {

membership::Uid uid_of(const Slots::Place& place) {
  return fmt::format("{}:{}#{}", place.host, place.slot, place.life);
}

}  // namespace

ElasticProcess& ElasticProcesses::add(const Slots::Place& place, Nanos now) {
  numbers_.emplace(uid_of(place), size());
  return processes_.emplace_back(ElasticProcess{.place = place, .uid = uid_of(place), .started = now});
}

std::optional<int> ElasticProcesses::number_of(const membership::Uid& uid) const {
  const auto found = numbers_.find(uid);
  return found == numbers_.end() ? std::nullopt : std::optional(found->second);
}

const ElasticProcess& ElasticProcesses::of(const membership::Member& member) const {
  return at(number_of(member.uid).value());
}

Ending ElasticProcesses::corrected(Ending ending) const {
  const ElasticProcess& process = at(ending.rank);
  if (!process.ended_because.empty() && ending.signal == SIGKILL)
    ending.trouble = "was ended by rueda: " + process.ended_because;
  return ending;
}

}  // namespace rueda::launch
