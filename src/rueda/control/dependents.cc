#include "rueda/control/dependents.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace rueda::control {
namespace {

bool contains(const Finished& finished, uint64_t id) {
  return std::ranges::any_of(finished.tensors, [id](const auto& tensor) { return tensor->id == id; });
}

}  // namespace

const PendingTensor* Dependents::find(const NameInSet& name) const {
  for (const Waiting& one : waiting_) {
    if (one.dependent.process_set != name.process_set) continue;
    for (const auto& tensor : one.dependent.finished.tensors)
      if (tensor->name == name.name) return tensor.get();
  }
  return nullptr;
}

std::vector<const PendingTensor*> Dependents::of_set(int32_t process_set) const {
  std::vector<const PendingTensor*> tensors;
  for (const Waiting& one : waiting_)
    if (one.dependent.process_set == process_set)
      for (const auto& tensor : one.dependent.finished.tensors) tensors.push_back(tensor.get());
  return tensors;
}

// Whether the tensor waits here for one of the others, perhaps through more of them.
bool Dependents::waits_for(uint64_t tensor, const Finished& others) const {
  std::vector<uint64_t> open = {tensor};
  std::set<uint64_t> seen(open.begin(), open.end());
  while (!open.empty()) {
    const uint64_t id = open.back();
    open.pop_back();
    const auto at = std::ranges::find_if(
        waiting_, [id](const Waiting& one) { return contains(one.dependent.finished, id); });
    if (at == waiting_.end()) continue;
    for (const uint64_t before : at->after) {
      if (contains(others, before)) return true;
      if (seen.insert(before).second) open.push_back(before);
    }
  }
  return false;
}

bool Dependents::take(Complete& dependent, std::set<uint64_t> after) {
  std::erase_if(after, [&](uint64_t id) { return waits_for(id, dependent.finished); });
  if (after.empty()) return false;
  waiting_.push_back({.dependent = std::move(dependent), .after = std::move(after)});
  return true;
}

std::vector<Complete> Dependents::after(const Finished& ordered) {
  std::vector<Complete> free;
  std::vector<uint64_t> ids;
  for (const auto& tensor : ordered.tensors) ids.push_back(tensor->id);
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    for (const uint64_t id : ids) at->after.erase(id);
    if (!at->after.empty()) {
      ++at;
      continue;
    }
    for (const auto& tensor : at->dependent.finished.tensors) ids.push_back(tensor->id);
    free.push_back(std::move(at->dependent));
    waiting_.erase(at);
    at = waiting_.begin();  // an earlier one may follow it
  }
  return free;
}

std::vector<std::unique_ptr<PendingTensor>> Dependents::take_all(int32_t process_set) {
  std::vector<std::unique_ptr<PendingTensor>> tensors;
  for (Waiting& one : waiting_)
    if (one.dependent.process_set == process_set)
      std::ranges::move(one.dependent.finished.tensors, std::back_inserter(tensors));
  std::erase_if(waiting_, [=](const Waiting& one) { return one.dependent.process_set == process_set; });
  return tensors;
}

}  // namespace rueda::control
