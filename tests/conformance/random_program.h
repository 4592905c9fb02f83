// A random sequence of collectives, and what each of its results must be: a scalar definition, one element at
// a time, which knows the documented order of additions but neither backends nor algorithms.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "../unit/kernels_reference.h"
#include "mix.h"
#include "rueda/base/types.h"

namespace rueda::runtime::random_program {

// One tensor. Its name and terms recur in every step that contains it; its values change.
struct Item {
  std::string name;
  Collective what = Collective::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0, postscale = 1.0;
  int64_t rows = 0;  // allgather and alltoall: the most that one rank sends, or one rank sends another
  int64_t columns = 1;
  int32_t priority = 0;
  size_t set = 0;  // index in Program::sets
  uint64_t pick = 0;
  bool is_steady = false;    // ranks give as many rows in every step
  bool is_numbered = false;  // the name contains a number, which grows from step to step

  [[nodiscard]] bool is_in_place() const { return pick % 2 == 0; }
  [[nodiscard]] Rank root(const std::vector<Rank>& members) const { return members[pick % members.size()]; }
};

enum class Kind {
  kStep,      // all tensors, then all waits
  kShuffled,  // the same; each rank submits in an order of its own
  kOneByOne,  // waits for each before the next
  kGroup,     // the tensors are one operation
  kUneven,    // ranks have different numbers of steps; who has no more joins
  kNewSet,    // a process set comes and goes
};

struct Block {
  Kind kind = Kind::kStep;
  int repeats = 1;
  std::vector<Item> items;
  uint64_t seed = 0;
};

constexpr size_t kDynamicSet = 2;

// The same on all ranks. is_exact: every sum and product of floats is exact, in any order. most_rows: of a
// tensor.
class Program {
 public:
  Program(uint64_t seed, Rank size, bool is_exact, int64_t most_rows = 300'000)
      : random_(seed), is_exact_(is_exact), most_rows_(most_rows) {
    sets.emplace_back(static_cast<size_t>(size));
    std::iota(sets[0].begin(), sets[0].end(), 0);
    const uint64_t subsets = (uint64_t{1} << size) - 2;  // neither none nor all
    const uint64_t first = random_() % subsets;
    sets.push_back(subset(1 + first));
    sets.push_back(subset(1 + (first + 1 + random_() % (subsets - 1)) % subsets));
    std::vector<std::vector<Item>> models(2);
    for (std::vector<Item>& model : models)
      for (uint64_t i = 3 + random_() % 5; i > 0; --i) {
        Item& made = model.emplace_back(item(i % 2 == 0 ? any_collective() : Collective::kAllreduce, 0));
        made.is_steady = true;
        made.is_numbered = random_() % 3 == 0;
      }
    for (Item& one : models[0]) one.priority = 0;  // tensors with a priority are in no plan
    // Every other block only recurs, or no plan would ever be learned.
    for (int i = 0; i < 12; ++i) {
      Block& block = blocks.emplace_back();
      block.seed = random_();
      if (i % 2 == 0) {
        block.items = models[i > 0 && random_() % 3 == 0 ? 1 : 0];
        block.repeats = i == 0 ? 16 : 1 + static_cast<int>(random_() % 12);
      } else {
        vary(block, models[random_() % 2]);
      }
    }
  }

  std::vector<std::vector<Rank>> sets;  // the world, a static set, and one that comes and goes
  std::vector<Block> blocks;

 private:
  template <class T, size_t kSize>
  T one_of(const std::array<T, kSize>& choices) {
    return choices[random_() % kSize];
  }

  [[nodiscard]] std::vector<Rank> subset(uint64_t bits) const {
    std::vector<Rank> ranks;
    for (const Rank rank : sets[0])
      if ((bits >> rank & 1) != 0) ranks.push_back(rank);
    return ranks;
  }

  void vary(Block& block, const std::vector<Item>& model) {
    constexpr std::array kKinds = {Kind::kStep,  Kind::kShuffled, Kind::kShuffled, Kind::kOneByOne,
                                   Kind::kGroup, Kind::kUneven,   Kind::kNewSet};
    block.kind = one_of(kKinds);
    block.repeats = 1 + static_cast<int>(random_() % 3);
    if (block.kind == Kind::kUneven || random_() % 3 == 0) block.items = model;
    if (block.kind == Kind::kUneven) {  // nothing but allreduces, and ranks count differently
      std::erase_if(block.items, [](const Item& one) { return one.what != Collective::kAllreduce; });
      for (Item& one : block.items) one.is_numbered = false;
      return;
    }
    if (block.kind == Kind::kGroup) block.items.clear();
    const Collective alike = any_collective();
    const size_t sets_now = block.kind == Kind::kNewSet ? 3 : 2;
    const size_t set = random_() % sets_now;
    for (uint64_t i = 3 + random_() % 8; i > 0; --i) {
      const bool is_group = block.kind == Kind::kGroup;
      block.items.push_back(is_group ? item(alike, set) : item(any_collective(), random_() % sets_now));
    }
    if (block.kind == Kind::kGroup)
      for (Item& one : block.items) one.priority = block.items[0].priority;
  }

  Collective any_collective() {
    return one_of(std::array{Collective::kAllreduce, Collective::kAllreduce, Collective::kAllgather,
                             Collective::kBroadcast, Collective::kAlltoall, Collective::kReducescatter});
  }

  Item item(Collective what, size_t set) {
    constexpr std::array kOps = {ReduceOp::kSum, ReduceOp::kSum, ReduceOp::kAverage,
                                 ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};
    constexpr std::array<int64_t, 10> kRows = {0, 1, 3, 10, 24, 300, 1000, 4097, 9000, 20'000};
    Item item{.name = "t" + std::to_string(items_++), .what = what, .set = set, .pick = random_()};
    // Half of all tensors are float32, so that some can be fused.
    item.dtype = random_() % 2 == 0 ? DType::kFloat32 : static_cast<DType>(random_() % kDTypeCount);
    item.op = what == Collective::kReducescatter ? kOps[random_() % 3] : one_of(kOps);
    if (random_() % 3 == 0) item.prescale = one_of(std::array{0.5, -1.5, is_exact_ ? 2.0 : 0.1});
    if (random_() % 3 == 0) item.postscale = one_of(std::array{0.5, 0.1, 3.0});
    item.rows = one_of(kRows);
    if (what == Collective::kAllgather || what == Collective::kAlltoall) item.rows %= 1000;
    if (item.rows == 20'000 && item.dtype == DType::kFloat32 && random_() % 4 == 0) item.rows = 300'000;
    item.rows = std::min(item.rows, most_rows_);
    if (item.rows <= 1000) item.columns = one_of(std::array<int64_t, 4>{1, 1, 2, 5});
    if (random_() % 4 == 0) item.priority = static_cast<int32_t>(random_() % 5) - 1;
    return item;
  }

  std::mt19937_64 random_;
  bool is_exact_;
  int64_t most_rows_;
  int items_ = 0;
};

// What the results of a program depend on, besides the program.
struct Setup {
  uint64_t seed = 0;
  std::string hosts;  // a letter for each rank; all alike: sums are taken in rank order
  bool is_exact = false;
  bool rounds_at_every_hop = false;  // sums of 16-bit floats
};

// One tensor in one step.
struct Moment {
  const Setup& setup;
  const Item& item;
  const std::vector<Rank>& members;
  uint64_t round = 0;
  std::vector<bool> is_present = {};  // by member; empty: all. Others have joined

  [[nodiscard]] uint64_t seed_of(Rank rank) const {
    return mix(mix(setup.seed ^ item.pick) ^ round << 8 ^ static_cast<uint64_t>(rank));
  }
  [[nodiscard]] uint64_t rows_seed_of(Rank rank) const {
    return item.is_steady ? mix(mix(setup.seed ^ item.pick) ^ static_cast<uint64_t>(rank)) : seed_of(rank);
  }
  [[nodiscard]] size_t row_bytes() const { return static_cast<size_t>(item.columns) * size_of(item.dtype); }
  // alltoall: how many rows a rank sends another.
  [[nodiscard]] int32_t split(Rank from, Rank to) const {
    return static_cast<int32_t>(mix(rows_seed_of(from) + 7 + static_cast<uint64_t>(to)) %
                                static_cast<uint64_t>(item.rows + 1));
  }
  [[nodiscard]] std::vector<int32_t> splits(Rank from) const {
    std::vector<int32_t> all;
    for (const Rank to : members) all.push_back(split(from, to));
    return all;
  }
  // Of the input.
  [[nodiscard]] int64_t rows(Rank rank) const {
    if (item.what == Collective::kAllgather)
      return static_cast<int64_t>(mix(rows_seed_of(rank)) % static_cast<uint64_t>(item.rows + 1));
    if (item.what != Collective::kAlltoall) return item.rows;
    const std::vector<int32_t> all = splits(rank);
    const auto unsent = static_cast<int64_t>(rows_seed_of(rank) % 3);
    return std::accumulate(all.begin(), all.end(), unsent);
  }
};

using Bytes = std::vector<std::byte>;

template <DType kType>
auto make_element(uint64_t bits, bool is_exact) {
  using Element = kernels_test::Element<kType>;
  typename Element::Raw value{};
  if constexpr (!std::is_floating_point_v<typename Element::Acc>) {
    std::memcpy(&value, &bits, sizeof(value));
    if (kType == DType::kBool) value = bits & 1;
  } else if (is_exact) {
    value = Element::narrow(static_cast<typename Element::Acc>(1 + bits % 8));
  } else {
    // Exponents far apart, so that another order of additions is another result; and zeros of both signs.
    const int range = is_16bit_float(kType) ? 7 : 15;
    const auto mantissa = static_cast<float>(static_cast<int32_t>(bits & 0xFFFFFF) - 0x800000);
    const float wide = std::ldexp(mantissa, static_cast<int>(bits >> 32) % (range + 1) - 24);
    value = Element::narrow((bits >> 56) == 0 ? std::copysign(0.0f, mantissa) : wide);
  }
  return value;
}

inline Bytes input_of(const Moment& moment, Rank rank) {
  return kernels_test::with_type(moment.item.dtype, [&](auto type) {
    Bytes bytes(static_cast<size_t>(moment.rows(rank)) * moment.row_bytes());
    uint64_t random = moment.seed_of(rank);
    for (size_t at = 0; at < bytes.size(); at += size_of(type())) {
      const auto value = make_element<type()>(random = mix(random), moment.setup.is_exact);
      std::memcpy(&bytes[at], &value, sizeof(value));
    }
    return bytes;
  });
}

template <DType kType>
using Terms = std::vector<typename kernels_test::Element<kType>::Acc>;

template <DType kType>
Terms<kType> contribution(const Moment& moment, size_t member) {
  using Element = kernels_test::Element<kType>;
  const Item& item = moment.item;
  constexpr bool kIsBool = kType == DType::kBool;
  if (!moment.is_present.empty() && !moment.is_present[member]) {
    using Limits = std::numeric_limits<typename Element::Acc>;
    typename Element::Acc identity = 0;
    if (item.op == ReduceOp::kProduct) identity = 1;
    if (item.op == ReduceOp::kMin) identity = kIsBool ? 1 : Limits::max();
    if (item.op == ReduceOp::kMax) identity = kIsBool ? 0 : Limits::lowest();
    return Terms<kType>(static_cast<size_t>(item.rows * item.columns), identity);
  }
  const Bytes bytes = input_of(moment, moment.members[member]);
  Terms<kType> terms(bytes.size() / sizeof(typename Element::Raw));
  for (size_t i = 0; i < terms.size(); ++i) {
    typename Element::Raw raw;
    std::memcpy(&raw, &bytes[i * sizeof(raw)], sizeof(raw));
    terms[i] = Element::widen(raw);
    if (item.prescale == 1.0) continue;
    const Scale scale{.factor = item.prescale};
    terms[i] = Element::widen(Element::narrow(kernels_test::scale_one(scale, kIsBool, terms[i])));
  }
  return terms;
}

// In rank order inside a host, then by the tree over the hosts (schedule/reduction_order.h).
template <DType kType>
Bytes reduced(const Moment& moment) {
  using Element = kernels_test::Element<kType>;
  constexpr bool kIsBool = kType == DType::kBool;
  const bool is_average = moment.item.op == ReduceOp::kAverage;
  const ReduceOp op = is_average ? ReduceOp::kSum : moment.item.op;
  const auto add = [op](Terms<kType>& to, const Terms<kType>& from) {
    for (size_t i = 0; i < to.size(); ++i) to[i] = kernels_test::combine_one(op, kIsBool, to[i], from[i]);
  };
  std::string names;
  std::vector<Terms<kType>> hosts;
  for (size_t member = 0; member < moment.members.size(); ++member) {
    const char host = moment.setup.hosts[static_cast<size_t>(moment.members[member])];
    const size_t at = names.find(host);
    Terms<kType> terms = contribution<kType>(moment, member);
    if (at != std::string::npos) {
      add(hosts[at], terms);
    } else {
      names += host;
      hosts.push_back(std::move(terms));
    }
  }
  size_t corners = 1;
  while (2 * corners <= hosts.size()) corners *= 2;
  // The first hosts fold in pairs, until there are as many as corners.
  for (size_t i = 0; hosts.size() > corners; ++i) {
    add(hosts[i], hosts[i + 1]);
    hosts.erase(hosts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
  for (size_t distance = 1; distance < corners; distance *= 2)
    for (size_t i = 0; i < corners; i += 2 * distance) add(hosts[i], hosts[i + distance]);
  const Scale scale{.factor = moment.item.postscale,
                    .divisor = is_average ? static_cast<int64_t>(moment.members.size()) : 1};
  Bytes bytes(hosts[0].size() * sizeof(typename Element::Raw));
  for (size_t i = 0; i < hosts[0].size(); ++i) {
    const auto raw = Element::narrow(kernels_test::scale_one(scale, kIsBool, hosts[0][i]));
    std::memcpy(&bytes[i * sizeof(raw)], &raw, sizeof(raw));
  }
  return bytes;
}

struct Expected {
  Bytes bytes;
  int64_t rows = 0;
  std::vector<int32_t> received_splits = {};
};

inline Expected expected_of(const Moment& moment, Rank me) {
  const Item& item = moment.item;
  const std::vector<Rank>& members = moment.members;
  const auto reduce = [&] {
    return kernels_test::with_type(item.dtype, [&](auto type) { return reduced<type()>(moment); });
  };
  if (item.what == Collective::kAllreduce) return {.bytes = reduce(), .rows = item.rows};
  if (item.what == Collective::kBroadcast)
    return {.bytes = input_of(moment, item.root(members)), .rows = item.rows};
  Expected expected;
  const auto append = [&](const Bytes& from, int64_t begin, int64_t rows) {
    const auto first = from.begin() + begin * static_cast<std::ptrdiff_t>(moment.row_bytes());
    const auto length = rows * static_cast<std::ptrdiff_t>(moment.row_bytes());
    expected.bytes.insert(expected.bytes.end(), first, first + length);
    expected.rows += rows;
  };
  if (item.what == Collective::kReducescatter) {
    const auto n = std::ssize(members);
    const auto at = std::ranges::find(members, me) - members.begin();
    append(reduce(), at * (item.rows / n) + std::min<int64_t>(at, item.rows % n),
           item.rows / n + (at < item.rows % n ? 1 : 0));
    return expected;
  }
  for (const Rank from : members) {
    if (item.what == Collective::kAllgather) {
      append(input_of(moment, from), 0, moment.rows(from));
      continue;
    }
    int64_t begin = 0;
    for (const Rank to : members) begin += to < me ? moment.split(from, to) : 0;
    append(input_of(moment, from), begin, moment.split(from, me));
    expected.received_splits.push_back(moment.split(from, me));
  }
  return expected;
}

// The first element that differs, or -1. Any NaN equals any NaN.
inline int64_t first_difference(DType dtype, const Bytes& expected, const void* found) {
  return kernels_test::with_type(dtype, [&](auto type) -> int64_t {
    using Raw = typename kernels_test::Element<type()>::Raw;
    for (size_t i = 0; i < expected.size() / sizeof(Raw); ++i) {
      Raw a, b;
      std::memcpy(&a, &expected[i * sizeof(Raw)], sizeof(Raw));
      std::memcpy(&b, static_cast<const std::byte*>(found) + i * sizeof(Raw), sizeof(Raw));
      if (!kernels_test::same_element<type()>(a, b)) return static_cast<int64_t>(i);
    }
    return -1;
  });
}

// Whether two results with 16-bit floats differ by at most a few roundings.
inline bool are_close(DType dtype, const Bytes& expected, const void* found) {
  return kernels_test::with_type(dtype, [&](auto type) {
    using Element = kernels_test::Element<type()>;
    const double allowed = std::ldexp(4.0, dtype == DType::kBfloat16 ? -8 : -11);
    for (size_t i = 0; i < expected.size() / sizeof(typename Element::Raw); ++i) {
      typename Element::Raw a, b;
      std::memcpy(&a, &expected[i * sizeof(a)], sizeof(a));
      std::memcpy(&b, static_cast<const std::byte*>(found) + i * sizeof(b), sizeof(b));
      const auto x = static_cast<double>(Element::widen(a)), y = static_cast<double>(Element::widen(b));
      if (!(x == y || std::abs(x - y) <= allowed * std::abs(x))) return false;
    }
    return true;
  });
}

}  // namespace rueda::runtime::random_program
