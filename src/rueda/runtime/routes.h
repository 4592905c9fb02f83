// The transports of this rank, and which of them leads to which other rank: the first that both have and that
// connects them. Both ranks of a pair make the same choice, because they go through the transports in the
// same order. Chosen during init and constant afterwards. Used by Links.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/base/unique_fd.h"
#include "rueda/runtime/peer_info.h"
#include "rueda/runtime/transports.h"
#include "rueda/transport/transport.h"

namespace rueda::runtime {

class Routes {
 public:
  // transports: best first. all: the peer info of every rank; outlives this object.
  Routes(std::vector<OpenTransport> transports, Rank me, const std::vector<PeerInfo>& all);

  [[nodiscard]] std::span<const OpenTransport> transports() const { return transports_; }
  Status choose(Rank peer);
  Status choose_all();
  [[nodiscard]] transport::Transport* to(Rank peer) const;  // null: not chosen
  Status connect(Rank peer, uint16_t channel) const;        // it is chosen
  // The rank and where it is looked for: "rank 1 (host a, pid 101) over tcp at 10.0.0.1:4000".
  [[nodiscard]] std::string describe(Rank peer) const;

  // The ranks of this host with which this one shares memory, itself among them, ascending.
  Result<std::vector<Rank>> host_ranks();
  // The transport of those, which are more than this rank alone.
  [[nodiscard]] transport::Transport* of_host(const std::vector<Rank>& host_ranks) const;
  Status share(transport::HostShare host) const;  // Transport::share
  // Transport::watch_over. ended: in that memory.
  void watch_over(const std::vector<Rank>& host_ranks, std::span<uint32_t> ended,
                  std::shared_ptr<const void> memory) const;
  [[nodiscard]] std::vector<Rank> awaited_shares() const;  // Transport::awaited_shares
  std::vector<UniqueFd> take_shared(Rank peer) const;      // Transport::take_shared

 private:
  // The address of that rank in a transport that it has.
  [[nodiscard]] const std::string& address(Rank rank, const transport::Transport& transport) const;
  [[nodiscard]] bool is_over_memory(Rank peer) const;

  std::vector<OpenTransport> transports_;
  Rank me_;
  const std::vector<PeerInfo>& all_;
  std::vector<const OpenTransport*> chosen_;  // [world rank]; null: not chosen
};

}  // namespace rueda::runtime
