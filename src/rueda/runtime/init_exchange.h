// How the ranks of a job find one another before they are connected: one rendezvous point per process, one
// numbered exchange per init. A failure of one rank reaches all ranks of its exchange, and all report the
// first one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/runtime/peer_info.h"
#include "rueda/store/world.h"

namespace rueda::runtime {

// A rank that the last epoch of this process lost, and how long the next init waits for its successor.
struct LostRank {
  Rank rank = -1;
  Rank size = 0;    // of the world that lost it
  std::string who;  // "rank 3 (host b, pid 4711)"
};
inline constexpr Nanos kReturnTime = 10 * kSecond;

Status not_back(const LostRank& lost, Nanos waited);

// What outlives one init within a process: the store, and the number of the last exchange. Used by one thread
// at a time.
class RendezvousPoint {
 public:
  // Fills in what only the launcher knows. It answers a process once, so the answer is kept.
  Result<store::World> complete(store::World detected, Deadline deadline);
  // Opens the rendezvous, or keeps it where the job is the one of the last call and this process still serves
  // it, or still does not. Ranks may have other numbers, and the world another size, than at the last call.
  Status open(const store::World& world, const std::string& interface, Deadline deadline);
  [[nodiscard]] store::Rendezvous& rendezvous() { return rendezvous_; }

  // The number of the next exchange. Rank 0 chooses it and announces it in the store; the others wait for it.
  // No process meets twice under one number, and a process that is new to the job learns where it stands.
  Result<Epoch> next_number(Deadline deadline);
  // The same where there is nobody to meet.
  Epoch next_alone() { return ++number_; }
  // Rank 0, when all have met: who comes from now on waits for the next exchange.
  void close_exchange();
  // A rank whose own settings are wrong tells the others, who may not have come yet.
  void refuse(const Status& why);

  void note_loss(LostRank lost) { lost_ = std::move(lost); }
  void forget_loss() { lost_.reset(); }
  // Null where this world has lost nobody.
  [[nodiscard]] const LostRank* loss(const store::World& world) const;

 private:
  Result<Epoch> choose_number(Deadline deadline);
  Result<Epoch> await_number(bool is_refusal_told, Deadline deadline);
  Epoch first_missed(Epoch announced, bool& is_refusal_told, Deadline deadline);
  void look_elsewhere();

  std::string detected_;  // identity of the world that completed_ completes
  store::World completed_;
  store::World world_;  // that rendezvous_ serves
  std::string interface_;
  store::Rendezvous rendezvous_;
  Epoch number_ = 0;
  Epoch last_closed_ = 0;  // rank 0
  bool has_left_refusal_ = false;
  std::optional<LostRank> lost_;
};

// One exchange: the peer info of every rank, and the wait for others that notices when one of them gave up.
class InitExchange {
 public:
  // lost, if not null, is a rank whose successor has return_time to come.
  InitExchange(store::Store& store, Epoch number, Rank me, Rank size, Deadline deadline,
               const LostRank* lost = nullptr, Nanos return_time = kReturnTime);

  Status publish(const PeerInfo& info);
  Status gather(std::vector<PeerInfo>& all);
  // Whether another rank gave up, or the others meet under another number by now.
  Status interrupted();
  [[nodiscard]] bool is_superseded() const { return is_superseded_; }

  // The failure that all ranks report: the first one that was told. Call it while the channels are up: their
  // end is what other ranks would report in its place.
  Status settle(const Status& mine);
  // Rank 0 serves the store: it stays until all have read why, but not longer than this.
  void await_readers(Nanos at_most);

 private:
  [[nodiscard]] std::string key(Rank rank) const { return prefix_ + "rank" + std::to_string(rank); }
  Result<std::string> await(Rank rank);
  Status check_lost();
  [[nodiscard]] std::string missing() const;

  store::Store& store_;
  Epoch number_;
  std::string prefix_;
  Rank me_;
  Rank size_;
  Deadline deadline_;
  const LostRank* lost_;
  Nanos return_time_;
  Nanos return_deadline_;
  bool is_told_ = false;
  bool is_superseded_ = false;
};

}  // namespace rueda::runtime
