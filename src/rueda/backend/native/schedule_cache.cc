#include "rueda/backend/native/schedule_cache.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "rueda/schedule/algorithm.h"
#include "rueda/schedule/builder.h"

namespace rueda::backend {
namespace {

// FNV-1a over 64-bit words. The comparison of entries decides; the hash only spreads them.
struct Hash {
  uint64_t value = 14695981039346656037u;
  void add(uint64_t word) { value = (value ^ word) * 1099511628211u; }
  template <class T>
  void add_all(const std::vector<T>& words) {
    add(words.size());
    for (const T word : words) add(static_cast<uint64_t>(word));
  }
};

uint64_t hash_of(const Group& group, const schedule::Spec& spec) {
  Hash hash;
  hash.add(static_cast<uint64_t>(group.epoch));
  hash.add(static_cast<uint64_t>(group.id));
  hash.add(static_cast<uint64_t>(spec.what));
  hash.add(static_cast<uint64_t>(spec.dtype));
  hash.add(static_cast<uint64_t>(spec.op));
  hash.add(static_cast<uint64_t>(spec.wire));
  hash.add(static_cast<uint64_t>(spec.count));
  hash.add(static_cast<uint64_t>(spec.root));
  hash.add(std::bit_cast<uint64_t>(spec.scale.factor));
  hash.add(static_cast<uint64_t>(spec.scale.divisor));
  hash.add(spec.tuning.algorithm);
  hash.add(static_cast<uint64_t>(spec.tuning.chunk_bytes));
  hash.add_all(spec.counts);
  hash.add_all(spec.segment_counts);
  return hash.value;
}

}  // namespace

ScheduleMaker make_with_registry(std::string forced, bool is_bitwise) {
  return
      [forced = std::move(forced), is_bitwise](const schedule::Spec& spec, const schedule::Topology& topology,
                                               Rank me) -> Result<schedule::Schedule> {
        const schedule::Topology where =
            is_bitwise && is_reduction(spec.what) ? topology.as_single_host() : topology;
        const Result<schedule::Choice> choice = schedule::choose(spec, where, forced);
        if (!choice.is_ok()) return choice.status();
        return choice.value().algorithm->build(spec, where, me);
      };
}

ScheduleCache::Entries::iterator ScheduleCache::find(uint64_t hash, const Group& group,
                                                     const schedule::Spec& spec) {
  const auto [first, last] = index_.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    const Entry& entry = *at->second;
    if (entry.epoch == group.epoch && entry.me == group.me && entry.spec == spec &&
        entry.members == group.members)
      return at->second;
  }
  return entries_.end();
}

void ScheduleCache::drop_oldest() {
  const auto oldest = std::prev(entries_.end());
  const auto [first, last] = index_.equal_range(oldest->hash);
  index_.erase(std::find_if(first, last, [&](const auto& pair) { return pair.second == oldest; }));
  steps_ -= oldest->prepared->size();
  entries_.erase(oldest);
}

Result<std::shared_ptr<const PreparedSchedule>> ScheduleCache::find_or_make(
    const Group& group, const schedule::Spec& spec, const std::function<Result<schedule::Schedule>()>& make) {
  const uint64_t hash = hash_of(group, spec);
  if (const auto found = find(hash, group, spec); found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
    return entries_.front().prepared;
  }
  Result<schedule::Schedule> made = make();
  if (!made.is_ok()) return made.status();
  PreparedSchedule prepared = prepare_schedule(std::move(made).value(), spec, group.me, group.size());
  auto shared = std::make_shared<const PreparedSchedule>(std::move(prepared));
  entries_.push_front({.hash = hash,
                       .epoch = group.epoch,
                       .members = group.members,
                       .me = group.me,
                       .spec = spec,
                       .prepared = shared});
  index_.emplace(hash, entries_.begin());
  steps_ += shared->size();
  // The schedule just made stays, however large it is.
  while (entries_.size() > 1 && (entries_.size() > kMaxSchedules || steps_ > kMaxSteps)) drop_oldest();
  return shared;
}

}  // namespace rueda::backend
