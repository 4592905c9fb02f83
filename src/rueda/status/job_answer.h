// What a launcher is asked, and what it answers: what the processes of other hosts have answered to its
// agents. Pure.
//
//   request   "WHAT TIMEOUT_MS RANK" and a newline. WHAT: "status", "stacks" or "record"; RANK -1: all
//   reply     JobAnswer, then the end of the stream
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/bytes.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"

namespace rueda::status {

inline constexpr size_t kMaxJobReply = 64u << 20;   // of a launcher
inline constexpr size_t kMaxHostReply = 16u << 20;  // of one of its agents
inline constexpr int kLongestQuestion_ms = 60'000;

struct JobQuestion {
  std::string what{};  // "status", "stacks" or "record"
  int timeout_ms = 0;
  Rank rank = -1;  // -1: all
  bool operator==(const JobQuestion&) const = default;
};
std::string format_question(const JobQuestion& question);
std::optional<JobQuestion> parse_question(std::string_view request);

struct ProcessAnswer {
  Rank rank = -1;
  int pid = 0;
  std::string text{};     // as it came
  std::string missing{};  // why there is none
};

struct HostAnswer {
  std::string host{};
  std::vector<Rank> ranks{};  // those that were asked for
  std::string missing{};      // why the host has not answered
  std::vector<ProcessAnswer> processes{};
};

struct JobAnswer {
  std::string release;
  int launcher = 0;  // its process id
  std::vector<HostAnswer> hosts;
};

Bytes encode(const std::vector<ProcessAnswer>& processes);
Result<std::vector<ProcessAnswer>> decode_processes(std::span<const std::byte> bytes);
std::string encode(const JobAnswer& answer);
// Fails on what is no answer, and names a launcher of another release.
Result<JobAnswer> decode_job_answer(std::string_view bytes);

}  // namespace rueda::status
