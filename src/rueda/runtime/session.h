// What an init has made and an engine lives on: the connected job of one epoch. Owned by the engine.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rueda/backend/table.h"
#include "rueda/base/config.h"
#include "rueda/base/types.h"
#include "rueda/base/unique_fd.h"
#include "rueda/runtime/calibrate.h"
#include "rueda/runtime/facts.h"
#include "rueda/runtime/links.h"
#include "rueda/trace/timeline.h"

namespace rueda::runtime {

// What bootstrap hands over: a connected world.
struct Session {
  Config config;
  Rank me = 0;
  Epoch epoch = 0;
  std::unique_ptr<std::vector<Facts>> all;  // stable address: links and backend refer to it
  Place place;
  std::string launcher, launcher_reason;
  std::unique_ptr<Links> links;  // null for a world of one
  std::unique_ptr<backend::BackendTable> backends;
  bool reduces_in_shared_memory = false;  // the ranks of one host
  UniqueFd bell;  // an eventfd: wakes the engine thread; peers of this host ring it as well
  std::function<void(const transport::Completion&)> on_data;  // feeds the backend
  MeasuredLinks measured;
  int64_t first_handle = 1;                   // larger than any handle this process has given out
  std::shared_ptr<trace::Timeline> timeline;  // of this process's earlier epochs; null: there were none

  [[nodiscard]] Rank size() const { return static_cast<Rank>(all->size()); }
};

}  // namespace rueda::runtime
