// The backends of a session, best first. Which one runs a call is asked for each call. Engine thread only.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "rueda/backend/backend.h"

namespace rueda::backend {

class BackendTable {
 public:
  explicit BackendTable(std::vector<std::unique_ptr<Backend>> best_first);

  // The first that accepts such a call; null where none does. The same on every member of the group.
  [[nodiscard]] Backend* choose(const Group& group, const schedule::Spec& spec, const Memory& memory) const;
  [[nodiscard]] std::span<const std::unique_ptr<Backend>> all() const { return backends_; }

  // As Backend, of all of them.
  [[nodiscard]] bool is_idle() const;
  bool prepare_sleep();
  void wake_up();
  void abort(const Status& why);

 private:
  std::vector<std::unique_ptr<Backend>> backends_;
};

}  // namespace rueda::backend
