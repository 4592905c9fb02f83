// The backends of a session, best first. The table is asked for each call which backend runs it.
// Engine thread only.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rueda/backend/backend.h"

namespace rueda::backend {

class BackendTable {
 public:
  // why_no_devices: why calls in device memory are accepted by none, though some rank could run them.
  explicit BackendTable(std::vector<std::unique_ptr<Backend>> best_first, std::string why_no_devices = {});

  // Returns the first backend that accepts such a call, or null. The same on every member of the group.
  [[nodiscard]] Backend* choose(const Group& group, const schedule::Spec& spec, const Memory& memory) const;
  [[nodiscard]] std::span<const std::unique_ptr<Backend>> all() const { return backends_; }

  [[nodiscard]] const std::string& why_no_devices() const { return why_no_devices_; }

  // The same as in Backend, for all of them.
  [[nodiscard]] bool is_idle() const;
  [[nodiscard]] bool needs_polling() const;
  bool prepare_sleep();
  void wake_up();
  void abort(const Status& why);

 private:
  std::vector<std::unique_ptr<Backend>> backends_;
  std::string why_no_devices_;
};

}  // namespace rueda::backend
