// Writes a schedule in the order in which one would execute it by hand. The builder derives the dependencies
// from what each step reads and writes, so an algorithm states none. Where input and output may be the same
// memory (allreduce, broadcast), they count as the same. One thread, one schedule.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "rueda/schedule/hazards.h"
#include "rueda/schedule/step.h"

namespace rueda::schedule {

using StepId = int32_t;
inline constexpr StepId kNoStep = -1;  // the result for an empty slice, which makes no step

inline Slice input(int64_t begin, int64_t count) { return {Buffer::kInput, begin, count}; }
inline Slice output(int64_t begin, int64_t count) { return {Buffer::kOutput, begin, count}; }
// The elements [offset, offset + count) of a slice.
Slice part(const Slice& slice, int64_t offset, int64_t count);

// Input and output of such a call may be the same memory.
bool may_alias(Collective what);
// Partial reductions may live in the output: its type is the accumulator's.
bool can_accumulate_in_output(const Spec& spec);

class Builder {
 public:
  explicit Builder(const Spec& spec);

  // Scratch that overlaps no earlier one, aligned to cache lines.
  Slice scratch(int64_t count);
  // Room for encoded blocks behind what was reserved before.
  Slice wire(int64_t count);
  // The element type of a slice of mine on the wire. Its receiver must name the same.
  [[nodiscard]] WireType wire_of(const Slice& from) const;

  StepId send(Rank peer, const Slice& from);
  StepId recv(Rank peer, const Slice& to, WireType wire = WireType::kElement);
  StepId recv_reduce(Rank peer, const Slice& to, const Slice& from, WireType wire);
  StepId copy(const Slice& to, const Slice& from);
  StepId reduce(const Slice& to, const Slice& from, const Slice& from2);
  StepId adasum(const Slice& to, const Slice& from, const Slice& from2);
  StepId finish(const Slice& to, const Slice& from);
  StepId encode(const Slice& to, const Slice& from);

  // Messages without data. They are never left out.
  StepId signal(Rank peer);
  StepId await(Rank peer);

  // An order that the data does not require, for pacing and signals. No effect if either is kNoStep.
  void order(StepId later, StepId earlier);

  // Brings a reduced (or, alone in a group, the unreduced) value to the output and scales it: every element
  // of the result passes here once.
  void deliver(const Slice& to, const Slice& value);

  Schedule take(std::string_view name);

 private:
  StepId add(Step step);
  void depend(const Slice& slice, bool is_write, std::vector<int32_t>& after);

  const Spec& spec_;
  Schedule schedule_;
  std::array<Hazards, kBufferCount> hazards_;  // by Buffer; aliased ones share the first
};

}  // namespace rueda::schedule
