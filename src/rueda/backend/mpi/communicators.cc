#include "rueda/backend/mpi/communicators.h"

#include <atomic>
#include <thread>
#include <utility>

#include "rueda/base/thread.h"

namespace rueda::backend::mpi {
namespace {

// Groups whose members overlap are made one after the other on each rank, so one tag is enough.
constexpr int kTag = 1;

}  // namespace

struct Communicators::Making {
  std::vector<Rank> members;
  std::atomic<bool> is_done{false};
  Result<Comm> result = Status(Code::kInternal, "not made yet");  // of the thread until is_done
};

Communicators::Communicators(std::shared_ptr<Process> process, Team team)
    : process_(std::move(process)), team_(std::move(team)) {}

Communicators::~Communicators() {
  if (is_making()) process_->abandon();
  if (!process_->usable().is_ok() || process_->library().is_finalized()) return;
  for (const auto& [members, comm] : known_) process_->library().free(comm);
}

bool Communicators::is_making() const { return making_ != nullptr && !making_->is_done.load(); }

Result<std::optional<Comm>> Communicators::find(const Group& group) {
  if (group.size() == team_.size) return std::optional<Comm>(team_.comm);
  if (making_ != nullptr) {
    if (!making_->is_done.load()) return std::optional<Comm>();
    const std::shared_ptr<Making> made = std::exchange(making_, nullptr);
    if (!made->result.is_ok()) return made->result.status();
    known_[made->members] = made->result.value();
  }
  if (const auto at = known_.find(group.members); at != known_.end()) return std::optional<Comm>(at->second);
  making_ = std::make_shared<Making>();
  making_->members = group.members;
  std::thread thread;
  const Status started = start_thread(
      thread, "an MPI communicator", [making = making_, process = process_, parent = team_.comm] {
        making->result = process->library().create_group(parent, making->members, kTag);
        making->is_done.store(true);
      });
  if (!started.is_ok()) return started;
  thread.detach();  // after a loss it may stay inside MPI
  return std::optional<Comm>();
}

}  // namespace rueda::backend::mpi
