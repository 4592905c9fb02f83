// How a rank finds rank 0 where only a host is known, or a host and a port: it dials until a store of its own
// job answers. Whoever listens there says why it is not that store, if it is not.
#pragma once

#include <span>
#include <string>

#include "rueda/store/interrupted.h"
#include "rueda/store/tcp_store.h"
#include "rueda/store/world.h"

namespace rueda::store {

// What every rendezvous method needs. Borrowed for one call of open_rendezvous.
struct Attempt {
  const World& world;
  const std::string& interface;
  const std::string& release;
  Deadline deadline;
  const Interrupted& is_interrupted;

  [[nodiscard]] TcpSite site_at(const std::string& host, int port, const Secret& secret) const {
    return {.host = host,
            .port = port,
            .job = world.job,
            .secret = secret,
            .release = release,
            .caller = "rank " + std::to_string(world.rank) + " on " + world.host,
            .is_launchers = world.is_store_served,
            .rank = world.rank};
  }
  [[nodiscard]] bool is_one_host() const { return world.local_size == world.size; }
};

// Where rank 0 listens, once its host has a name. Waits for that.
Result<std::string> address_of_rank_0(const Attempt& attempt, const std::string& host);

// One attempt to reach the store there. Ranks of one host share a connection to a store on another one.
Result<std::unique_ptr<Store>> dial_from_host(const Attempt& attempt, const TcpSite& site, Deadline deadline,
                                              HandshakeOutcome& refused);

// Tries every port of the host, again and again, until the deadline.
Result<Rendezvous> find_rank_0(const Attempt& attempt, const std::string& host, std::span<const int> ports,
                               const Secret& secret);

}  // namespace rueda::store
