// The hosts of an elastic job, as a program of the user prints them: it is started every second, one at a
// time.
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/hosts.h"
#include "launch/job_options.h"
#include "launch/poll_set.h"
#include "launch/start_progress.h"
#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::launch {

// Lines "host:slots" or "host"; empty ones are skipped. Pure.
Result<std::vector<HostSlots>> parse_discovered(std::string_view text, int default_slots);

inline constexpr Nanos kDiscoveryInterval = kSecond;
inline constexpr Nanos kDiscoveryTime = 10 * kSecond;  // then the program is killed

// One thread.
class HostDiscovery {
 public:
  HostDiscovery(std::string script, int default_slots)
      : script_(std::move(script)), default_slots_(default_slots) {}
  ~HostDiscovery() { end(); }
  HostDiscovery(const HostDiscovery&) = delete;
  HostDiscovery& operator=(const HostDiscovery&) = delete;

  void watch(PollSet& set);
  // Starts the program if it is time. Returns the hosts once it has ended, or why there are none.
  std::optional<Result<std::vector<HostSlots>>> tick(Nanos now);
  [[nodiscard]] Nanos next() const { return out_.is_open() ? began_ + kDiscoveryTime : again_at_; }
  // The same until it has ended, or was killed.
  Result<std::vector<HostSlots>> run_once();

 private:
  Status start(Nanos now);
  void read_some();
  void end();
  [[nodiscard]] Result<std::vector<HostSlots>> result() const;

  std::string script_;
  int default_slots_;
  pid_t pid_ = 0;  // of its session
  UniqueFd out_;   // open while it runs
  std::string text_;
  bool is_at_end_ = false;
  Nanos began_ = 0, again_at_ = 1;
};

[[nodiscard]] int count_slots(std::span<const HostSlots> hosts);

// Decides whether an elastic job can start, as the program of the user names its hosts again and again. One
// that fails at the first run will not do better. Pure.
class FirstHosts {
 public:
  FirstHosts(const ElasticOptions& options, int size) : options_(options), size_(size) {}
  struct Answer {
    bool is_enough = false;
    Status end{};                    // why nothing more is waited for
    std::vector<std::string> say{};  // to the user: what is missing, at once and then now and then
  };
  Answer hear(const Result<std::vector<HostSlots>>& found, Nanos waited);

 private:
  const ElasticOptions& options_;
  int size_, slots_ = -1;  // that were named last
  std::string trouble_;
  bool has_told_ = false;
  NoticePace pace_{false};
};

// Before an elastic job starts: waits until the program names enough slots.
Status discover_first_hosts(RunOptions& options);

}  // namespace rueda::launch
