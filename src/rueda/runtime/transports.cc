#include "rueda/runtime/transports.h"

#include <algorithm>
#include <array>

#include "rueda/base/clock.h"
#include "rueda/base/transport_names.h"
#include "rueda/transport/shm/shm.h"
#include "rueda/transport/tcp/tcp.h"
#include "rueda/transport/ucx/ucx.h"

namespace rueda::runtime {
namespace {

using Made = Result<std::unique_ptr<transport::Transport>>;

Nanos peer_timeout(const Config& config) { return nanos(config.peer_timeout_s, kSecond); }

Made make_shm(const TransportSite& site) {
  return transport::make_shm(
      {.identity = site.identity, .ring_bytes = static_cast<size_t>(site.config.shm_ring_bytes)});
}

Made make_tcp(const TransportSite& site) {
  transport::TcpOptions options;
  options.identity = site.identity;
  options.bind_host = site.listen_host;
  options.peer_timeout = peer_timeout(site.config);
  return transport::make_tcp(std::move(options));
}

Made make_ucx(const TransportSite& site) {
  transport::UcxOptions options;
  options.identity = site.identity;
  options.bind_host = site.listen_host;
  options.peer_timeout = peer_timeout(site.config);
  return transport::make_ucx(std::move(options));
}

constexpr auto kKinds = std::to_array<TransportKind>({
    {"shm", TransportScope::kHost, make_shm},
    {"ucx", TransportScope::kNetwork, make_ucx},
    {"tcp", TransportScope::kNetwork, make_tcp},
});

static_assert(std::ranges::equal(kKinds, kTransportNames, {}, &TransportKind::name),
              "base/transport_names.h lists the same names in the same order");

bool allows(const Config& config, std::string_view transport) {
  std::string_view rest = config.transports;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    if (rest.substr(0, comma) == transport) return true;
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return false;
}

bool allows(const Config& config, TransportScope scope) {
  return std::ranges::any_of(kKinds, [&config, scope](const TransportKind& kind) {
    return kind.scope == scope && allows(config, kind.name);
  });
}

}  // namespace

std::span<const TransportKind> transport_kinds() { return kKinds; }

TransportAddresses OpenTransports::addresses() const {
  TransportAddresses all;
  for (const OpenTransport& open : list) all.emplace(open.transport->name(), open.transport->address());
  return all;
}

bool allows_shared_memory(const Config& config) { return allows(config, TransportScope::kHost); }

Result<OpenTransports> open_transports(const Config& config, const store::World& world,
                                       const transport::Identity& identity, const Status& shared) {
  OpenTransports opened;
  for (const TransportKind& kind : transport_kinds()) {
    if (!allows(config, kind.name)) continue;
    if (kind.scope == TransportScope::kNetwork && opened.listen_host.empty()) {
      const bool is_local = world.local_size == world.size;
      Result<std::string> host =
          store::choose_address(config.interface, is_local ? "127.0.0.1" : store::rendezvous_host(world));
      if (!host.is_ok()) return host.status();
      opened.listen_host = std::move(host).value();
    }
    const bool is_for_host = kind.scope == TransportScope::kHost;
    Made made =
        is_for_host && !shared.is_ok() ? Made(shared) : kind.make({config, identity, opened.listen_host});
    if (!made.is_ok() && is_for_host && allows(config, TransportScope::kNetwork)) {
      opened.shared_memory_fault = made.status().why;
      continue;
    }
    if (!made.is_ok() && is_for_host)
      return Status(made.status().code,
                    made.status().why + " Allow tcp with RUEDA_TRANSPORTS=" + default_transports() + ".");
    if (!made.is_ok()) return made.status();
    opened.list.push_back({kind.scope, std::move(made).value()});
  }
  return opened;
}

bool offers_shared_memory(const PeerInfo& info) {
  return std::ranges::any_of(transport_kinds(), [&info](const TransportKind& kind) {
    return kind.scope == TransportScope::kHost && info.addresses.contains(kind.name);
  });
}

}  // namespace rueda::runtime
