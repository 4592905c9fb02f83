// Where the launcher answers `rueda status` for other hosts: a UNIX socket beside those of the ranks. A
// thread takes one question at a time, the launcher's loop passes it on to the agents, and the thread waits
// for what they say, as long as the question allows.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "launch/host_link.h"
#include "launch/poll_set.h"
#include "launch/status_query.h"
#include "rueda/status/endpoint.h"

namespace rueda::launch {

class StatusServer {
 public:
  ~StatusServer();

  // hosts: the other hosts of the job and their ranks. Nothing is opened if there are none.
  Status open(const std::string& folder, std::vector<status::HostAnswer> hosts);
  // The same of an elastic job, whose hosts and ranks change.
  Status offer(const std::string& folder, std::vector<status::HostAnswer> hosts);

  // The launcher's loop only.
  void watch(PollSet& set, std::span<HostLink> links);
  void on_answer(const std::string& host, std::span<const std::byte> payload);

 private:
  std::string answer(const std::string& request);  // the endpoint's thread
  std::optional<status::JobAnswer> gather(const status::JobQuestion& question);
  [[nodiscard]] status::JobAnswer asked_by(const status::JobQuestion& question) const;
  void pass_on(std::span<HostLink> links);

  UniqueFd wake_;  // rung when there is a question for the loop
  std::mutex mutex_;
  std::vector<status::HostAnswer> hosts_;  // mutex_
  std::condition_variable told_;
  std::optional<StatusQuery> query_;  // mutex_
  std::optional<Question> to_pass_;   // mutex_
  bool is_closing_ = false;           // mutex_
  uint32_t last_id_ = 0;              // the endpoint's thread, as those below
  std::string last_request_, last_reply_;
  Nanos last_at_ = 0;
  std::unique_ptr<status::Endpoint> endpoint_;
};

}  // namespace rueda::launch
