// The stores of the other members of an elastic job without a launcher, and what they answer.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/members/member_store.h"
#include "rueda/membership/view.h"

namespace rueda::members {

// What a member has answered.
struct Said {
  enum class How : uint8_t {
    kYes,     // text
    kNotYet,  // it is there, and has no such value
    kSilent,  // it cannot be reached, or says nothing
    kEnded,   // for certain
  };
  How how = How::kSilent;
  std::string text{};
};

// One call of each member at a time; calls of several members may run beside one another.
class MemberPeers {
 public:
  // host: of this process. own: outlives this.
  MemberPeers(const MemberStore& own, std::string host) : own_(own), host_(std::move(host)) {}

  // Each returns within seconds, whatever the member does. value: waits a moment for it.
  Said value(const membership::Member& member, std::string_view key);
  Said set(const membership::Member& member, std::string_view key, std::string_view value);
  Said compare_and_set(const membership::Member& member, std::string_view key, std::string_view expected,
                       std::string_view value);
  // Whether its process can be ended from here, and is of this host.
  [[nodiscard]] bool is_neighbour(const membership::Member& member) const { return member.host == host_; }
  // Whether it is certain that a member that gave this answer has ended. A neighbour that says nothing is
  // ended: then it votes no more.
  [[nodiscard]] bool has_gone(const membership::Member& member, const Said& said) const;
  // Closes the connections to all others.
  void keep(const membership::View& view);

  using Ask = std::function<Said(const membership::Member&)>;
  // Asks all at once. In their order.
  static std::vector<Said> ask_all(const std::vector<membership::Member>& members, const Ask& ask);

 private:
  using Call = std::function<Status(store::Store&, std::string& text)>;
  Said call(const membership::Member& member, const Call& call);
  Status connect(const Contact& contact, std::unique_ptr<store::Store>& store) const;
  std::unique_ptr<store::Store>& line(const membership::Uid& uid);

  const MemberStore& own_;
  std::string host_;
  std::mutex mutex_;
  std::map<membership::Uid, std::unique_ptr<store::Store>> lines_;
};

}  // namespace rueda::members
