// Elements in groups: a thread loads and stores 16 bytes at once where all addresses allow it. The elements
// before the first aligned one and after the last whole group go one by one, and so do all where the
// addresses are never aligned together.
#pragma once

#include "rueda/memory/cuda/device_table.h"

namespace rueda::cuda::device {

using Line = U32 __attribute__((vector_size(16)));  // the widest load of one thread
using LineOfAny [[gnu::may_alias]] = Line;          // of elements of any type

// Elements of one group where the narrowest of its types is Raw; wider types take several lines.
template <class Raw>
inline constexpr U32 kGroup = sizeof(Line) / sizeof(Raw);

template <class Raw, U32 kCount>
struct Group {
  Raw of[kCount];
};

// A number of elements that is known when a body is compiled.
template <U32 kOf>
struct Times {
  static constexpr U32 kCount = kOf;
};

// The elements of a line, the first in the lowest bits. Elements of less than 4 bytes are shifted out of
// whole words: the compiler would split the load of an array of them.
template <class Raw>
RUEDA_DEVICE void split(Line line, Raw* to) {
  if constexpr (sizeof(Raw) >= sizeof(U32)) {
    using Elements = Group<Raw, kGroup<Raw>>;
    const auto group = __builtin_bit_cast(Elements, line);
    RUEDA_UNROLL
    for (U32 i = 0; i < kGroup<Raw>; ++i) to[i] = group.of[i];
  } else {
    constexpr U32 kInWord = sizeof(U32) / sizeof(Raw), kBits = 8 * sizeof(Raw);
    RUEDA_UNROLL
    for (U32 i = 0; i < kGroup<Raw>; ++i) to[i] = static_cast<Raw>(line[i / kInWord] >> i % kInWord * kBits);
  }
}

template <class Raw>
RUEDA_DEVICE Line joined(const Raw* from) {
  if constexpr (sizeof(Raw) >= sizeof(U32)) {
    Group<Raw, kGroup<Raw>> group;
    RUEDA_UNROLL
    for (U32 i = 0; i < kGroup<Raw>; ++i) group.of[i] = from[i];
    return __builtin_bit_cast(Line, group);
  } else {
    constexpr U32 kInWord = sizeof(U32) / sizeof(Raw), kBits = 8 * sizeof(Raw);
    Line line = {0, 0, 0, 0};
    RUEDA_UNROLL
    for (U32 i = 0; i < kGroup<Raw>; ++i)
      line[i / kInWord] |= (static_cast<U32>(from[i]) & ((1u << kBits) - 1)) << i % kInWord * kBits;
    return line;
  }
}

// kCount: 1, or as many as fill lines, at an address aligned to one.
template <U32 kCount, class Raw>
RUEDA_DEVICE Group<Raw, kCount> load(const Raw* from) {
  Group<Raw, kCount> group;
  if constexpr (kCount == 1) {
    group.of[0] = *from;
  } else {
    RUEDA_UNROLL
    for (U32 i = 0; i < kCount; i += kGroup<Raw>)
      split(*reinterpret_cast<const LineOfAny*>(from + i), group.of + i);
  }
  return group;
}

template <class Raw, U32 kCount>
RUEDA_DEVICE void store(const Group<Raw, kCount>& group, Raw* to) {
  if constexpr (kCount == 1) {
    *to = group.of[0];
  } else {
    RUEDA_UNROLL
    for (U32 i = 0; i < kCount; i += kGroup<Raw>)
      *reinterpret_cast<LineOfAny*>(to + i) = joined(group.of + i);
  }
}

template <class Raw>
RUEDA_DEVICE bool is_at_line(const Raw* address) {
  return reinterpret_cast<U64>(address) % sizeof(Line) == 0;
}

// Elements before the first at which all these addresses are aligned to a line; count if there is none.
// narrow: of the narrowest type.
template <class Narrow, class... Others>
RUEDA_DEVICE U64 head_of(U64 count, const Narrow* narrow, const Others*... others) {
  const U64 head = (0 - reinterpret_cast<U64>(narrow)) % sizeof(Line) / sizeof(Narrow);
  return (is_at_line(narrow + head) && ... && is_at_line(others + head)) ? head : count;
}

// What one of the threads that share a work does of it: every step-th from the first.
struct ThreadShare {
  U64 first, step;
};
RUEDA_DEVICE ThreadShare share_of_grid(ThreadIndex at) {
  return {at.block * at.threads + at.thread, at.blocks * at.threads};
}

// body(i, Times<n>): does n elements from i on. Groups begin after `head` elements.
template <U32 kCount, class Body>
RUEDA_DEVICE void in_groups(ThreadShare share, U64 head, U64 count, Body body) {
  const U64 grouped = head < count ? (count - head) / kCount * kCount : 0;
  RUEDA_ROLLED
  for (U64 i = share.first * kCount; i < grouped; i += share.step * kCount) body(head + i, Times<kCount>{});
  RUEDA_ROLLED
  for (U64 i = share.first; i < count - grouped; i += share.step)
    body(i < head ? i : i + grouped, Times<1>{});
}

}  // namespace rueda::cuda::device
