#include "rueda/schedule/fold.h"

#include "rueda/base/check.h"

namespace rueda::schedule {

bool is_commutative(ReduceOp op) { return op == ReduceOp::kSum || op == ReduceOp::kProduct; }

void Fold::add(const Term& term, std::optional<Slice> last_to) {
  const bool is_mine = term.peer < 0;
  const Slice to = last_to.value_or(acc_);
  if (!value_ && !pending_) {
    if (is_mine)
      value_ = term.own;
    else
      pending_ = term;
    return;
  }
  if (pending_ && is_mine && is_commutative(op_)) {
    builder_.recv_reduce(pending_->peer, to, term.own, pending_->wire);
    pending_.reset();
    value_ = to;
    return;
  }
  const Slice left = value();
  if (is_mine)
    builder_.reduce(to, left, term.own);
  else
    builder_.recv_reduce(term.peer, to, left, term.wire);
  value_ = to;
}

Slice Fold::value() {
  if (pending_) {
    builder_.recv(pending_->peer, acc_, pending_->wire);
    pending_.reset();
    value_ = acc_;
  }
  RUEDA_CHECK(value_.has_value(), "a fold needs a term");
  return *value_;
}

Slice fold_hosts(Builder& builder, ReduceOp op, const std::vector<std::vector<Term>>& hosts,
                 const FoldSpace& space) {
  Fold total(builder, op, space.total);
  for (size_t host = 0; host < hosts.size(); ++host) {
    const auto& terms = hosts[host];
    const std::optional<Slice> last_to = host + 1 == hosts.size() ? space.last_to : std::nullopt;
    const bool is_plain = host == 0 || terms.size() == 1;  // a fold that starts empty needs no bracket
    Fold partial(builder, op, space.partial);
    Fold& fold = is_plain ? total : partial;
    for (size_t i = 0; i < terms.size(); ++i)
      fold.add(terms[i], is_plain && i + 1 == terms.size() ? last_to : std::nullopt);
    if (!is_plain) total.add(mine(partial.value()), last_to);
  }
  return total.value();
}

}  // namespace rueda::schedule
