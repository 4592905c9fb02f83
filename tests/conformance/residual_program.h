// A random program of sums with wire types. Joins, process sets that come and go, refused operations, changes
// of scale and of epoch are part of one program. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "mix.h"
#include "rueda/base/types.h"

namespace rueda::runtime::residual_program {

using Floats = std::vector<float>;

enum class Kind {
  kStep,       // all tensors, then all waits
  kShuffled,   // the same, each rank in an order of its own
  kOneByOne,   // waits for each before it submits the next
  kHalf,       // waits for half of them before it submits the others
  kGroup,      // one operation of all tensors of the world
  kLate,       // `odd` comes later
  kRefused,    // `odd` asks for another shape or wire type in the first tensor: it fails on all members
  kJoin,       // all ranks join; those that are not present have submitted less
  kBarrier,    // no plan takes it
  kAddSet,     // a process set of Program::dynamic
  kRemoveSet,  // and it goes
  kRescale,    // of all residuals, by a half or by two
  kSave,
  kRestore,  // what was saved last
  kCheck,    // residuals are compared with the model
  kEpoch,    // engines end and start; `carries`: with the residuals that they had
};

enum class Set : uint8_t { kWorld, kStatic, kDynamic };

// One tensor of one round.
struct Item {
  std::string name;
  Set set = Set::kWorld;
  int64_t count = 0;
  Wire wire = Wire::kExact;
  bool is_average = false;
  double prescale = 1, postscale = 1;
  bool is_numbered = false;  // the name contains a running number: no residual
  bool has_feedback = true;  // as the settings RUEDA_WIRE and the call agree
  bool is_resized = false;   // it has had another size
  bool has_nan = false;      // one rank has, in one element
};

struct Round {
  Kind kind = Kind::kStep;
  std::vector<Item> items = {};
  std::vector<bool> is_present = {};  // [rank]; empty: all. Others go to the join
  std::vector<Rank> dynamic = {};     // members, if there is such a set
  Rank odd = 0;
  bool is_other_wire = false, carries = false;
  float factor = 1;
};

// The same on all ranks.
class Program {
 public:
  uint64_t seed;
  std::string hosts;  // a letter for each rank
  std::vector<Rank> world, fixed;
  std::vector<Round> rounds;

  explicit Program(uint64_t number) : seed(number), random_(number) {
    constexpr std::array<const char*, 8> kHosts = {"ab", "abc", "aab", "aabb", "abcd", "abab", "abca", "abb"};
    hosts = kHosts[random_() % kHosts.size()];
    world.resize(hosts.size());
    std::iota(world.begin(), world.end(), 0);
    fixed = some_ranks();
    for (uint64_t i = 2 + random_() % 4; i > 0; --i) model_.push_back(item());
    if (random_() % 2 == 0) model_.back().set = Set::kStatic;
    for (int block = 0; block < 14; ++block) {
      if (block % 2 == 0)  // every other block only recurs, or no plan would ever be learned
        recur(block == 0 ? 10 : 1 + static_cast<int>(random_() % 7));
      else
        vary();
    }
    rounds.push_back({.kind = Kind::kCheck});
  }

  [[nodiscard]] const std::vector<Rank>& members(const Item& item, const Round& round) const {
    return item.set == Set::kWorld ? world : item.set == Set::kStatic ? fixed : round.dynamic;
  }

  // Numbers of at most 19 bits: sums of few are exact in any order, and what encoding leaves behind is not.
  [[nodiscard]] Floats input(size_t round, const Item& item, Rank rank) const {
    Floats values(static_cast<size_t>(item.count));
    uint64_t bits = 0;
    for (const char letter : item.name) bits = mix(bits ^ static_cast<uint8_t>(letter));
    bits = mix(seed ^ bits) ^ round << 8 ^ static_cast<uint64_t>(rank);
    for (float& value : values) {
      bits = mix(bits);
      value = std::ldexp(static_cast<float>(static_cast<int16_t>(bits)), -10 - static_cast<int>(bits >> 62));
    }
    if (item.has_nan && rank == static_cast<Rank>(round % world.size()) && !values.empty())
      values[bits % values.size()] = bits % 2 == 0 ? std::nanf("") : -std::numeric_limits<float>::infinity();
    return values;
  }

 private:
  template <class T, size_t kSize>
  T one_of(const std::array<T, kSize>& choices) {
    return choices[random_() % kSize];
  }
  // Neither all nor those of the static set; two at least, or nothing is encoded, where the world allows it.
  std::vector<Rank> some_ranks() {
    const size_t least = world.size() > 2 ? 2 : 1;
    std::vector<Rank> ranks;
    while (ranks.size() < least || ranks.size() == world.size() || ranks == fixed) {
      ranks.clear();
      for (const Rank rank : world)
        if (random_() % 3 != 0) ranks.push_back(rank);
    }
    return ranks;
  }

