// What outlives one init within a process. Each init is one exchange (init_exchange.h).
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "rueda/backend/mpi/process.h"
#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/runtime/init_exchange.h"
#include "rueda/runtime/init_wait.h"
#include "rueda/store/ended.h"
#include "rueda/store/prefixed_store.h"
#include "rueda/store/world.h"

namespace rueda::runtime {

// The store, and the number of the last exchange. Used by one thread at a time.
class RendezvousPoint {
 public:
  // Fills in what only the launcher knows. The launcher answers a process only once, so the answer is kept.
  Result<store::World> complete(store::World detected, Deadline deadline);
  // Opens the rendezvous. Keeps the one of the last call if the job is the same, and if this process
  // serves the store now as it did then. Ranks may have other numbers than at the last call, and the
  // world another size.
  Status open(const store::World& world, const std::string& interface, Deadline deadline);
  [[nodiscard]] store::Rendezvous& rendezvous() { return rendezvous_; }

  // Of an elastic job: the inits from now on are those of this view. Their numbers are larger than those of
  // earlier views, and the same in processes that are new.
  void enter_view(int64_t view);
  // After open() in an elastic job: the store with the keys of all views.
  [[nodiscard]] store::Store& whole_store() { return prefixed_->whole(); }

  // The number of the next exchange. Rank 0 chooses it and announces it in the store; the others wait for it.
  // No process meets twice under one number, and a process that is new to the job learns the current one.
  Result<Epoch> next_number(Deadline deadline);
  // The same in a single-process job.
  Epoch next_alone() { return ++number_; }
  // Rank 0, when all ranks have met. A rank that comes later waits for the next exchange.
  void close_exchange();
  // A rank that cannot take part tells the other ranks, which may not have come yet: its settings are
  // wrong, or it was interrupted.
  void refuse(const Status& why);
  // Rank 0 with a file store: ranks that come when this process has ended shall know why init failed.
  void note_failure(const Status& why);

  // For whom this init waits. Any thread.
  [[nodiscard]] InitWait& wait() { return *wait_; }
  // Until the next call, waits of this object end soon after this returns true.
  void watch(store::Interrupted is_interrupted) { is_interrupted_ = std::move(is_interrupted); }
  [[nodiscard]] const store::Interrupted& interruption() const { return is_interrupted_; }

  // MPI of this process, once an init has used it. It outlives inits, because it can be initialised only
  // once.
  [[nodiscard]] std::shared_ptr<backend::mpi::Process>& mpi() { return mpi_; }

  // Whether no init of this process has said this before. What is true at each init is said once.
  bool is_news(const std::string& sentence) { return said_.insert(sentence).second; }

  void note_loss(LostRank lost) { lost_ = std::move(lost); }
  void forget_loss() { lost_.reset(); }
  // Null if this world has lost no rank.
  [[nodiscard]] const LostRank* loss(const store::World& world) const;

 private:
  Result<Epoch> choose_number(Deadline deadline);
  Result<Epoch> await_number(bool is_refusal_told, Deadline deadline);
  Epoch first_missed(Epoch announced, bool& is_refusal_told, Deadline deadline);
  [[nodiscard]] Status why_ended(const store::EndedRank& ended, Epoch announced) const;
  void look_elsewhere();
  void see_one_view();

  std::string detected_;  // identity of the world that completed_ completes
  store::World completed_;
  store::World world_;  // that rendezvous_ serves
  std::string interface_;
  store::Rendezvous rendezvous_;
  store::PrefixedStore* prefixed_ = nullptr;  // elastic jobs: rendezvous_.store
  int64_t view_ = 0;
  Epoch number_ = 0;
  Epoch last_closed_ = 0;  // rank 0
  bool has_left_refusal_ = false;
  store::Interrupted is_interrupted_;
  std::optional<LostRank> lost_;
  std::set<std::string> said_;
  std::unique_ptr<InitWait> wait_ = std::make_unique<InitWait>();
  std::shared_ptr<backend::mpi::Process> mpi_;
};

}  // namespace rueda::runtime
