// The Schedule. A collective algorithm is a pure function (spec, topology, rank) -> Schedule. A schedule
// can be printed, verified for any world size, priced, cached, replayed and simulated without a socket
// or a clock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rueda/base/types.h"

namespace rueda::schedule {

// The buffers of a call. Input and output hold elements of the spec's dtype, scratch holds elements
// of accumulator_of(dtype) when the collective reduces and of dtype otherwise. For allreduce and
// broadcast, input and output may be the same memory, and the schedule must be right then, too (the
// verifier checks both).
//
// Only calls with a wire type have a wire buffer. It holds encoded blocks of kWireBlock elements, and its
// slices are whole blocks, counted in elements. Its first spec.count elements are what this rank encodes for
// its host, each at its place in the call; the next spec.count are the results; what arrives follows.
enum class Buffer : uint8_t { kInput, kOutput, kScratch, kWire };
inline constexpr int kBufferCount = 4;

struct Slice {
  Buffer buffer = Buffer::kInput;
  int64_t begin = 0;  // elements
  int64_t count = 0;  // elements
  bool operator==(const Slice&) const = default;
};

enum class StepKind : uint8_t {
  kSend,        // from -> peer, in the element type of `from`
  kRecv,        // peer -> to. Elements that arrive in scratch are widened.
  kRecvReduce,  // to = from op (what peer sent). `to` is scratch, or output when that is the same type;
                // `from` is any slice of mine with the same count (widened when it is input or output).
  kCopy,        // to = from (widening into scratch; when reducing, never scratch -> output: that is kFinish).
                // Whatever reads the wire buffer, apart from a send, decodes it.
  kReduce,      // to = from op from2: a local reduction. `to` is scratch, or output when that is the same
                // type; from and from2 are any slices of mine (widened when they are input or output)
  kFinish,      // to (output) = round(scale(from)), from scratch or from output itself (then only scaling)
  kAdasum,      // to = adasum(from, from2), all in output or scratch; each segment of the call by itself
  kEncode,      // to (wire) = from + residual, from in input or scratch; the residual is what this loses then
};

// The element type on the wire, which the receiver must know.
enum class WireType : uint8_t { kElement, kAccumulator, kEncoded };

struct Step {
  StepKind kind = StepKind::kCopy;
  Rank peer = -1;  // index in the group; only for sends and receives
  Slice to = {}, from = {}, from2 = {};
  WireType wire = WireType::kElement;
  std::vector<int32_t> after = {};  // indices of earlier steps that must be complete before this one starts
};

inline bool is_receive(const Step& step) {
  return step.kind == StepKind::kRecv || step.kind == StepKind::kRecvReduce;
}

inline bool is_message(const Step& step) { return step.kind == StepKind::kSend || is_receive(step); }

// Sends to one peer, and receives from one peer, are posted in the order of the list: channels are FIFO, and
// the i-th receive from a peer meets its i-th send. A step may start when everything in `after` is complete.
struct Schedule {
  std::vector<Step> steps;
  int64_t scratch_count = 0;  // elements of scratch
  int64_t wire_count = 0;     // elements of the wire buffer
  std::string_view name;      // of the algorithm; static, ends with a null
};

// The collective that a call must compute: one (possibly fused) collective over a group.
struct Spec {
  Collective what = Collective::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;  // kAverage never arrives here: it is kSum with a Scale
  int64_t count = 0;             // allreduce, broadcast: elements; reducescatter: elements of the input
  // allgather: elements contributed by each rank. reducescatter: elements each rank receives; sums to count.
  // alltoall: n*n matrix, counts[src * n + dst] elements. Allreduce with a wire type: whole blocks that each
  // rank owns; sums to count. Otherwise empty.
  std::vector<int64_t> counts;
  Rank root = -1;                       // broadcast: index in the group
  Scale scale;                          // applied once, where a reduced element is finished
  std::vector<int64_t> segment_counts;  // Adasum: elements of each tensor in a fused call; otherwise empty
  Wire wire = Wire::kExact;             // between hosts; another one for allreduces that sum float32
  CallTuning tuning = {};               // a wish, which changes no bit; the same on every rank

  bool operator==(const Spec&) const = default;
};

// Whether each member waits for something from every other one, so that none can end such a call before all
// have started it. The root of a broadcast waits for nobody, and nobody waits for what has no elements.
inline bool waits_for_all(const Spec& spec) {
  if (spec.what == Collective::kBroadcast) return false;
  if (spec.what == Collective::kBarrier) return true;
  const bool has_one_count = spec.counts.empty() || spec.what == Collective::kAllreduce;
  return has_one_count ? spec.count > 0 : std::ranges::find(spec.counts, 0) == spec.counts.end();
}

std::string to_string(const Schedule& schedule);  // one step a line, for people and golden tests

}  // namespace rueda::schedule
