// A value for each element of a buffer, stored once per run of elements that were treated alike. For the
// builder and the verifier.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

namespace rueda::schedule {

template <class T>
class IntervalMap {
 public:
  // Calls visit(begin, end, T&) for the runs that make up [begin, end). Elements without a value
  // get T{} first.
  template <class Visit>
  void visit(int64_t begin, int64_t end, Visit&& visit) {
    if (begin >= end) return;
    cover(begin, end);
    for (auto it = runs_.find(begin); it != runs_.end() && it->first < end; ++it)
      visit(it->first, it->second.end, it->second.value);
  }

  void assign(int64_t begin, int64_t end, T value) {
    if (begin >= end) return;
    split(begin);
    split(end);
    runs_.erase(runs_.lower_bound(begin), runs_.lower_bound(end));
    runs_.emplace(begin, Run{end, std::move(value)});
  }

 private:
  struct Run {
    int64_t end = 0;
    T value{};
  };

  void split(int64_t at) {
    auto it = runs_.upper_bound(at);
    if (it == runs_.begin()) return;
    --it;
    if (it->first == at || it->second.end <= at) return;
    Run tail = it->second;
    it->second.end = at;
    runs_.emplace_hint(std::next(it), at, std::move(tail));
  }

  void cover(int64_t begin, int64_t end) {
    split(begin);
    split(end);
    auto it = runs_.lower_bound(begin);
    for (int64_t at = begin; at < end; ++it) {
      if (it == runs_.end() || it->first > at) {
        const int64_t gap_end = it == runs_.end() ? end : std::min(end, it->first);
        it = runs_.emplace_hint(it, at, Run{gap_end, T{}});
      }
      at = it->second.end;
    }
  }

  std::map<int64_t, Run> runs_;  // by first element; disjoint
};

}  // namespace rueda::schedule
