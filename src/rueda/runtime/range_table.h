// Which ranges of memory overlap a given one. The ranges in the table may overlap one another. Not
// thread-safe. Ranges that overlap, directly or through others, form an island; most islands are one range,
// so that adding, finding and erasing take logarithmic time. What an erased island needed in memory is kept
// for the next one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace rueda::runtime {

struct Range {
  uintptr_t begin = 0, end = 0;  // end: the first address behind it

  [[nodiscard]] bool is_empty() const { return begin >= end; }
  [[nodiscard]] bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
  [[nodiscard]] bool contains(const Range& other) const { return begin <= other.begin && other.end <= end; }
  bool operator==(const Range&) const = default;
};

template <class T>
class RangeTable {
 public:
  struct Member {
    Range range;
    T value;
  };

  // range: not empty.
  void add(const Range& range, T value) {
    auto made = take_spare();
    Island& island = made.mapped();
    island.end = range.end;
    uintptr_t begin = range.begin;
    for (auto at = first_behind(range.begin); at != islands_.end() && at->first < range.end; at = erase(at)) {
      begin = std::min(begin, at->first);
      island.end = std::max(island.end, at->second.end);
      std::ranges::move(at->second.members, std::back_inserter(island.members));
    }
    island.members.push_back({range, std::move(value)});
    made.key() = begin;
    islands_.insert(std::move(made));
    ++size_;
  }

  // Calls f(member's range, value) for each range that overlaps this one.
  template <class F>
  void for_each_overlap(const Range& range, const F& f) {
    for (auto at = first_behind(range.begin); at != islands_.end() && at->first < range.end; ++at)
      for (Member& member : at->second.members)
        if (member.range.overlaps(range)) f(member.range, member.value);
  }

  // Calls f(value) for each entry of exactly this range; erases those for which it returns true.
  template <class F>
  void erase_if(const Range& range, const F& f) {
    const auto at = first_behind(range.begin);
    if (at == islands_.end() || at->first >= range.end) return;
    erase_in(at, [&](Member& member) { return member.range == range && f(member.value); });
  }

  // Calls f(value) for every range.
  template <class F>
  void for_each(const F& f) const {
    for (const auto& [begin, island] : islands_)
      for (const Member& member : island.members) f(member.value);
  }

  // As erase_if() for all ranges.
  template <class F>
  void erase_all_if(const F& f) {
    for (auto at = islands_.begin(); at != islands_.end();)
      at = erase_in(at, [&](Member& member) { return f(member.value); });
  }

  [[nodiscard]] size_t size() const { return size_; }  // ranges
  void clear() {
    islands_.clear();
    size_ = 0;
  }

 private:
  struct Island {
    uintptr_t end = 0;  // once members are erased it may reach further than those that are left
    std::vector<Member> members;
  };
  using Islands = std::map<uintptr_t, Island>;  // by their first address; they do not overlap

  // The first island that ends behind this address.
  typename Islands::iterator first_behind(uintptr_t address) {
    auto at = islands_.upper_bound(address);
    if (at != islands_.begin() && std::prev(at)->second.end > address) --at;
    return at;
  }

  template <class F>
  typename Islands::iterator erase_in(typename Islands::iterator at, const F& is_erased) {
    size_ -= std::erase_if(at->second.members, is_erased);
    return at->second.members.empty() ? erase(at) : std::next(at);
  }

  typename Islands::iterator erase(typename Islands::iterator at) {
    const auto next = std::next(at);
    if (spare_.size() >= kMostSpare) {
      islands_.erase(at);
    } else {
      spare_.push_back(islands_.extract(at));
      spare_.back().mapped().members.clear();
    }
    return next;
  }

  // A node without members that is in no map.
  typename Islands::node_type take_spare() {
    if (spare_.empty()) {
      Islands one;
      one.try_emplace(0);
      return one.extract(one.begin());
    }
    auto node = std::move(spare_.back());
    spare_.pop_back();
    return node;
  }

  static constexpr size_t kMostSpare = 4096;
  Islands islands_;
  std::vector<typename Islands::node_type> spare_;
  size_t size_ = 0;
};

}  // namespace rueda::runtime
