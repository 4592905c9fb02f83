#include "rueda/schedule/scatter_tree.h"

#include <algorithm>

#include "rueda/schedule/hypercube.h"

namespace rueda::schedule {
namespace {

struct Share {
  Rank owner = -1;
  Lines lines;
};

// A subtree whose ranks have met.
struct Scattered {
  std::vector<Share> shares;  // ascending, without gaps
  int64_t ranks = 0;
};

void append(std::vector<Share>& shares, Rank owner, Lines lines) {
  if (lines.is_empty()) return;
  if (!shares.empty() && shares.back().owner == owner)
    shares.back().lines.end = lines.end;
  else
    shares.push_back({owner, lines});
}

class ScatterTree {
 public:
  ScatterTree(Rank ranks, Rank me, int64_t lines) : cube_(ranks), me_(me), lines_(lines) {
    place_.levels.resize(static_cast<size_t>(ceil_log2(cube_.size)) + 1);
  }

  ScatterPlace run() {
    for (const Share& share : under(place_.levels.size() - 1, 0).shares)
      if (share.owner == me_) place_.kept.push_back(share.lines);
    return std::move(place_);
  }

 private:
  // The subtree of 2^level corners from this one on.
  Scattered under(size_t level, int32_t corner) {
    if (level > 0) {
      const int32_t half = 1 << (level - 1);
      return meet(level, under(level - 1, corner), under(level - 1, corner + half));
    }
    const Rank last = cube_.rank_at(corner);
    return cube_.takes_one_in(last) ? meet(0, alone(last - 1), alone(last)) : alone(last);
  }

  [[nodiscard]] Scattered alone(Rank rank) const { return {.shares = {{rank, {0, lines_}}}, .ranks = 1}; }

  Scattered meet(size_t level, const Scattered& left, const Scattered& right) {
    Scattered both{.shares = {}, .ranks = left.ranks + right.ranks};
    // Shares are cut at whole lines. Counting from the start of the buffer keeps the errors from adding up.
    const auto added_left = [&](int64_t at) { return (at * left.ranks + both.ranks - 1) / both.ranks; };
    size_t l = 0, r = 0;
    for (int64_t at = 0; at < lines_;) {
      const Share &ours = left.shares[l], &theirs = right.shares[r];
      const int64_t end = std::min(ours.lines.end, theirs.lines.end);
      const int64_t of_left = added_left(end) - added_left(at);
      // The side goes first that makes one share with what is before it.
      const bool is_left_first = both.shares.empty() || both.shares.back().owner != theirs.owner;
      const int64_t cut = is_left_first ? at + of_left : end - of_left;
      const Lines first{at, cut}, second{cut, end};
      append(both.shares, is_left_first ? ours.owner : theirs.owner, first);
      append(both.shares, is_left_first ? theirs.owner : ours.owner, second);
      note(level,
           {.peer = theirs.owner,
            .am_left = true,
            .kept = is_left_first ? first : second,
            .given = is_left_first ? second : first,
            .have_sums = left.ranks > 1,
            .peer_has_sums = right.ranks > 1},
           ours.owner);
      at = end;
      if (ours.lines.end == end) ++l;
      if (theirs.lines.end == end) ++r;
    }
    return both;
  }

  // A meeting as its left owner sees it.
  void note(size_t level, const Meeting& seen, Rank left) {
    if (left == me_) place_.levels[level].push_back(seen);
    if (seen.peer != me_) return;
    place_.levels[level].push_back({.peer = left,
                                    .am_left = false,
                                    .kept = seen.given,
                                    .given = seen.kept,
                                    .have_sums = seen.peer_has_sums,
                                    .peer_has_sums = seen.have_sums});
  }

  Hypercube cube_;
  Rank me_;
  int64_t lines_;
  ScatterPlace place_;
};

}  // namespace

ScatterPlace scatter_place(Rank ranks, Rank me, int64_t lines) { return ScatterTree(ranks, me, lines).run(); }

}  // namespace rueda::schedule
