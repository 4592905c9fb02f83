#include "rueda/runtime/routes.h"

#include <algorithm>
#include <utility>

#include "rueda/base/check.h"
#include "rueda/base/transport_names.h"

namespace rueda::runtime {

Routes::Routes(std::vector<OpenTransport> transports, Rank me, const std::vector<PeerInfo>& all)
    : transports_(std::move(transports)), me_(me), all_(all), chosen_(all.size()) {}

Status Routes::choose(Rank peer) {
  const OpenTransport*& chosen = chosen_[static_cast<size_t>(peer)];
  if (chosen != nullptr) return Status::ok();
  const PeerInfo& info = all_[static_cast<size_t>(peer)];
  for (const OpenTransport& open : transports_) {
    const auto address = info.addresses.find(open.transport->name());
    if (address == info.addresses.end()) continue;
    if (open.scope == TransportScope::kHost && !are_on_one_host(all_, me_, peer)) continue;
    if (!open.transport->reaches(address->second)) continue;
    chosen = &open;
    return Status::ok();
  }
  return {Code::kUnavailable, "no transport reaches " + runtime::describe(peer, info) +
                                  "; allow tcp with RUEDA_TRANSPORTS=" + default_transports() + "."};
}

Status Routes::choose_all() {
  for (Rank peer = 0; peer < static_cast<Rank>(all_.size()); ++peer) {
    if (peer == me_) continue;
    if (Status s = choose(peer); !s.is_ok()) return s;
  }
  return Status::ok();
}

transport::Transport* Routes::to(Rank peer) const {
  const OpenTransport* const chosen = chosen_[static_cast<size_t>(peer)];
  return chosen == nullptr ? nullptr : chosen->transport.get();
}

Status Routes::connect(Rank peer, uint16_t channel) const {
  transport::Transport* const transport = to(peer);
  RUEDA_CHECK(transport != nullptr, "a transport is chosen before it is used");
  return transport->connect(peer, address(peer, *transport), channel);
}

std::string Routes::describe(Rank peer) const {
  const std::string rank = runtime::describe(peer, all_[static_cast<size_t>(peer)]);
  const transport::Transport* const transport = to(peer);
  if (transport == nullptr) return rank;
  return rank + " over " + std::string(transport->name()) + " at " + address(peer, *transport);
}

const std::string& Routes::address(Rank rank, const transport::Transport& transport) const {
  const TransportAddresses& addresses = all_[static_cast<size_t>(rank)].addresses;
  const auto found = addresses.find(transport.name());
  RUEDA_CHECK(found != addresses.end(), "a rank has an address in each of its transports");
  return found->second;
}

bool Routes::is_over_memory(Rank peer) const {
  const OpenTransport* const chosen = chosen_[static_cast<size_t>(peer)];
  return chosen != nullptr && chosen->scope == TransportScope::kHost;
}

Result<std::vector<Rank>> Routes::host_ranks() {
  if (Status s = choose_all(); !s.is_ok()) return s;
  std::vector<Rank> ranks;
  for (Rank peer = 0; peer < static_cast<Rank>(all_.size()); ++peer)
    if (peer == me_ || is_over_memory(peer)) ranks.push_back(peer);
  return ranks;
}

transport::Transport* Routes::of_host(const std::vector<Rank>& host_ranks) const {
  const Rank lowest = host_ranks.front();
  transport::Transport* const transport = to(lowest == me_ ? host_ranks.back() : lowest);
  RUEDA_CHECK(transport != nullptr, "ranks of a host are reached over its memory");
  return transport;
}

Status Routes::share(transport::HostShare host) const {
  transport::Transport* const transport = of_host(host.ranks);
  host.address_of_lowest = address(host.ranks.front(), *transport);
  return transport->share(std::move(host));
}

void Routes::watch_over(const std::vector<Rank>& host_ranks, std::span<uint32_t> ended,
                        std::shared_ptr<const void> memory) const {
  transport::Transport* const transport = of_host(host_ranks);
  transport::HostWatch host{.ranks = host_ranks, .ended = ended, .memory = std::move(memory)};
  const auto sees = [this](Rank rank) { return rank == me_ || share_pids(all_, me_, rank); };
  const bool see_one_another = std::ranges::all_of(host_ranks, sees);
  for (const Rank rank : host_ranks) {
    host.addresses.push_back(address(rank, *transport));
    if (see_one_another) host.pids.push_back(all_[static_cast<size_t>(rank)].pid);
  }
  transport->watch_over(std::move(host));
}

std::vector<Rank> Routes::awaited_shares() const {
  std::vector<Rank> awaited;
  for (const OpenTransport& open : transports_)
    for (const Rank peer : open.transport->awaited_shares()) awaited.push_back(peer);
  return awaited;
}

std::vector<UniqueFd> Routes::take_shared(Rank peer) const {
  transport::Transport* const transport = to(peer);
  return transport == nullptr ? std::vector<UniqueFd>() : transport->take_shared(peer);
}

}  // namespace rueda::runtime
