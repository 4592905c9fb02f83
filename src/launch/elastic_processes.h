// The processes of an elastic job, by number and by name. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/ending.h"
#include "launch/slots.h"
#include "rueda/base/clock.h"
#include "rueda/membership/view.h"

namespace rueda::launch {

struct ElasticProcess {
  Slots::Place place;
  membership::Uid uid;
  Nanos started = 0;
  int64_t after = 0;  // of its last word
  Nanos stopped = 0;  // since when; 0: it is not
  bool has_ended = false, has_failed = false, is_told_to_end = false;
  bool is_leaving = false;      // it was told to
  std::string ended_because{};  // by rueda
};

// One thread.
class ElasticProcesses {
 public:
  explicit ElasticProcesses(int size) { processes_.reserve(static_cast<size_t>(size)); }

  ElasticProcess& add(const Slots::Place& place, Nanos now);
  [[nodiscard]] int size() const { return static_cast<int>(processes_.size()); }
  [[nodiscard]] auto begin() const { return processes_.begin(); }
  [[nodiscard]] auto end() const { return processes_.end(); }
  [[nodiscard]] ElasticProcess& at(int number) { return processes_[static_cast<size_t>(number)]; }
  [[nodiscard]] const ElasticProcess& at(int number) const { return processes_[static_cast<size_t>(number)]; }
  // Empty: it belongs to no process of this job.
  [[nodiscard]] std::optional<int> number_of(const membership::Uid& uid) const;
  [[nodiscard]] const ElasticProcess& of(const membership::Member& member) const;
  // With what is known here about a process that rueda has ended.
  [[nodiscard]] Ending corrected(Ending ending) const;

 private:
  std::vector<ElasticProcess> processes_;   // by number
  std::map<membership::Uid, int> numbers_;  // of processes
};

}  // namespace rueda::launch
