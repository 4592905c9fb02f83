// The slots of an elastic job: which are free, which rest after a failure, and where the next process starts.
// Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/hosts.h"
#include "rueda/base/clock.h"

namespace rueda::launch {

// A slot whose process has failed rests for 1 s, then 2, 4, … and at most 60 s. After a life of 60 s it
// counts as sound again.
inline constexpr Nanos kFirstRest = kSecond, kLongestRest = 60 * kSecond;
// So long rests a host whose network was cut, though its agent answers: each process that starts there in
// vain costs the others the time of an init.
inline constexpr Nanos kCutRest = 60 * kSecond, kLongestCutRest = 600 * kSecond;

class Slots {
 public:
  // The hosts that there are now, in their order. Hosts that are known keep what is known of them. A host
  // that is missing, or has fewer slots, starts nothing in the slots that are gone.
  void offer(const std::vector<HostSlots>& hosts);
  // The network between this host and others is cut: nothing starts there for a minute,
  // and if nobody from there can join the others afterwards for two, … and ten.
  void rest(const std::string& host, Nanos now);
  // A process of this host has exchanged data with the others since it was started, so the network worked.
  void join(const std::string& host);
  // A host was lost: nothing starts there until it is offered again after it was missing.
  void lose(const std::string& host);

  struct Place {
    std::string host;
    int slot = 0;
    int life = 0;  // how many processes were started there before
  };
  // The place of one more process; it is taken then. Empty: every slot is taken or rests.
  std::optional<Place> take(Nanos now);
  // The process in that place has ended.
  void end(const Place& place, bool has_failed, Nanos lived, Nanos now);

  [[nodiscard]] int taken() const;  // of those that are offered: who is to go is replaced before
  [[nodiscard]] int offered() const;
  [[nodiscard]] bool is_offered(const Place& place) const;
  [[nodiscard]] Nanos next(Nanos now) const;  // when a slot has rested; 0: none rests

 private:
  struct Slot {
    bool is_taken = false;
    int lives = 0, failures = 0;
    Nanos rests_until = 0;
  };
  struct Host {
    std::string name;
    int offered = 0;  // slots
    bool is_lost = false;
    int cuts = 0;
    Nanos rests_until = 0;
    std::vector<Slot> slots;
  };
  Host* find(const std::string& name);

  std::vector<Host> hosts_;
};

}  // namespace rueda::launch
