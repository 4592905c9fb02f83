// The transports that a rank may have, one row each. This table and base/transport_names.h are the only
// places outside transport/ that name one.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/config.h"
#include "rueda/base/status.h"
#include "rueda/runtime/peer_info.h"
#include "rueda/store/world.h"
#include "rueda/transport/transport.h"

namespace rueda::runtime {

// What a rank makes a transport from.
struct TransportSite {
  const Config& config;
  const transport::Identity& identity;
  const std::string& listen_host;  // numeric; set if the transport reaches other hosts
};

enum class TransportScope : uint8_t {
  kHost,     // ranks of one host, which also pass one another what they share
  kNetwork,  // any rank
};

struct TransportKind {
  std::string_view name;
  TransportScope scope;
  Result<std::unique_ptr<transport::Transport>> (*make)(const TransportSite& site);
};

// Best first: two ranks use the first kind that both have and that connects them.
std::span<const TransportKind> transport_kinds();

// A transport that this rank has opened.
struct OpenTransport {
  TransportScope scope = TransportScope::kNetwork;
  std::unique_ptr<transport::Transport> transport;
};

struct OpenTransports {
  std::vector<OpenTransport> list;  // best first
  std::string listen_host;          // of those that reach other hosts; empty: there are none
  // Why this rank shares no memory with its host although the settings allow it; else empty.
  std::string shared_memory_fault;

  [[nodiscard]] TransportAddresses addresses() const;  // for the peers
};

// Whether the settings allow a transport for the ranks of a host only.
bool allows_shared_memory(const Config& config);

// Opens the transports that the settings allow. Where memory cannot be shared, a rank goes without if it has
// a transport that reaches all others. shared: whether memory can be shared at all, or why not.
Result<OpenTransports> open_transports(const Config& config, const store::World& world,
                                       const transport::Identity& identity, const Status& shared);

// Whether the rank has a transport for the ranks of its host only.
bool offers_shared_memory(const PeerInfo& info);

}  // namespace rueda::runtime