  Item item() {
    Item made{.name = "t" + std::to_string(items_++)};
    made.count = one_of(std::array<int64_t, 8>{0, 10, 1023, 1024, 1025, 2000, 3000, 9000});
    if (random_() % 2 == 0) made.count = 1200;  // some can be fused
    made.wire = one_of(std::array{Wire::kInt8, Wire::kInt8, Wire::kBfloat16, Wire::kFloat16, Wire::kExact});
    made.is_average = random_() % 2 == 0;
    if (random_() % 4 == 0) made.prescale = 0.25;
    if (random_() % 4 == 0) made.postscale = one_of(std::array{0.5, 0.1, 3.0});
    made.is_numbered = random_() % 5 == 0;
    made.has_feedback = random_() % 6 != 0;
    return made;
  }

  // The tensors of a step: those of the model, and those of a set that came.
  std::vector<Item> step() {
    std::vector<Item> items = model_;
    items.insert(items.end(), of_set_.begin(), of_set_.end());
    for (Item& one : items) one.has_nan = random_() % 40 == 0;
    return items;
  }
  void add(Round round) {
    round.dynamic = dynamic_;
    rounds.push_back(std::move(round));
  }
  Rank any_rank() { return static_cast<Rank>(random_() % world.size()); }

  void recur(int times) {
    for (int i = 0; i < times; ++i) add({.kind = Kind::kStep, .items = step()});
  }

  void vary() {
    switch (random_() % 14) {
      case 0:
      case 1:
        return refuse();
      case 2:
      case 3:
        return uneven();
      case 4:
      case 5:
      case 6:
        return change_sets();
      case 7:
        return add({.kind = Kind::kRescale, .factor = random_() % 2 == 0 ? 0.5F : 2.0F});
      case 8:
        add({.kind = Kind::kSave});
        recur(2);
        if (random_() % 2 == 0) change_sets();
        return add({.kind = Kind::kRestore});
      case 9:
        add({.kind = Kind::kCheck});
        of_set_.clear();
        dynamic_.clear();
        return add({.kind = Kind::kEpoch, .carries = random_() % 2 == 0});
      case 10:
        return resize();
      case 11:
        add({.kind = Kind::kCheck});
        return add({.kind = Kind::kBarrier});
      default:
        return other_order();
    }
  }

  // Of a tensor that all members know and nobody has resized.
  void refuse() {
    std::vector<Item> items = step();
    const auto at = std::ranges::find_if(items, [](const Item& one) {
      return one.set == Set::kWorld && one.count > 0 && !one.is_resized && !one.is_numbered;
    });
    if (at == items.end()) return other_order();
    std::iter_swap(items.begin(), at);
    const bool is_other_wire = items[0].count >= 1024 && random_() % 2 == 0;
    add({.kind = Kind::kRefused,
         .items = std::move(items),
         .odd = any_rank(),
         .is_other_wire = is_other_wire});
    if (random_() % 2 == 0) add({.kind = Kind::kCheck});
  }

  // Ranks have 0 to 3 more steps of tensors of the world; who has no more joins.
  void uneven() {
    std::vector<uint64_t> steps(world.size());
    for (uint64_t& mine : steps) mine = random_() % 4;
    for (uint64_t i = 0; i < *std::ranges::max_element(steps); ++i) {
      Round round{.items = step()};
      std::erase_if(round.items, [](const Item& one) { return one.set != Set::kWorld || one.is_numbered; });
      for (const uint64_t mine : steps) round.is_present.push_back(mine > i);
      add(std::move(round));
    }
    add({.kind = Kind::kJoin});
  }

  void change_sets() {
    if (!dynamic_.empty()) {
      of_set_.clear();
      if (random_() % 2 == 0) add({.kind = Kind::kCheck});
      add({.kind = Kind::kRemoveSet});
      dynamic_.clear();
      if (random_() % 3 == 0) return;
    }
    dynamic_ = some_ranks();
    add({.kind = Kind::kAddSet});
    // The names of every set that comes, and one that the world has.
    if (set_items_.empty()) {
      set_items_ = {item(), item(), item()};
      for (Item& one : set_items_) one.set = Set::kDynamic;
      set_items_[0].name = model_[0].name;
      set_items_[0].is_numbered = model_[0].is_numbered;
    }
    of_set_ = set_items_;
  }

  // A tensor has another size from now on, or another wire type.
  void resize() {
    Item& one = model_[random_() % model_.size()];
    if (random_() % 3 == 0) {
      one.wire = one_of(std::array{Wire::kExact, Wire::kInt8, Wire::kBfloat16});
      return;
    }
    one.count = one_of(std::array<int64_t, 4>{1, 1024, 1700, 4000});
    one.is_resized = true;
  }

  void other_order() {
    constexpr std::array kKinds = {Kind::kShuffled, Kind::kOneByOne, Kind::kHalf, Kind::kGroup, Kind::kLate};
    const Kind kind = one_of(kKinds);
    for (uint64_t i = 1 + random_() % 3; i > 0; --i) {
      Round round{.kind = kind, .items = step(), .odd = any_rank()};
      if (random_() % 2 == 0) std::erase_if(round.items, [&](const Item&) { return random_() % 4 == 0; });
      if (random_() % 2 == 0) {  // one that comes once
        Item once = item();
        once.is_numbered = false;
        round.items.push_back(once);
      }
      add(std::move(round));
    }
  }

  std::mt19937_64 random_;
  std::vector<Item> model_, of_set_, set_items_;
  std::vector<Rank> dynamic_;
  int items_ = 0;
};

}  // namespace rueda::runtime::residual_program
