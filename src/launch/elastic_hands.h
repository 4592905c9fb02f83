// Performs what ElasticJob decides: it sends to agents, starts agents of new hosts, and serves the register.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launch/agent_door.h"
#include "launch/agent_tries.h"
#include "launch/agents.h"
#include "launch/elastic_job.h"
#include "launch/job_ranks.h"
#include "launch/job_start.h"
#include "launch/rank_output.h"

namespace rueda::launch {

// Of the job. They outlive these hands.
struct JobParts {
  const RunOptions& options;
  Agents& agents;
  JobRanks& ranks;
  RankOutput& output;
  const std::optional<JobStart>& start;
  const std::unique_ptr<store::StoreServer>& store;
  const std::unique_ptr<AgentDoor>& door;  // null: no agents join
};

// One thread, but for inbox() of the job.
class ElasticHands {
 public:
  // The ranks are placed.
  explicit ElasticHands(const JobParts& parts);
  // Before the ranks start: they look for the first view. Gives them their variables.
  Status open(JobStart& start);
  [[nodiscard]] ElasticJob& job() { return job_; }

  void on_held(const std::string& host, std::span<const std::byte> payload);
  // About one of its processes: kBoard or kLeave.
  Status on_message(const AgentMessage& message);
  // The agent was told to leave by SIGTERM: all of its processes are. Returns false if the job has no other
  // host.
  bool on_host_leaving(const HostLink& link);
  void on_host_lost(const std::string& host, Nanos now);
  void tick(Nanos now);
  // The ranks that these processes have in the last view. Those that are no members have none.
  [[nodiscard]] std::vector<Rank> members_of(const std::vector<Rank>& numbers) const;

 private:
  Status on_board(std::span<const std::byte> payload);
  // One of its processes was told to leave by SIGTERM.
  Status on_leave(std::span<const std::byte> payload);
  void start(const std::string& host, const Variables& variables);
  bool reach(const std::string& host);
  void begin_agent(const std::string& host, HostLink* before);
  bool give_job(HostLink& link);
  void welcome(HostLink link, Nanos now);
  void dismiss_left();
  void send(int number, MessageType type, std::span<const std::byte> payload);
  void say(const std::string& sentence) { parts_.output.say_sentence(sentence); }
  ElasticJob::Effects effects();

  JobParts parts_;
  ElasticJob job_;
  AgentTries tries_;
};

}  // namespace rueda::launch
