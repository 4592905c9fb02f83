#include "launch/first_agents.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "launch/poll_set.h"
#include "launch/start_progress.h"
#include "rueda/base/counted.h"

namespace rueda::launch {

Status await_first_agents(AgentDoor& door, RunOptions& options, Agents& agents, RankOutput& output) {
  const Nanos began = monotonic_now(), patience = nanos(options.elastic.timeout_s, kSecond);
  NoticePace pace(output.err().is_tty());
  for (Nanos waited = 0; door.waiting_slots() < options.size; waited = monotonic_now() - began) {
    const std::string offered = fmt::format("agents offer {}, and the job starts when there are {} (-np)",
                                            counted(door.waiting_slots(), "slot"), options.size);
    if (waited >= patience)
      return {Code::kTimeout,
              fmt::format("{}; --elastic-timeout {} is over", offered, options.elastic.timeout_s)};
    if (pace.is_due(waited)) output.show_progress(offered);
    output.err().flush();
    PollSet set;
    door.watch(set);
    set.wait(Deadline::after(kPingInterval / 10));
    door.tick(monotonic_now());
  }
  output.end_progress();
  for (HostLink& link : door.take()) {
    const bool is_known =
        std::ranges::find(options.hosts, link.host(), &HostSlots::name) != options.hosts.end();
    if (is_known) {
      door.turn_away(std::move(link), "another agent of this name was there before; give --name",
                     monotonic_now());
      continue;
    }
    options.hosts.push_back({link.host(), std::max(1, link.hello()->slots)});
    agents.adopt(std::move(link));
  }
  return Status::ok();
}

}  // namespace rueda::launch
