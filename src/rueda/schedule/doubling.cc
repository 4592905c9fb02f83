#include "rueda/schedule/doubling.h"

#include "rueda/schedule/reduction_order.h"

namespace rueda::schedule {

void exchange_sums(Builder& builder, ReduceOp op, const Doubling& among, const Slice& own, const Slice& out) {
  const Hypercube cube(among.places);
  if (cube.folds_in(among.me)) {
    builder.send(among.rank_of(among.me + 1), own);
    builder.recv(among.rank_of(among.me + 1), out);
    return;
  }
  // Two sums alternate: one is sent while the other is computed.
  const int64_t need = among.places > 1 ? own.count : 0;
  const Slice sums[2] = {builder.scratch(need), builder.scratch(need)};
  const Slice theirs = builder.scratch(is_commutative(op) ? 0 : need);
  int32_t made = 0;
  Slice current = own;
  const auto add = [&](Rank place, WireType wire, bool is_before_mine) {
    const CombineTarget where{.to = sums[made++ % 2], .recv_slice = theirs};
    const Operand got = from_peer(among.rank_of(place), wire);
    const Operand held = mine(current);
    current =
        (is_before_mine ? combine(builder, op, got, held, where) : combine(builder, op, held, got, where))
            .own;
  };
  if (cube.takes_one_in(among.me)) add(among.me - 1, among.wire_of(among.me - 1), true);
  const int32_t corner = cube.corner_of(among.me);
  for (int32_t distance = 1; distance < cube.size; distance *= 2) {
    const int32_t other = corner ^ distance;
    const Rank place = cube.rank_at(other);
    const bool is_first = distance == 1 && !cube.takes_one_in(place);
    builder.send(among.rank_of(place), current);
    add(place, is_first ? among.wire_of(place) : WireType::kAccumulator, other < corner);
  }
  builder.deliver(out, current);
  if (cube.takes_one_in(among.me)) builder.send(among.rank_of(among.me - 1), out);
}

}  // namespace rueda::schedule
