#include "rueda/backend/nccl/communicator.h"

#include <sched.h>

#include <utility>

#include "rueda/base/check.h"
#include "rueda/base/log.h"

namespace rueda::nccl {

std::string describe(const Group& group) {
  constexpr size_t kListed = 8;
  std::string text =
      group.id == 0 ? "the world (ranks " : "process set " + std::to_string(group.id) + " (ranks ";
  for (size_t i = 0; i < group.members.size() && i < kListed; ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(group.members[i]);
  return text + (group.members.size() > kListed ? ", …)" : ")");
}

Result<std::unique_ptr<Communicator>> Communicator::begin(std::shared_ptr<const Library> library,
                                                          const UniqueId& id, const Group& group,
                                                          size_t pack_bytes) {
  Config config;
  config.blocking = 0;
  std::unique_ptr<Communicator> made(new Communicator(library, describe(group), pack_bytes));
  const ResultCode begun =
      library->call().CommInitRankConfig(&made->handle_, group.size(), id, group.me, &config);
  if (const Status status = library->check(begun, "ncclCommInitRankConfig"); !status.is_ok()) {
    made->handle_ = nullptr;
    return status;
  }
  return made;
}

Communicator::~Communicator() {
  RUEDA_CHECK(handle_ == nullptr, "a communicator must be finished or aborted");
}

Result<bool> Communicator::is_settled() {
  ResultCode state = kSuccess;
  const ResultCode asked = library_->call().CommGetAsyncError(handle_, &state);
  if (const Status status = library_->check(asked, "ncclCommGetAsyncError", handle_); !status.is_ok())
    return status;
  if (state == kInProgress) return false;
  Status status = library_->check(state, "NCCL in " + name_, handle_);
  if (!status.is_ok()) return status;
  return true;
}

CommHandle Communicator::release() { return std::exchange(handle_, nullptr); }

void Communicator::abort() {
  if (handle_ != nullptr) (void)library_->call().CommAbort(release());
}

void Communicator::finish(Deadline deadline) {
  if (handle_ == nullptr) return;
  ResultCode state = library_->call().CommFinalize(handle_);
  while (state == kInProgress && !deadline.is_past()) {
    if (library_->call().CommGetAsyncError(handle_, &state) != kSuccess) state = kInternalError;
    if (state == kInProgress) sched_yield();
  }
  if (state != kSuccess) return abort();
  (void)library_->call().CommDestroy(release());
}

ConnectionTime::ConnectionTime(Nanos patience)
    : patience_(patience),
      deadline_(Deadline::after(kPatience * patience)),
      warning_(Deadline::after(patience)) {}

Status ConnectionTime::check(const Communicator& communicator, bool says_so) {
  const auto sentence = [&](Nanos time) {
    return "NCCL has not connected " + communicator.name() + " within " + std::to_string(time / kSecond) +
           " s, although all of them have begun; set NCCL_DEBUG=INFO, and NCCL_SOCKET_IFNAME if the hosts "
           "have several networks.";
  };
  if (deadline_.is_past()) return {Code::kTimeout, sentence(kPatience * patience_)};
  if (!warning_.is_past() || std::exchange(has_warned_, true)) return Status::ok();
  if (says_so)
    RUEDA_LOG(kWarning, sentence(patience_) + " The job waits until " +
                            std::to_string(kPatience * patience_ / kSecond) + " s have passed.");
  return Status::ok();
}

}  // namespace rueda::nccl
