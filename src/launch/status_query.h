// One question to the hosts of a job, and what they have answered so far. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rueda/status/job_answer.h"

namespace rueda::launch {

class StatusQuery {
 public:
  // about: the hosts that are asked, without answers.
  StatusQuery(uint32_t id, status::JobAnswer about);

  // The first word about a host counts. An answer that makes the whole too long is replaced by the reason.
  void on_answer(const std::string& host, std::vector<status::ProcessAnswer> processes);
  void on_missing(const std::string& host, std::string why);

  [[nodiscard]] uint32_t id() const { return id_; }
  [[nodiscard]] bool is_complete() const { return waiting_ == 0; }
  // Hosts that have not answered are named.
  [[nodiscard]] status::JobAnswer result(int timeout_ms) &&;

 private:
  status::HostAnswer* waiting_for(const std::string& host);

  uint32_t id_;
  status::JobAnswer answer_;
  std::vector<bool> is_told_;  // [hosts]
  size_t waiting_;
  size_t bytes_ = 0;
};

}  // namespace rueda::launch
