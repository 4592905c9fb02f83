// What a random program of sums with wire types must give, computed in one process. Pure.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "../unit/wire_reference.h"
#include "residual_program.h"

namespace rueda::runtime::residual_program {

// The residual of a tensor: as in a sum in one process.
struct Kept {
  int64_t count = 0;
  std::vector<Rank> members;
  wire_test::Model model;
};
using Residuals = std::map<std::pair<Set, std::string>, Kept>;

// What a program must give.
struct Expected {
  std::map<std::pair<size_t, std::string>, Floats> results;  // by round and name with its set
  std::map<size_t, Residuals> residuals;                     // by round, of kCheck
  int64_t encoded = 0, refused = 0, joined = 0, removed = 0;
};

inline std::string key_of(const Item& item) {
  return item.name + "@" + std::to_string(static_cast<int>(item.set));
}

class Oracle {
 public:
  explicit Oracle(const Program& program) : program_(program) {}

  Expected run() {
    for (round_ = 0; round_ < program_.rounds.size(); ++round_) {
      const Round& round = program_.rounds[round_];
      const size_t first = round.kind == Kind::kRefused ? 1 : 0;
      for (size_t i = first; i < round.items.size(); ++i) sum(round, round.items[i]);
      change(round);
    }
    return std::move(expected_);
  }

 private:
  void change(const Round& round) {
    switch (round.kind) {
      case Kind::kRefused:
        ++expected_.refused;
        return;
      case Kind::kJoin:
        ++expected_.joined;
        return;
      case Kind::kRemoveSet:
        ++expected_.removed;
        return drop_dynamic();
      case Kind::kRescale:
        for (auto& [key, kept] : residuals_) {
          for (Floats& sent : kept.model.sent) scale(sent, round.factor);
          scale(kept.model.owned, round.factor);
        }
        return;
      case Kind::kSave:
        saved_ = residuals_;
        return;
      case Kind::kRestore:
        return restore(round, saved_);
      case Kind::kCheck:
        expected_.residuals[round_] = residuals_;
        return;
      case Kind::kEpoch:
        drop_dynamic();
        if (!round.carries) residuals_.clear();
        return;
      default:
        return;
    }
  }

  static void scale(Floats& values, float factor) {
    for (float& value : values) value *= factor;
  }
  void drop_dynamic() {
    std::erase_if(residuals_, [](const auto& one) { return one.first.first == Set::kDynamic; });
  }

  // Tensors that have another size now, and sets that are gone or have other members, begin anew.
  void restore(const Round& round, const Residuals& saved) {
    for (auto& [key, kept] : residuals_) kept.model = {};
    for (const auto& [key, kept] : saved) {
      const auto at = residuals_.find(key);
      const bool is_gone = key.first == Set::kDynamic && round.dynamic != kept.members;
      if (is_gone || (at != residuals_.end() && at->second.count != kept.count)) continue;
      residuals_[key] = kept;
    }
  }

  [[nodiscard]] std::vector<Floats> partials(const Round& round, const Item& item) const {
    std::string letters;
    std::vector<Floats> hosts;
    for (const Rank rank : program_.members(item, round)) {
      const auto me = static_cast<size_t>(rank);
      Floats values = program_.input(round_, item, rank);
      const bool is_away = !round.is_present.empty() && !round.is_present[me];
      for (float& value : values) value = is_away ? 0.0F : value * static_cast<float>(item.prescale);
      const size_t at = letters.find(program_.hosts[me]);
      if (at == std::string::npos) {
        letters += program_.hosts[me];
        hosts.push_back(std::move(values));
      } else {
        for (size_t i = 0; i < values.size(); ++i) hosts[at][i] += values[i];
      }
    }
    return hosts;
  }

  void sum(const Round& round, const Item& item) {
    const std::vector<Rank>& members = program_.members(item, round);
    const std::vector<Floats> parts = partials(round, item);
    const bool is_whole = !std::ranges::count(round.is_present, false);
    Floats total = parts[0];
    if (item.wire == Wire::kExact || item.count < 1024 || parts.size() < 2 || !is_whole) {
      for (size_t host = 1; host < parts.size(); ++host)
        for (size_t i = 0; i < total.size(); ++i) total[i] += parts[host][i];
    } else {
      total = encoded(members, item, parts);
    }
    const Scale scale{.factor = item.postscale,
                      .divisor = item.is_average ? static_cast<int64_t>(members.size()) : 1};
    for (float& value : total) value = kernels_test::scale_one(scale, false, value);
    expected_.results[{round_, key_of(item)}] = std::move(total);
  }

  Floats encoded(const std::vector<Rank>& members, const Item& item, const std::vector<Floats>& parts) {
    ++expected_.encoded;
    Kept once;
    const bool is_kept = !item.is_numbered && item.has_feedback;
    Kept& kept = is_kept ? residuals_[{item.set, item.name}] : once;
    if (kept.count != item.count) kept = {.count = item.count, .members = members, .model = {}};
    kept.model.wire = item.wire;
    return kept.model.sum(parts);
  }

  const Program& program_;
  size_t round_ = 0;
  Expected expected_;
  Residuals residuals_, saved_;
};

}  // namespace rueda::runtime::residual_program
