#include "rueda/schedule/expression.h"

#include <algorithm>
#include <iterator>

#include "rueda/schedule/builder.h"
#include "rueda/schedule/reduction_order.h"

namespace rueda::schedule {

Expressions::Expressions(const Spec& spec) : spec_(spec) {}

Expr Expressions::leaf(Rank rank) { return intern(Kind::kLeaf, rank, 0); }

Expr Expressions::combine(Expr a, Expr b) {
  if (is_commutative(spec_.op) && b < a) std::swap(a, b);
  return intern(Kind::kCombine, a, b);
}

Expr Expressions::adasum(Expr a, Expr b) { return intern(Kind::kAdasum, a, b); }

Expr Expressions::encoded(Expr a, Rank by) { return intern(Kind::kEncoded, a, by); }

Expr Expressions::finish(Expr a) {
  const bool rounds = !can_accumulate_in_output(spec_) && nodes_[a].kind != Kind::kLeaf;
  if (spec_.scale.is_identity() && !rounds) return a;
  return intern(Kind::kFinish, a, 0);
}

std::string Expressions::to_string(Expr e) const {
  if (e == kUnwritten) return "unwritten";
  const Node& node = nodes_[e];
  if (node.kind == Kind::kLeaf) return std::to_string(node.a);
  if (node.kind == Kind::kFinish) return "finish(" + to_string(node.a) + ")";
  if (node.kind == Kind::kEncoded)
    return "encoded by " + std::to_string(node.b) + "(" + to_string(node.a) + ")";
  const char* name = node.kind == Kind::kCombine ? " op " : " adasum ";
  return "(" + to_string(node.a) + name + to_string(node.b) + ")";
}

Expr Expressions::intern(Kind kind, int32_t a, int32_t b) {
  const auto [place, is_new] = numbers_.try_emplace({kind, a, b}, static_cast<Expr>(nodes_.size()));
  if (!is_new) return place->second;
  Node node{.kind = kind, .a = a, .b = b, .ranks = {}};
  if (kind == Kind::kLeaf) {
    node.ranks = {a};
  } else if (kind == Kind::kFinish || kind == Kind::kEncoded) {
    node.ranks = nodes_[a].ranks;
  } else {
    std::merge(nodes_[a].ranks.begin(), nodes_[a].ranks.end(), nodes_[b].ranks.begin(), nodes_[b].ranks.end(),
               std::back_inserter(node.ranks));
  }
  nodes_.push_back(std::move(node));
  return place->second;
}

}  // namespace rueda::schedule
