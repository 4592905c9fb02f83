#include "rueda/runtime/static_sets.h"

#include <algorithm>
#include <set>
#include <string>

#include "rueda/base/limits.h"

namespace rueda::runtime {
namespace {

std::string entry_text(size_t entry) { return "process_sets entry number " + std::to_string(entry + 1); }

Status too_many(size_t count) {
  return {Code::kInvalidArgument, "process_sets holds " + std::to_string(count) + " sets, but at most " +
                                      std::to_string(kMaxGroups) + " may exist at once; name fewer."};
}

bool has(const PeerInfo& info, size_t entry) { return entry < info.process_sets.size(); }

bool is_own(const PeerInfo& info, size_t entry) {
  return has(info, entry) &&
         std::ranges::find(info.own_sets, static_cast<int32_t>(entry)) != info.own_sets.end();
}

// Entries that ranks must name alike: all of them, if no rank names its own.
Status check_entry(const std::vector<PeerInfo>& all, size_t entry) {
  const auto owns = [&](const PeerInfo& info) { return is_own(info, entry); };
  const bool may_lack = std::ranges::any_of(all, owns);
  const PeerInfo* first = nullptr;  // that names a set for all
  for (size_t r = 0; r < all.size(); ++r) {
    const PeerInfo& info = all[r];
    if (owns(info) || (!has(info, entry) && may_lack)) continue;
    if (first == nullptr) first = &info;
    const std::string who = "rank " + std::to_string(first - all.data());
    const std::string whom = "rank " + std::to_string(r);
    if (has(info, entry) != has(*first, entry)) {
      return {Code::kInvalidArgument,
              "Different ranks tried to set up mismatching numbers of process sets: " + who + " " +
                  std::to_string(first->process_sets.size()) + ", " + whom + " " +
                  std::to_string(info.process_sets.size()) + "."};
    }
    if (!has(info, entry) || info.process_sets[entry] == first->process_sets[entry]) continue;
    const bool is_size = info.process_sets[entry].size() != first->process_sets[entry].size();
    return {Code::kInvalidArgument, entry_text(entry) + " has mismatching " + (is_size ? "size" : "values") +
                                        " on different ranks: " + who + " and " + whom +
                                        "; list the same sets on all ranks."};
  }
  return Status::ok();
}

}  // namespace

Status check_process_sets(const std::vector<std::vector<Rank>>& sets, Rank world_size) {
  if (sets.size() > kMaxGroups) return too_many(sets.size());
  for (size_t i = 0; i < sets.size(); ++i) {
    const std::string where = " in " + entry_text(i);
    for (size_t k = 0; k < sets[i].size(); ++k) {
      const Rank rank = sets[i][k];
      if (rank < 0 || rank >= world_size) {
        return {Code::kInvalidArgument, "invalid rank: " + std::to_string(rank) + where +
                                            "; ranks are 0 to " + std::to_string(world_size - 1) + "."};
      }
      if (k > 0 && sets[i][k - 1] == rank) {
        return {Code::kInvalidArgument, "duplicate rank: " + std::to_string(rank) + where + "."};
      }
    }
  }
  return Status::ok();
}

Result<std::vector<std::vector<Rank>>> agreed_sets(const std::vector<PeerInfo>& all) {
  size_t entries = 0;
  for (const PeerInfo& info : all) entries = std::max(entries, info.process_sets.size());
  std::vector<std::vector<Rank>> agreed;
  std::set<std::vector<Rank>> known;
  for (size_t entry = 0; entry < entries; ++entry) {
    if (Status s = check_entry(all, entry); !s.is_ok()) return s;
    for (const PeerInfo& info : all)
      if (has(info, entry) && known.insert(info.process_sets[entry]).second)
        agreed.push_back(info.process_sets[entry]);
  }
  if (agreed.size() > kMaxGroups) return too_many(agreed.size());
  return agreed;
}

}  // namespace rueda::runtime
