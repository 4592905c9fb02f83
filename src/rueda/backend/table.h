// The backends of a session, best first. The table is asked for each call which backend runs it.
// Engine thread only.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "rueda/backend/backend.h"

namespace rueda::backend {

class BackendTable {
 public:
  explicit BackendTable(std::vector<std::unique_ptr<Backend>> best_first);

  // Returns the first backend that accepts such a call, or null. The same on every member of the group.
  [[nodiscard]] Backend* choose(const Group& group, const schedule::Spec& spec, const Memory& memory) const;
  [[nodiscard]] std::span<const std::unique_ptr<Backend>> all() const { return backends_; }

  // The same as in Backend, for all of them.
  [[nodiscard]] bool is_idle() const;
  [[nodiscard]] bool needs_polling() const;
  bool prepare_sleep();
  void wake_up();
  void abort(const Status& why);

 private:
  std::vector<std::unique_ptr<Backend>> backends_;
};

}  // namespace rueda::backend
