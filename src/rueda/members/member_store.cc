#include "rueda/members/member_store.h"

#include <unistd.h>

#include <charconv>
#include <utility>

#include "rueda/base/process.h"
#include "rueda/base/release.h"
#include "rueda/base/sleep.h"
#include "rueda/members/own_words.h"
#include "rueda/membership/keys.h"
#include "rueda/store/address.h"
#include "rueda/store/members.h"
#include "rueda/store/store_url.h"

namespace rueda::members {
namespace {

using membership::Ready;

constexpr size_t kMostJoiners = 4'096;

// Rank 0 listens where the others look for it; the others where they are reached from there.
Result<std::string> own_address(const store::StoreUrl& url, const std::string& interface, bool is_first) {
  if (!is_first) return store::choose_address(interface, url.host);
  return store::address_behind(url.host, false);
}

}  // namespace

std::string to_text(const LeaveAt& order) {
  return std::to_string(order.view) + " " + std::to_string(order.commit);
}

Result<LeaveAt> parse_leave_at(std::string_view text) {
  LeaveAt order;
  const char* const end = text.data() + text.size();
  const auto view = std::from_chars(text.data(), end, order.view);
  const bool is_view = view.ec == std::errc() && view.ptr != end && *view.ptr == ' ' && order.view > 0;
  if (is_view)
    if (const auto commit = std::from_chars(view.ptr + 1, end, order.commit);
        commit.ec == std::errc() && commit.ptr == end && order.commit >= 0)
      return order;
  return Status(Code::kPermissionDenied, "the commit at which members leave is malformed");
}

Result<std::unique_ptr<MemberStore>> MemberStore::open(const store::World& world,
                                                       const std::string& interface, bool is_first,
                                                       Deadline deadline) {
  const Result<store::StoreUrl> url = store::parse_store_url(world.url);
  if (!url.is_ok()) return url.status();
  if (url.value().is_file)
    return Status(Code::kInvalidArgument,
                  "RUEDA_STORE='" + world.url +
                      "' is refused with RUEDA_ELASTIC=members: the members serve stores themselves; give "
                      "tcp://HOST:PORT, the host of rank 0 and a free port there");
  const Result<Secret> secret = store::secret_of(world);
  if (!secret.is_ok()) return secret.status();
  Result<std::string> address = own_address(url.value(), interface, is_first);
  while (!address.is_ok() && is_first && !deadline.is_past()) {  // the name of a pod comes late
    sleep_for(100 * kMillisecond);
    address = own_address(url.value(), interface, is_first);
  }
  if (!address.is_ok()) return address.status();
  std::unique_ptr<MemberStore> made(new MemberStore);
  Result<std::unique_ptr<store::StoreServer>> server = Status(Code::kUnavailable, "no port was tried");
  const int tries = is_first ? 1 : kMemberPorts;
  for (int i = 1; i <= tries && !server.is_ok(); ++i) {
    const int next = url.value().port + i;
    const int port = is_first ? url.value().port : (i == tries || next > 65'535 ? 0 : next);
    server = store::serve_store(address.value(), port, world.job, secret.value(), kRelease);
  }
  if (!server.is_ok()) return server.status();
  made->server_ = std::move(server).value();
  made->contact_ = {.address = address.value(),
                    .port = made->server_->port(),
                    .pid = getpid(),
                    .began = process_began(),
                    .pids = pids_of_here()};
  made->site_ = {.host = address.value(),
                 .port = made->server_->port(),
                 .job = world.job,
                 .secret = secret.value(),
                 .release = kRelease,
                 .caller = "rank " + std::to_string(world.rank) + " on " + world.host,
                 .rank = world.rank};
  made->put(std::string(kContactKey), to_text(made->contact_));
  made->server_->on_set([own = made.get()](auto key, auto value) { own->on_set(key, value); });
  return made;
}

store::TcpSite MemberStore::site_of(const std::string& address, int port) const {
  store::TcpSite site = site_;
  site.host = address;
  site.port = port;
  return site;
}

void MemberStore::on_set(std::string_view key, std::string_view value) {
  if (key == membership::kLeaveAtKey) {
    const Result<LeaveAt> order = parse_leave_at(value);
    if (order.is_ok()) set_leave_at(order.value().view, order.value().commit);
    return;
  }
  if (!key.starts_with(membership::kReadyPrefix)) return;
  Result<Ready> ready = membership::decode_ready(std::as_bytes(std::span(value.data(), value.size())));
  if (!ready.is_ok() || key.substr(membership::kReadyPrefix.size()) != ready.value().uid) return;
  const std::scoped_lock lock(mutex_);
  if (ready.value().after == 0 && joiners_.size() < kMostJoiners)
    joiners_[ready.value().uid] = std::move(ready).value();
}

std::vector<Ready> MemberStore::joiners() const {
  const std::scoped_lock lock(mutex_);
  std::vector<Ready> all;
  for (const auto& [uid, ready] : joiners_) all.push_back(ready);
  return all;
}

void MemberStore::forget(const membership::Uid& uid) {
  const std::scoped_lock lock(mutex_);
  joiners_.erase(uid);
}

membership::Commit MemberStore::leave_at(int64_t view) const {
  const std::scoped_lock lock(mutex_);
  return view == leave_view_ ? leave_commit_ : membership::kNoCommit;
}

void MemberStore::set_leave_at(int64_t view, membership::Commit commit) {
  const std::scoped_lock lock(mutex_);
  if (view <= leave_view_) return;
  leave_view_ = view;
  leave_commit_ = commit;
}

}  // namespace rueda::members
