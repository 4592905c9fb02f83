#include "rueda/control/rank_set.h"

#include <algorithm>

#include "rueda/base/limits.h"

namespace rueda::control {

RankSet::RankSet(std::span<const Rank> ranks) {
  std::vector<Rank> sorted(ranks.begin(), ranks.end());
  std::ranges::sort(sorted);
  for (const Rank rank : sorted) {
    if (!runs_.empty() && rank <= runs_.back().last + 1)
      runs_.back().last = rank;
    else
      runs_.push_back({rank, rank});
  }
}

RankSet RankSet::from_to(Rank first, Rank last) {
  RankSet set;
  if (first <= last) set.runs_.push_back({first, last});
  return set;
}

Rank RankSet::count() const {
  Rank count = 0;
  for (const Run& run : runs_) count += run.last - run.first + 1;
  return count;
}

bool RankSet::contains(Rank rank) const {
  const auto after = std::ranges::upper_bound(runs_, rank, {}, &Run::first);
  return after != runs_.begin() && rank <= std::prev(after)->last;
}

bool RankSet::includes(const RankSet& others) const {
  auto mine = runs_.begin();
  return std::ranges::all_of(others.runs_, [&](const Run& run) {
    while (mine != runs_.end() && mine->last < run.first) ++mine;
    return mine != runs_.end() && mine->first <= run.first && run.last <= mine->last;
  });
}

RankSet RankSet::common(const RankSet& others) const {
  RankSet both;
  auto one = runs_.begin();
  auto other = others.runs_.begin();
  while (one != runs_.end() && other != others.runs_.end()) {
    const Run run{std::max(one->first, other->first), std::min(one->last, other->last)};
    if (run.first <= run.last) both.runs_.push_back(run);
    one->last < other->last ? ++one : ++other;
  }
  return both;
}

void RankSet::add(const RankSet& others) {
  if (others.is_empty()) return;
  if (is_empty() || last() + 1 < others.first()) {  // mostly they come in order
    runs_.insert(runs_.end(), others.runs_.begin(), others.runs_.end());
    return;
  }
  if (others.runs_.size() == 1 && runs_.back().first <= others.first()) {
    runs_.back().last = std::max(runs_.back().last, others.last());
    return;
  }
  std::vector<Run> all(runs_.size() + others.runs_.size());
  std::ranges::merge(runs_, others.runs_, all.begin(), {}, &Run::first, &Run::first);
  runs_.clear();
  for (const Run& run : all) {
    if (!runs_.empty() && run.first <= runs_.back().last + 1)
      runs_.back().last = std::max(runs_.back().last, run.last);
    else
      runs_.push_back(run);
  }
}

void RankSet::remove(const RankSet& others) {
  std::vector<Run> rest;
  auto gone = others.runs_.begin();
  for (Run run : runs_) {
    while (gone != others.runs_.end() && gone->last < run.first) ++gone;
    for (auto at = gone; at != others.runs_.end() && at->first <= run.last; ++at) {
      if (run.first < at->first) rest.push_back({run.first, at->first - 1});
      run.first = at->last + 1;
    }
    if (run.first <= run.last) rest.push_back(run);
  }
  runs_ = std::move(rest);
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
