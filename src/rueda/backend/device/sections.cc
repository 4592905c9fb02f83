#include "rueda/backend/device/sections.h"

#include <algorithm>

#include "rueda/backend/packing.h"

namespace rueda::backend {
namespace {

// Sections of one tensor begin at multiples of this, so that copies stay aligned.
constexpr int64_t kElements = 64;

// Where section `index` of `sections` begins in a block of `count` elements.
int64_t share_begin(int64_t count, int64_t index, int64_t sections) {
  if (index >= sections) return count;
  const int64_t exact = count / sections * index + count % sections * index / sections;
  return exact / kElements * kElements;
}

// A part of a tensor that belongs to one member, or from one to another.
struct Block {
  size_t segment = 0;
  int64_t begin = 0;  // in the tensor
  int64_t count = 0;
};

class Cutter {
 public:
  Cutter(const Call& call, int64_t sections) : call_(call), sections_(sections) {}

  Section section(int64_t index) const {
    Section made;
    made.spec = call_.spec;
    made.spec.counts = counts(index);
    made.is_in_place = !has_counts();
    if (made.is_in_place) {
      made.in = range(index, made.given);
      made.out = made.in;
      made.taken = made.spec.count = made.given;
      return made;
    }
    made.in = runs(inputs(), index, made.given);
    made.out = runs(outputs(), index, made.taken);
    if (call_.spec.what == Collective::kReducescatter) {
      made.spec.count = 0;
      for (const int64_t one : made.spec.counts) made.spec.count += one;
    }
    return made;
  }

 private:
  [[nodiscard]] bool has_counts() const { return !call_.spec.counts.empty(); }
  [[nodiscard]] int64_t share(int64_t count, int64_t index) const {
    return share_begin(count, index + 1, sections_) - share_begin(count, index, sections_);
  }

  // A range of all tensors as one run of elements.
  [[nodiscard]] std::vector<SectionRun> range(int64_t index, int64_t& total) const {
    const int64_t first = share_begin(call_.spec.count, index, sections_);
    const int64_t last = share_begin(call_.spec.count, index + 1, sections_);
    std::vector<SectionRun> made;
    int64_t tensor = 0;  // where the tensor begins in the run
    for (size_t s = 0; s < call_.segments.size(); ++s) {
      const int64_t begin = std::max(first, tensor), end = std::min(last, tensor + call_.segments[s].count);
      if (begin < end)
        made.push_back({.segment = s, .begin = begin - tensor, .at = begin - first, .count = end - begin});
      tensor += call_.segments[s].count;
    }
    total = last - first;
    return made;
  }

  // Of each block, what lies in this section; `total` counts the elements.
  [[nodiscard]] std::vector<SectionRun> runs(const std::vector<Block>& blocks, int64_t index,
                                             int64_t& total) const {
    std::vector<SectionRun> made;
    total = 0;
    for (const Block& block : blocks) {
      const int64_t begin = share_begin(block.count, index, sections_);
      const int64_t count = share(block.count, index);
      if (count > 0)
        made.push_back({.segment = block.segment, .begin = block.begin + begin, .at = total, .count = count});
      total += count;
    }
    return made;
  }

  [[nodiscard]] std::vector<int64_t> counts(int64_t index) const {
    std::vector<int64_t> sums(call_.spec.counts.size(), 0);
    for (const Segment& segment : call_.segments)
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += share(segment.counts[i], index);
    return sums;
  }

  // Blocks of the tensors, one member after the other: those that member m gives or takes. count_of(segment,
  // m).
  template <class F>
  [[nodiscard]] std::vector<Block> for_members(const F& count_of) const {
    std::vector<Block> blocks;
    std::vector<int64_t> begins(call_.segments.size(), 0);
    for (Rank member = 0; member < call_.group->size(); ++member) {
      for (size_t s = 0; s < call_.segments.size(); ++s) {
        const int64_t count = count_of(call_.segments[s], static_cast<size_t>(member));
        blocks.push_back({.segment = s, .begin = begins[s], .count = count});
        begins[s] += count;
      }
    }
    return blocks;
  }
  // Whole tensors, each with what this member gives or takes of it.
  template <class F>
  [[nodiscard]] std::vector<Block> whole(const F& count_of) const {
    std::vector<Block> blocks;
    for (size_t s = 0; s < call_.segments.size(); ++s)
      blocks.push_back({.segment = s, .begin = 0, .count = count_of(call_.segments[s])});
    return blocks;
  }

  // Destination-major, as the collective defines its input.
  [[nodiscard]] std::vector<Block> inputs() const {
    const auto me = static_cast<size_t>(call_.group->me), n = static_cast<size_t>(call_.group->size());
    switch (call_.spec.what) {
      case Collective::kReducescatter:
        return for_members([](const Segment& segment, size_t to) { return segment.counts[to]; });
      case Collective::kAlltoall:
        return for_members([&](const Segment& segment, size_t to) { return segment.counts[me * n + to]; });
      default:  // allgather
        return whole([&](const Segment& segment) { return segment.counts[me]; });
    }
  }
  // Source-major.
  [[nodiscard]] std::vector<Block> outputs() const {
    const auto me = static_cast<size_t>(call_.group->me), n = static_cast<size_t>(call_.group->size());
    switch (call_.spec.what) {
      case Collective::kAllgather:
        return for_members([](const Segment& segment, size_t from) { return segment.counts[from]; });
      case Collective::kAlltoall:
        return for_members(
            [&](const Segment& segment, size_t from) { return segment.counts[from * n + me]; });
      default:  // reducescatter
        return whole([&](const Segment& segment) { return segment.counts[me]; });
    }
  }

  const Call& call_;
  int64_t sections_;
};

// Of the member that needs most, so that all members come to the same number.
int64_t most_elements(const Call& call) {
  if (call.spec.counts.empty()) return call.spec.count;
  int64_t most = 0;
  for (Rank member = 0; member < call.group->size(); ++member) {
    int64_t elements = 0;
    for (const Segment& segment : call.segments) {
      // The count of a segment is this member's own input; that of another member follows from the counts.
      Segment of_member = segment;
      if (call.spec.what == Collective::kReducescatter) {
        of_member.count = 0;
        for (const int64_t one : segment.counts) of_member.count += one;
      }
      elements += elements_given(call.spec.what, of_member, member, call.group->size()) +
                  elements_taken(call.spec.what, of_member, member, call.group->size());
    }
    most = std::max(most, elements);
  }
  return most;
}

}  // namespace

std::vector<Section> cut(const Call& call, size_t section_bytes) {
  const auto element = static_cast<int64_t>(size_of(call.spec.dtype));
  const int64_t most = std::max<int64_t>(static_cast<int64_t>(section_bytes) / element, kElements);
  const bool is_whole = call.spec.op == ReduceOp::kAdasum && call.spec.what == Collective::kAllreduce;
  const int64_t sections = is_whole ? 1 : std::max<int64_t>((most_elements(call) + most - 1) / most, 1);
  const Cutter cutter(call, sections);
  std::vector<Section> made;
  made.reserve(static_cast<size_t>(sections));
  for (int64_t index = 0; index < sections; ++index) made.push_back(cutter.section(index));
  return made;
}

}  // namespace rueda::backend
