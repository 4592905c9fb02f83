// Where agents that nobody has started join an elastic job (`rueda agent --join`): a port of the launcher.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/agent_messages.h"
#include "launch/host_link.h"
#include "launch/poll_set.h"
#include "rueda/base/handshake.h"
#include "rueda/base/socket.h"
#include "rueda/base/unique_fd.h"

namespace rueda::launch {

// In the handshake of agents. They know their job by its secret and its port, not by its id.
inline ConnectionIdentity joining_identity() {
  return {.job = "agents", .kind = ConnectionKind::kAgent, .protocol = kProtocol};
}

// One thread.
class AgentDoor {
 public:
  // wanted: "10.0.0.1:5000", or a port on the address by which other hosts reach this one; port 0: any.
  static Result<std::unique_ptr<AgentDoor>> open(const std::string& wanted, Secret secret);

  [[nodiscard]] std::string address() const { return address_; }  // by which other hosts reach it
  [[nodiscard]] std::string url() const;                          // "tcp://10.0.0.1:5000"
  void watch(PollSet& set);
  // Drops those that have taken too long.
  void tick(Nanos now);
  [[nodiscard]] int waiting_slots() const;  // of the agents that take() would return
  // Agents that have proved that they know the secret, and have said hello. The owner welcomes them or turns
  // them away.
  std::vector<HostLink> take();
  // Sends the sentence, which the agent prints before it ends.
  void turn_away(HostLink link, const std::string& why, Nanos now);

 private:
  struct Stranger {
    UniqueFd fd;
    Handshake handshake;
    Nanos until = 0;
  };
  struct Guest {
    HostLink link;
    Nanos until = 0;
    bool is_leaving = false;
    [[nodiscard]] bool has_arrived() const { return !is_leaving && link.is_open() && link.hello(); }
  };
  AgentDoor(UniqueFd listener, std::string address, Secret secret);
  void accept_some();
  void talk(Stranger& stranger);
  void admit(Stranger& stranger);

  UniqueFd listener_;
  std::string address_;
  Secret secret_;
  std::list<Stranger> strangers_;  // those without a descriptor are removed by tick()
  std::list<Guest> guests_;
};

}  // namespace rueda::launch
