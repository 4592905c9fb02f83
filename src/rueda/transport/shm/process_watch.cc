#include "rueda/transport/shm/process_watch.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "rueda/base/check.h"
#include "rueda/base/descriptors.h"
#include "rueda/transport/shm/ring.h"

namespace rueda::transport {
namespace {

constexpr Nanos kLookInterval = kSecond;  // three system calls for each rank

int open_process(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

bool is_at_end(int process) {
  pollfd polled{.fd = process, .events = POLLIN, .revents = 0};
  return poll(&polled, 1, 0) == 1;
}

}  // namespace

std::vector<size_t> guarded_by(size_t me, const std::vector<bool>& has_ended, size_t count) {
  std::vector<size_t> guarded;
  for (size_t step = 1; step < has_ended.size() && guarded.size() < count; ++step) {
    const size_t place = (me + step) % has_ended.size();
    if (!has_ended[place]) guarded.push_back(place);
  }
  return guarded;
}

ProcessWatch::ProcessWatch(Rank me, Poller& poller) : me_(me), poller_(poller) {}

ProcessWatch::~ProcessWatch() { end(); }

ProcessWatch::Opened ProcessWatch::open(Rank rank, Seen& seen) {
  if (seen.process.is_open()) return Opened::kYes;
  if (seen.pid <= 0) return Opened::kNotPossible;
  seen.process = UniqueFd(open_process(seen.pid));
  if (!seen.process.is_open() && errno == ESRCH) return Opened::kHasEnded;
  if (!seen.process.is_open())
    return is_out_of_descriptors(errno) ? Opened::kNoDescriptor : Opened::kNotPossible;
  if (!poller_.add(seen.process.get(), seen.watch, EPOLLIN).is_ok()) {
    seen.process.reset();
    return Opened::kNotPossible;
  }
  watched_.emplace_back(rank, &seen);
  return Opened::kYes;
}

void ProcessWatch::close(Seen& seen) {
  if (!seen.process.is_open()) return;
  poller_.remove(seen.process.get());
  seen.process.reset();
  seen.watch.ready = 0;
  std::erase_if(watched_, [&seen](const auto& one) { return one.second == &seen; });
}

void ProcessWatch::end() {
  for (auto& [rank, seen] : seen_) close(seen);
}

Status ProcessWatch::see(Rank peer, pid_t pid) {
  Seen& seen = seen_[peer];
  if (std::exchange(seen.has_channel, true)) return Status::ok();
  seen.pid = pid;
  if (own_ == kOwn || pid <= 0) return Status::ok();
  const Opened opened = open(peer, seen);
  if (opened == Opened::kNoDescriptor) return out_of_descriptors(errno);
  if (opened == Opened::kHasEnded) seen.has_ended = true;
  own_ += opened == Opened::kYes ? 1 : 0;
  return Status::ok();
}

size_t ProcessWatch::place_of(Rank rank) const {
  const auto at = std::ranges::lower_bound(host_.ranks, rank);
  const bool is_here = at != host_.ranks.end() && *at == rank;
  return is_here ? static_cast<size_t>(at - host_.ranks.begin()) : host_.ranks.size();
}

bool ProcessWatch::relies_on_host(Rank rank) const {
  return !host_.pids.empty() && place_of(rank) < host_.ranks.size();
}

bool ProcessWatch::watches(Rank peer) const {
  const auto found = seen_.find(peer);
  if (found != seen_.end() && found->second.process.is_open()) return true;
  return relies_on_host(peer);
}

bool ProcessWatch::has_ended(Rank peer) const {
  const auto found = seen_.find(peer);
  return found != seen_.end() && found->second.has_ended;
}

void ProcessWatch::begin(HostWatch host, std::function<void(Rank)> ring) {
  RUEDA_CHECK(host.ended.size() == host.ranks.size() + 1, "there is a word for each rank, and one for all");
  host_ = std::move(host);
  ring_ = std::move(ring);
  marked_.assign(host_.ranks.size(), false);
  if (host_.pids.empty()) return;
  // Where the kernel opens no process, not even this one, ranks keep the sockets between them.
  const UniqueFd self(open_process(getpid()));
  if (!self.is_open()) host_.pids.clear();
  for (auto& [rank, seen] : seen_)
    if (seen.has_ended) mark(rank, seen);
  guard();
}

void ProcessWatch::guard() {
  if (host_.pids.empty()) return;
  for (const size_t place : guarded_by(place_of(me_), marked_, kGuarded)) {
    const Rank rank = host_.ranks[place];
    Seen& seen = seen_[rank];
    if (seen.pid == 0) seen.pid = static_cast<pid_t>(host_.pids[place]);
    // Without a descriptor for it, others notice its end, or look by themselves.
    if (open(rank, seen) == Opened::kHasEnded) mark(rank, seen);
  }
}

// The first rank that notices an end tells it.
void ProcessWatch::mark(Rank rank, Seen& seen) {
  seen.has_ended = true;
  close(seen);
  const size_t place = place_of(rank);
  if (place == host_.ranks.size()) return;
  marked_[place] = true;
  if (std::atomic_ref<uint32_t>(host_.ended[place]).exchange(1) != 0) return;
  std::atomic_ref<uint32_t>(host_.ended.back()).fetch_add(1);
  for (size_t other = 0; other < host_.ranks.size(); ++other)
    if (!marked_[other] && host_.ranks[other] != me_) ring_(host_.ranks[other]);
}

// What others have marked.
bool ProcessWatch::read_marks() {
  if (host_.ended.empty()) return false;
  const uint32_t marks = load_shared(host_.ended.back());
  if (marks == marks_read_) return false;
  marks_read_ = marks;
  bool is_any = false;
  for (size_t place = 0; place < host_.ranks.size(); ++place) {
    if (load_shared(host_.ended[place]) == 0) continue;
    Seen& seen = seen_[host_.ranks[place]];
    is_any = is_any || !seen.has_ended;
    seen.has_ended = marked_[place] = true;
    close(seen);
  }
  return is_any;
}

bool ProcessWatch::look_at_others() {
  bool is_any = false;
  for (auto& [rank, seen] : seen_) {
    if (seen.has_ended || seen.process.is_open() || !seen.has_channel || !relies_on_host(rank)) continue;
    const UniqueFd process(open_process(static_cast<pid_t>(host_.pids[place_of(rank)])));
    const bool is_gone = process.is_open() ? is_at_end(process.get()) : errno == ESRCH;
    if (!is_gone) continue;
    is_any = true;
    mark(rank, seen);
  }
  return is_any;
}

bool ProcessWatch::progress(Nanos now) {
  bool is_any = read_marks();
  std::vector<std::pair<Rank, Seen*>> at_end;
  for (const auto& one : watched_)
    if (one.second->watch.ready != 0) at_end.push_back(one);
  for (const auto& [rank, seen] : at_end) mark(rank, *seen);
  is_any = is_any || !at_end.empty();
  if (now >= look_at_) {
    look_at_ = now + kLookInterval;
    is_any = look_at_others() || is_any;
  }
  if (is_any) guard();
  return is_any;
}

}  // namespace rueda::transport
