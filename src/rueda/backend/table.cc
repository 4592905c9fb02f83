#include "rueda/backend/table.h"

#include <algorithm>
#include <utility>

namespace rueda::backend {

BackendTable::BackendTable(std::vector<std::unique_ptr<Backend>> best_first, std::string why_no_devices)
    : backends_(std::move(best_first)), why_no_devices_(std::move(why_no_devices)) {
  RUEDA_CHECK(!backends_.empty(), "a table needs at least one backend");
}

Backend* BackendTable::choose(const Group& group, const schedule::Spec& spec, const Memory& memory) const {
  for (const auto& backend : backends_)
    if (backend->accepts(group, spec, memory)) return backend.get();
  return nullptr;
}

bool BackendTable::is_idle() const {
  return std::ranges::all_of(backends_, [](const auto& backend) { return backend->is_idle(); });
}

bool BackendTable::needs_polling() const {
  return std::ranges::any_of(backends_, [](const auto& backend) { return backend->needs_polling(); });
}

bool BackendTable::prepare_sleep() {
  for (const auto& backend : backends_)
    if (!backend->prepare_sleep()) return false;
  return true;
}

void BackendTable::wake_up() {
  for (const auto& backend : backends_) backend->wake_up();
}

void BackendTable::abort(const Status& why) {
  for (const auto& backend : backends_) backend->abort(why);
}

}  // namespace rueda::backend
