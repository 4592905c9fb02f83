// How the ranks of a job find one another before they are connected: one rendezvous point per process,
// one numbered exchange per init. A failure of one rank reaches all ranks of its exchange, and all report
// the first one.
//
// Example: 2 ranks. In its first init, rank 0 sets the key "exchange" to "1 open", and rank 1 reads it. They
// give the peer info of each to the table "init1/" (store/entries.h): "init1/rank0" and "init1/rank1", or one
// value for both if they share a relay. Rank 0 reads all of it and sets "init1/table0", which rank 1 reads;
// then rank 0 sets "exchange" to "1 closed". The second init has number 2: "2 open", "init2/rank0", and so
// on; when it closes, the keys of exchange 1 are removed. Then rank 1 is started again. The new process knows
// no number. It finds "2 closed", waits for the next one, and both ranks meet in exchange 3. If rank 1 finds
// a wrong setting in exchange 1, it sets "init1/failed" to "rank 1: ", followed by what is wrong. Rank 0,
// which waits for "init1/rank1", looks for that every 250 ms, and both ranks report this sentence.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/runtime/connect_wait.h"
#include "rueda/runtime/given_entries.h"
#include "rueda/runtime/init_wait.h"
#include "rueda/runtime/peer_info.h"
#include "rueda/store/ended.h"
#include "rueda/store/world.h"

namespace rueda::runtime {

// A rank that the last epoch of this process lost.
struct LostRank {
  Rank rank = -1;
  Rank size = 0;    // of the world that lost it
  std::string who;  // "rank 3 (host b, pid 4711)"
};
inline constexpr Nanos kReturnTime = 10 * kSecond;  // how long the next init waits for its successor

Status not_back(const LostRank& lost, Nanos waited);

// One init exchange: publishes and gathers peer info. While it waits for other ranks, it notices if one of
// them has given up.
class InitExchange {
 public:
  // lost, if not null, is a rank whose successor has return_time to come.
  InitExchange(store::Store& store, Epoch number, Rank me, Rank size, Deadline deadline,
               const LostRank* lost = nullptr, Nanos return_time = kReturnTime);

  void watch(const store::Interrupted& is_interrupted) { is_interrupted_ = is_interrupted; }
  // Of rank 0, which serves the store: a rank of another build of rueda ends this init, if it has come since.
  void heed(const store::StoreServer& server, Nanos began) {
    server_ = &server;
    began_ = began;
  }
  // The store ends with rank 0. Not of rank 0 itself.
  void depend_on_rank_0() { is_store_of_rank_0_ = true; }
  // For ranks that share a folder with rank 0: is_over tells whether rank 0 has ended.
  void watch_rank_0(std::function<bool()> is_over) { is_rank_0_over_ = std::move(is_over); }
  // Tells it who is missing, while this exchange gathers.
  void tell(InitWait& wait) {
    wait_ = &wait;
    wait.found({}, 0);  // rank 0 has come
  }

  // For the time in which the ranks connect.
  [[nodiscard]] ConnectWait begin_connecting() const { return {store_, prefix_, deadline_, monotonic_now()}; }
  Status publish(const PeerInfo& info);
  Status gather(std::vector<PeerInfo>& all);
  // Fails if another rank has given up or ended, if other ranks are in a later exchange, or if this process
  // wants to give up.
  Status interrupted();
  [[nodiscard]] bool is_superseded() const { return is_superseded_; }

  // Returns the failure that all ranks report: the first one that was told. To be called while the channels
  // are up, or other ranks would report that they were closed.
  Status settle(const Status& mine);
  // Rank 0, which serves the store, stays until all ranks have read the failure, but not longer than this.
  void await_readers(Nanos at_most);

 private:
  [[nodiscard]] std::string table_key(size_t part) const { return prefix_ + "table" + std::to_string(part); }
  Status make_table(std::vector<PeerInfo>& all);  // rank 0
  Status find(Rank rank);                         // rank 0: its peer info
  Status read_table(std::vector<PeerInfo>& all);
  [[nodiscard]] Status unequal_sizes(size_t of_rank_0) const;
  // What a get gives, which is tried again and again.
  Result<std::string> await(const std::function<Result<std::string>(Deadline)>& get);
  Status nobody_else_came();
  Status check_others(Nanos age);            // of the answers, at most
  Status check_store(const Status& answer);  // of the store, to the last look
  Status check_ended(const store::EndedRank& ended);
  void count_reader();  // of the failure
  Status check_lost();
  void tell_missing();

  store::Store& store_;
  Epoch number_;
  std::string prefix_;
  GivenEntries given_;
  Rank me_;
  Rank size_;
  Deadline deadline_;
  const LostRank* lost_;
  Nanos slice_;  // between looks for a failure of others
  Nanos return_time_;
  Nanos return_deadline_;
  store::Interrupted is_interrupted_;
  bool is_store_of_rank_0_ = false;
  std::function<bool()> is_rank_0_over_;
  std::optional<Nanos> store_lost_at_;
  const store::StoreServer* server_ = nullptr;
  Nanos began_ = 0;
  InitWait* wait_ = nullptr;
  bool is_told_ = false;
  bool is_superseded_ = false;
};

}  // namespace rueda::runtime
