#include "rueda/control/rank_set.h"

#include <algorithm>
#include <utility>

#include "rueda/base/limits.h"

namespace rueda::control {

RankSet::RankSet(std::vector<Run>&& runs) {
  if (runs.size() > 1)
    many_ = std::move(runs);
  else if (!runs.empty())
    only_ = runs.front();
}

RankSet::RankSet(std::span<const Rank> ranks) {
  std::vector<Rank> sorted(ranks.begin(), ranks.end());
  std::ranges::sort(sorted);
  std::vector<Run> runs;
  for (const Rank rank : sorted) {
    if (!runs.empty() && rank <= runs.back().last + 1)
      runs.back().last = rank;
    else
      runs.push_back({rank, rank});
  }
  *this = RankSet(std::move(runs));
}

RankSet RankSet::from_to(Rank first, Rank last) {
  RankSet set;
  if (first <= last) set.only_ = {first, last};
  return set;
}

Rank RankSet::count() const {
  Rank count = 0;
  for (const Run& run : runs()) count += run.last - run.first + 1;
  return count;
}

bool RankSet::contains(Rank rank) const {
  const std::span<const Run> all = runs();
  const auto after = std::ranges::upper_bound(all, rank, {}, &Run::first);
  return after != all.begin() && rank <= std::prev(after)->last;
}

bool RankSet::includes(const RankSet& others) const {
  const std::span<const Run> all = runs();
  auto mine = all.begin();
  return std::ranges::all_of(others.runs(), [&](const Run& run) {
    while (mine != all.end() && mine->last < run.first) ++mine;
    return mine != all.end() && mine->first <= run.first && run.last <= mine->last;
  });
}

RankSet RankSet::common(const RankSet& others) const {
  const std::span<const Run> mine = runs(), theirs = others.runs();
  std::vector<Run> both;
  RankSet one_run;  // what is common to two runs is one
  const bool is_one = mine.size() <= 1 && theirs.size() <= 1;
  auto one = mine.begin();
  auto other = theirs.begin();
  while (one != mine.end() && other != theirs.end()) {
    const Run run{std::max(one->first, other->first), std::min(one->last, other->last)};
    if (run.first <= run.last) {
      if (is_one)
        one_run.only_ = run;
      else
        both.push_back(run);
    }
    one->last < other->last ? ++one : ++other;
  }
  return is_one ? one_run : RankSet(std::move(both));
}

void RankSet::add(const RankSet& others) {
  if (others.is_empty()) return;
  if (is_empty()) {
    *this = others;
    return;
  }
  const std::span<const Run> theirs = others.runs();
  if (last() + 1 < others.first()) {  // mostly they come in order
    if (many_.empty()) many_.push_back(std::exchange(only_, kNone));
    many_.insert(many_.end(), theirs.begin(), theirs.end());
    return;
  }
  if (theirs.size() == 1 && last_run().first <= others.first()) {
    last_run().last = std::max(last(), others.last());
    return;
  }
  const std::span<const Run> mine = runs();
  std::vector<Run> all(mine.size() + theirs.size()), joined;
  std::ranges::merge(mine, theirs, all.begin(), {}, &Run::first, &Run::first);
  for (const Run& run : all) {
    if (!joined.empty() && run.first <= joined.back().last + 1)
      joined.back().last = std::max(joined.back().last, run.last);
    else
      joined.push_back(run);
  }
  *this = RankSet(std::move(joined));
}

void RankSet::remove(const RankSet& others) {
  if (is_empty() || others.is_empty() || last() < others.first() || others.last() < first()) return;
  const std::span<const Run> theirs = others.runs();
  std::vector<Run> rest;
  auto gone = theirs.begin();
  for (Run run : runs()) {
    while (gone != theirs.end() && gone->last < run.first) ++gone;
    for (auto at = gone; at != theirs.end() && at->first <= run.last; ++at) {
      if (run.first < at->first) rest.push_back({run.first, at->first - 1});
      run.first = at->last + 1;
    }
    if (run.first <= run.last) rest.push_back(run);
  }
  *this = RankSet(std::move(rest));
}

std::vector<Rank> RankSet::ranks() const {
  std::vector<Rank> all;
  for_each([&](Rank rank) { all.push_back(rank); });
  return all;
}

void put_ranks(ByteWriter& writer, const RankSet& ranks) {
  writer.put_list(ranks.runs(), [](ByteWriter& to, const RankSet::Run& run) {
    to.put(run.first);
    to.put(run.last);
  });
}

RankSet get_ranks(ByteReader& reader) {
  RankSet ranks;
  Rank least = 0;  // that the next run may begin with
  const auto runs = reader.get_list([&](ByteReader& from) {
    const RankSet::Run run{.first = from.get<Rank>(), .last = from.get<Rank>()};
    if (run.first < least || run.last < run.first || std::cmp_greater_equal(run.last, kMaxRanks))
      from.fail();
    else
      least = run.last + 2;
    return run;
  });
  if (runs.empty()) reader.fail();
  if (!reader.is_ok()) return {};
  for (const RankSet::Run& run : runs) ranks.add(RankSet::from_to(run.first, run.last));
  return ranks;
}

}  // namespace rueda::control
