// How the ranks of one host give one another the descriptors that they share. Each rank passes its own to the
// lowest of them, its leader, which passes all of them on when they are complete: n connections, which end
// with it, where ranks that passed them to one another would need n². Engine thread only.
//
// All know from the table of ranks how many each of them gives. The leader gives one at least.
//
//   rank -> leader: one message with its descriptors, or with none
//   leader -> rank: messages with the descriptors of all others, by rank, as many whole ranks as fit into one
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/base/unique_fd.h"
#include "rueda/transport/poller.h"
#include "rueda/transport/requests.h"
#include "rueda/transport/transport.h"

namespace rueda::transport {

// The channel number of its connections, beyond those that carry messages.
inline constexpr uint16_t kBoardChannel = 15;

class Board {
 public:
  Board(Rank me, Poller& poller, Outcome& outcome);
  ~Board();

  void begin(HostShare host);
  // A connection whose other end has proved to be that rank. It may come before begin().
  void adopt(Rank peer, UniqueFd socket);
  // To be called after the poller was polled. Returns whether anything has moved.
  bool progress();
  // Whose descriptors are missing, as far as this rank can know: where it is not the leader, it is the
  // leader.
  [[nodiscard]] std::vector<Rank> missing() const;
  [[nodiscard]] bool is_over() const {  // nothing is missing, and no connection is open
    return open_ == 0 && awaited_.empty();
  }
  [[nodiscard]] bool has_work() const;  // progress() has something to do without a new event
  // What the peer has passed; once.
  std::vector<UniqueFd> take(Rank peer);
  void end();  // closes every connection

 private:
  struct Member {
    UniqueFd socket;
    Watch watch;
    std::vector<UniqueFd> given;
    size_t told = 0;  // leader: ranks whose descriptors have been passed on to this one
  };
  [[nodiscard]] const std::vector<Rank>& ranks() const { return host_.ranks; }
  [[nodiscard]] bool is_leader() const { return !ranks().empty() && ranks().front() == me_; }
  [[nodiscard]] bool is_of_host(Rank rank) const;
  // How many descriptors that rank of the host gives.
  [[nodiscard]] size_t count_of(Rank rank) const;
  void close(Member& member);
  void lose(Rank peer, Member& member, const Status& why);
  bool read_gift(Rank peer, Member& member);  // leader
  bool pass_on(Rank peer, Member& member);    // leader
  bool read_all(Rank peer, Member& member);   // of the leader
  void sort_out();                            // what the leader has passed on

  Rank me_;
  Poller& poller_;
  Outcome& outcome_;
  HostShare host_;  // without ranks: not begun
  std::map<Rank, Member> members_;
  size_t open_ = 0;               // of their connections
  std::vector<Rank> awaited_;     // leader: who has not given; another rank: all others, until all is there
  std::vector<UniqueFd> passed_;  // by the leader so far
  size_t expected_ = 0;           // of those
};

}  // namespace rueda::transport
