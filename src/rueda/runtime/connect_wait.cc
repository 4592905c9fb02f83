#include "rueda/runtime/connect_wait.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "rueda/base/log.h"
#include "rueda/base/process.h"

namespace rueda::runtime {
namespace {

constexpr Nanos kLongConnect = 5 * kSecond;  // connecting takes a fraction of a second
constexpr Nanos kTellReason = 2 * kSecond;   // for one answer of a store that may be gone
constexpr int64_t kTellers = 4;              // where a host is cut off, thousands of ranks may find that out

constexpr std::string_view kAdvice =
    "check firewalls (ranks listen on ports that the kernel chooses) and interfaces (RUEDA_INTERFACE)";

// Of a process with a pid that means the same here. One that began at another time is a later one.
bool is_process_gone(const PeerInfo& info) {
  if (kill(static_cast<pid_t>(info.pid), 0) != 0) return errno == ESRCH;
  const ProcessLook look = look_at_process(info.pid, info.began);
  return look.state == ProcessState::kEnded && look.threads <= 1;
}

}  // namespace

Status no_connection(const std::string& links) {
  return {Code::kTimeout, "no connection in time " + links + ". C" + std::string(kAdvice.substr(1)) +
                              ", or raise RUEDA_START_TIMEOUT."};
}

Status check_processes(const std::vector<Rank>& missing, Rank me, const std::vector<PeerInfo>& all) {
  for (const Rank rank : missing) {
    const PeerInfo& info = all[static_cast<size_t>(rank)];
    if (info.pid_space == 0 || !share_pids(all, me, rank) || !is_process_gone(info)) continue;
    return {Code::kPeerLost, describe(rank, info) +
                                 " has ended before all ranks were connected, so this init failed; its "
                                 "output may say why."};
  }
  return Status::ok();
}

ConnectWait::ConnectWait(store::Store& store, std::string prefix, Deadline deadline, Nanos began)
    : store_(store),
      prefix_(std::move(prefix)),
      began_(began),
      say_at_(began + std::min(kLongConnect, std::max<Nanos>(deadline.when() - began, 0) / 2)) {}

std::string ConnectWait::key(int64_t number) const {
  return prefix_ + "unconnected" + std::to_string(number);
}

std::string ConnectWait::note(const std::string& links, Nanos now) {
  const auto publish = [this](const std::string& text) {
    const Status set = store_.set(key(number_), text, Deadline::after(kTellReason));
    if (!set.is_ok()) RUEDA_LOG(kDebug, set.why);
  };
  if (number_ > 0) {
    if (links.empty() && number_ <= kTellers && !std::exchange(is_over_, true)) publish("");
    return {};
  }
  if (links.empty() || now < say_at_) return {};
  const Result<int64_t> number = store_.add(prefix_ + "unconnected", 1, Deadline::after(kTellReason));
  number_ = number.is_ok() ? number.value() : 1;
  if (number_ > kTellers) return {};
  publish(links);
  return "no connection yet " + links + ". Init has tried for " + std::to_string((now - began_) / kSecond) +
         " s and gives up when RUEDA_START_TIMEOUT is over; " + std::string(kAdvice) + ".";
}

Status ConnectWait::explain(const Status& mine, const std::string& links) const {
  if (mine.code != Code::kTimeout || !links.empty()) return mine;
  for (int64_t number = 1; number <= kTellers; ++number) {
    const Result<std::string> told = store_.try_get(key(number), Deadline::after(kTellReason));
    if (!told.is_ok()) return mine;
    if (!told.value().empty()) return no_connection(told.value());
  }
  return mine;
}

}  // namespace rueda::runtime
