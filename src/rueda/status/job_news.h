// What the launcher of a job tells all ranks about processes and hosts that they cannot see themselves:
// agents look at the processes of their ranks, and the launcher hears whether the agents answer. The agent of
// each host keeps the latest news in a file, which its ranks read.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rueda/base/bytes.h"
#include "rueda/base/clock.h"
#include "rueda/base/process.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"

namespace rueda::status {

inline constexpr const char* kNewsVariable = "RUEDA_NEWS_FILE";  // tells a rank where that file is

struct HeldProcess {
  Rank rank = 0;
  ProcessState state = ProcessState::kUnknown;  // kStopped or kTraced
  bool operator==(const HeldProcess&) const = default;
};

struct JobNews {
  std::vector<HeldProcess> held;
  std::vector<Rank> without_agent;  // the agents of their hosts are silent
  bool operator==(const JobNews&) const = default;
};

struct DatedNews {
  JobNews news;
  Nanos at = 0;  // it was written, on the clock of this host
};

Bytes encode(const JobNews& news);
Result<JobNews> decode_job_news(std::span<const std::byte> payload);

// now: on the clock of this host.
Status write_news(const std::string& path, const JobNews& news, Nanos now);
// Empty: there is no such file, or it is older than 3 s, so that nothing is known.
std::optional<DatedNews> read_news(const std::string& path, Nanos now);

}  // namespace rueda::status
