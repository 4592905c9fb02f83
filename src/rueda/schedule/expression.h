// The value of an element as a formula over the inputs of the ranks. Equal formulas have equal numbers, so
// two ranks have equal bits exactly if their numbers are equal. For the verifier; one thread.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "rueda/schedule/step.h"

namespace rueda::schedule {

using Expr = int32_t;
inline constexpr Expr kUnwritten = -1;

class Expressions {
 public:
  explicit Expressions(const Spec& spec);

  Expr leaf(Rank rank);          // an element of a rank's input
  Expr combine(Expr a, Expr b);  // a op b
  Expr adasum(Expr a, Expr b);
  Expr encoded(Expr a, Rank by);  // by another rank, the bits may differ: each has errors of its own
  Expr finish(Expr a);            // scaled and rounded; returns a itself if that changes nothing

  [[nodiscard]] bool is_finished(Expr e) const { return nodes_[e].kind == Kind::kFinish; }
  [[nodiscard]] Expr unfinished(Expr e) const { return is_finished(e) ? nodes_[e].a : e; }
  // The ranks whose inputs occur in e, in ascending order, one entry per occurrence.
  [[nodiscard]] const std::vector<Rank>& ranks_in(Expr e) const { return nodes_[e].ranks; }
  [[nodiscard]] std::string to_string(Expr e) const;  // "((0 op 1) op 2)"

 private:
  enum class Kind { kLeaf, kCombine, kAdasum, kFinish, kEncoded };
  struct Node {
    Kind kind;
    int32_t a = 0, b = 0;
    std::vector<Rank> ranks;
  };
  Expr intern(Kind kind, int32_t a, int32_t b);

  const Spec& spec_;
  std::vector<Node> nodes_;
  std::map<std::tuple<Kind, int32_t, int32_t>, Expr> numbers_;
};

}  // namespace rueda::schedule
