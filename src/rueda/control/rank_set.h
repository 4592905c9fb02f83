// A set of ranks, kept as runs of consecutive ones: the ranks of a host, of many hosts, or of a world are few
// runs, so that what a message stands for costs the same for a thousand ranks as for one. Pure value.
#pragma once

#include <span>
#include <vector>

#include "rueda/base/bytes.h"
#include "rueda/base/types.h"

namespace rueda::control {

class RankSet {
 public:
  struct Run {
    Rank first = 0, last = 0;  // both belong to it

    bool operator==(const Run&) const = default;
  };

  RankSet() = default;
  explicit(false) RankSet(Rank rank) : only_{rank, rank} {}
  explicit RankSet(std::span<const Rank> ranks);
  static RankSet from_to(Rank first, Rank last);  // both belong to it

  [[nodiscard]] bool is_empty() const { return many_.empty() && only_ == kNone; }
  [[nodiscard]] Rank first() const { return runs().front().first; }  // not of an empty set
  [[nodiscard]] Rank last() const { return runs().back().last; }     // not of an empty set
  [[nodiscard]] Rank count() const;
  [[nodiscard]] bool contains(Rank rank) const;
  [[nodiscard]] bool includes(const RankSet& others) const;
  [[nodiscard]] RankSet common(const RankSet& others) const;
  void add(const RankSet& others);
  void remove(const RankSet& others);
  [[nodiscard]] std::span<const Run> runs() const {
    if (!many_.empty()) return many_;
    return {&only_, only_ == kNone ? size_t{0} : size_t{1}};
  }
  [[nodiscard]] std::vector<Rank> ranks() const;  // ascending

  template <class F>
  void for_each(const F& f) const {
    for (const Run& run : runs())
      for (Rank rank = run.first; rank <= run.last; ++rank) f(rank);
  }

  bool operator==(const RankSet&) const = default;

 private:
  static constexpr Run kNone{0, -1};

  explicit RankSet(std::vector<Run>&& runs);
  Run& last_run() { return many_.empty() ? only_ : many_.back(); }  // not of an empty set

  // Most sets are one run, which is kept here and needs no memory of its own.
  Run only_ = kNone;
  std::vector<Run> many_;  // two and more, ascending, with a gap between each two; only_ is kNone then
};

void put_ranks(ByteWriter& writer, const RankSet& ranks);
// Refuses an empty set, and what put_ranks() does not write.
RankSet get_ranks(ByteReader& reader);

}  // namespace rueda::control
