// Names whose rows were the same in every step until a plan was made of them, and were others then: from then
// on their rows vary. Names with a running number are told apart by the steps alone. Keys are those of
// CallHistory. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace rueda::control {

class VaryingNames {
 public:
  // A plan is made of other tensors from now on.
  void plan_begins() { planned_.clear(); }
  // It has such a tensor with fixed rows. alike: the key without rows.
  void planned(std::string alike, std::string exact) { planned_[std::move(alike)].insert(std::move(exact)); }
  // Such a tensor ran without a plan.
  void saw(const std::string& alike, const std::string& exact) {
    const auto known = planned_.find(alike);
    if (known == planned_.end() || known->second.contains(exact)) return;
    if (varying_.size() >= kMostNames) varying_.clear();
    varying_.insert(alike);
  }
  [[nodiscard]] bool varies(const std::string& alike) const { return varying_.contains(alike); }

 private:
  static constexpr size_t kMostNames = 1 << 14;
  std::unordered_map<std::string, std::unordered_set<std::string>> planned_;
  std::unordered_set<std::string> varying_;
};

}  // namespace rueda::control
