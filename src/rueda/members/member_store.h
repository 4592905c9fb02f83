// The store that a process of an elastic job serves where no launcher does. Its votes and its words for the
// next view lie there, and the ranks of a view meet in the store of its rank 0.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "rueda/members/contact.h"
#include "rueda/membership/view.h"
#include "rueda/store/tcp_site.h"
#include "rueda/store/world.h"

namespace rueda::members {

// How many ports after that of RUEDA_STORE a process tries. One that joins looks for members there.
inline constexpr int kMemberPorts = 16;

class MemberStore {
 public:
  // is_first: it is rank 0 of the first view, and listens at the port of RUEDA_STORE. The others take one of
  // the next ports there, or any port.
  static Result<std::unique_ptr<MemberStore>> open(const store::World& world, const std::string& interface,
                                                   bool is_first, Deadline deadline);

  [[nodiscard]] const Contact& contact() const { return contact_; }
  // To the store of another member of this job.
  [[nodiscard]] store::TcpSite site_of(const std::string& address, int port) const;

  // Any thread. put: soon after the call, in the order of the calls.
  void put(const std::string& key, std::string_view value) { server_->put(key, std::string(value)); }
  // Processes that want to join, and have said so here.
  [[nodiscard]] std::vector<membership::Ready> joiners() const;
  void forget(const membership::Uid& uid);
  // The commit at which members leave this view; kNoCommit: none was named.
  [[nodiscard]] membership::Commit leave_at(int64_t view) const;
  void set_leave_at(int64_t view, membership::Commit commit);

 private:
  MemberStore() = default;
  void on_set(std::string_view key, std::string_view value);

  Contact contact_;
  store::TcpSite site_;
  mutable std::mutex mutex_;
  std::map<membership::Uid, membership::Ready> joiners_;
  int64_t leave_view_ = 0;
  membership::Commit leave_commit_ = membership::kNoCommit;
  std::unique_ptr<store::StoreServer> server_;  // the last: its thread uses the others
};

// "<view> <commit>" of kLeaveAtKey. Pure.
struct LeaveAt {
  int64_t view = 0;
  membership::Commit commit = membership::kNoCommit;
  bool operator==(const LeaveAt&) const = default;
};
std::string to_text(const LeaveAt& order);
Result<LeaveAt> parse_leave_at(std::string_view text);

}  // namespace rueda::members
