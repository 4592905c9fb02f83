// Reductions in a fixed order. The canonical association of a topology, which every order-preserving
// algorithm computes for every element: within each host from the first rank to the last, then the hosts by
// the tree of a hypercube (hypercube.h), neighbours first,
//   ((x0 + x1) + x2) + ((x3 + x4) + x5)              for hosts {0,1,2} and {3,4,5},
//   (x0 + x1) + (x2 + x3)                            for four hosts of one rank,
//   ((x0 + x1) + x2) + (x3 + x4)                     for five: the first two share a corner.
// It is a tree, because recursive doubling and halving compute a tree in log2 steps, in each of which a host
// receives from one other host.
#pragma once

#include <optional>
#include <vector>

#include "rueda/schedule/builder.h"

namespace rueda::schedule {

// One operand: a slice of mine, or data that a peer sends.
struct Operand {
  Rank peer = -1;  // -1 = mine
  Slice own;
  WireType wire = WireType::kElement;

  [[nodiscard]] bool is_mine() const { return peer < 0; }
};

inline Operand mine(const Slice& own) { return {.peer = -1, .own = own, .wire = WireType::kElement}; }
inline Operand from_peer(Rank peer, WireType wire) { return {.peer = peer, .own = {}, .wire = wire}; }

// Whether the operands may be swapped without changing a bit. (The payload of a NaN does not count.) This is
// not so for Min and Max, because of +0 and -0.
bool is_commutative(ReduceOp op);

// Computes to = left op right. If left must be received and cannot be added directly, it is received into
// `recv_slice`, which right must not use. recv_slice may be the same as `to` unless right lies there.
struct CombineTarget {
  Slice to, recv_slice;
};
Operand combine(Builder& builder, ReduceOp op, const Operand& left, const Operand& right,
                const CombineTarget& where);
// Returns the operand as a slice of mine. If a peer sends it, it is received into `recv_slice` first.
Slice arrived(Builder& builder, const Operand& operand, const Slice& recv_slice);

// Reduces from left to right. At least one operand is needed. A single operand of mine stays where it is.
Operand reduce_operands(Builder& builder, ReduceOp op, const std::vector<Operand>& operands,
                        const Slice& scratch, std::optional<Slice> last_to = {});

// The scratch of a reduction. levels: reduction_levels() slices. last_to, if given, takes the result of the
// last addition instead.
struct ReductionScratch {
  std::vector<Slice> levels;
  std::optional<Slice> last_to = {};
};
int32_t reduction_levels(const std::vector<std::vector<Rank>>& hosts);
int32_t reduction_levels(int32_t hosts);  // hosts with one operand each
// Reduces the operands of all hosts, which are listed host by host in rank order.
Slice reduce_host_operands(Builder& builder, ReduceOp op, const std::vector<std::vector<Operand>>& hosts,
                           const ReductionScratch& scratch);

}  // namespace rueda::schedule
