#include "launch/slots.h"

#include <algorithm>

namespace rueda::launch {

Slots::Host* Slots::find(const std::string& name) {
  const auto at = std::ranges::find(hosts_, name, &Host::name);
  return at == hosts_.end() ? nullptr : &*at;
}

void Slots::offer(const std::vector<HostSlots>& hosts) {
  for (Host& one : hosts_) one.offered = 0;
  for (const HostSlots& given : hosts) {
    if (find(given.name) == nullptr) hosts_.push_back({.name = given.name, .slots = {}});
    Host& host = *find(given.name);
    host.offered = given.slots;
    if (std::ssize(host.slots) < given.slots) host.slots.resize(static_cast<size_t>(given.slots));
  }
  for (Host& one : hosts_) one.is_lost = one.is_lost && one.offered > 0;
}

void Slots::lose(const std::string& host) {
  if (Host* const lost = find(host)) lost->is_lost = lost->offered > 0;  // else it is missing already
}

void Slots::rest(const std::string& name, Nanos now) {
  Host* const host = find(name);
  if (host == nullptr || host->rests_until > now) return;
  host->rests_until = now + std::min(kLongestCutRest, kCutRest << std::min(host->cuts++, 4));
}

void Slots::join(const std::string& name) {
  if (Host* const host = find(name)) host->cuts = 0;
}

std::optional<Slots::Place> Slots::take(Nanos now) {
  for (Host& host : hosts_)
    for (int i = 0; i < host.offered && !host.is_lost && host.rests_until <= now; ++i) {
      Slot& slot = host.slots[static_cast<size_t>(i)];
      if (slot.is_taken || slot.rests_until > now) continue;
      slot.is_taken = true;
      return Place{.host = host.name, .slot = i, .life = slot.lives++};
    }
  return std::nullopt;
}

void Slots::end(const Place& place, bool has_failed, Nanos lived, Nanos now) {
  Host* const host = find(place.host);
  if (host == nullptr) return;
  Slot& slot = host->slots[static_cast<size_t>(place.slot)];
  slot.is_taken = false;
  if (lived >= kLongestRest) slot.failures = 0;
  if (!has_failed) return;
  slot.rests_until = now + std::min(kLongestRest, kFirstRest << std::min(slot.failures, 6));
  ++slot.failures;
}

int Slots::taken() const {
  int count = 0;
  for (const Host& host : hosts_)
    for (int i = 0; i < host.offered && !host.is_lost; ++i)
      count += host.slots[static_cast<size_t>(i)].is_taken ? 1 : 0;
  return count;
}

int Slots::offered() const {
  int count = 0;
  for (const Host& host : hosts_) count += host.is_lost ? 0 : host.offered;
  return count;
}

bool Slots::is_offered(const Place& place) const {
  const auto host = std::ranges::find(hosts_, place.host, &Host::name);
  return host != hosts_.end() && place.slot < host->offered;
}

Nanos Slots::next(Nanos now) const {
  Nanos next = 0;
  for (const Host& host : hosts_)
    for (int i = 0; i < host.offered && !host.is_lost; ++i) {
      const Slot& slot = host.slots[static_cast<size_t>(i)];
      const Nanos rested = std::max(slot.rests_until, host.rests_until);
      if (!slot.is_taken && rested > now && (next == 0 || rested < next)) next = rested;
    }
  return next;
}

}  // namespace rueda::launch
