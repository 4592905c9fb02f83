#include "rueda/backend/nccl/sets.h"

#include <algorithm>

#include "rueda/backend/nccl/communicator.h"
#include "rueda/base/log.h"

namespace rueda::nccl {

const Levels* Sets::levels_of(Set& set, const Group& group) {
  if (!std::exchange(set.has_levels, true)) {
    LevelsOrReason made = nccl::levels_of(group, topology_(group));
    set.levels = std::move(made.levels);
    if (group.me == 0 && !made.why_not.empty())
      RUEDA_LOG(kWarning, "NCCL reduces " + describe(group) + " on one level: " + made.why_not);
  }
  return set.levels ? &*set.levels : nullptr;
}

void Sets::decide(Set& set, const Group& group, std::span<const MemberInfo> members) {
  const std::string refusal = refusal_of(group, members);
  if (refusal.empty()) return;
  const bool is_new =
      std::ranges::none_of(sets_, [&](const auto& one) { return one.second.refusal == refusal; });
  if (group.me == 0 && is_new)
    RUEDA_LOG(kWarning, refusal + " GPU tensors of " + describe(group) + " go through host memory.");
  set.refusal = refusal;
}

void Sets::decide_adasum(Set& set, const Group& group, std::span<const MemberInfo> members, size_t needed) {
  set.adasum_bytes = pack_bytes_of(members);
  if (needed <= set.adasum_bytes || group.me != 0 || std::exchange(has_warned_, true)) return;
  RUEDA_LOG(kWarning, "An Adasum in " + describe(group) + " needs " + std::to_string(needed >> 20) +
                          " MiB of GPU memory on each rank, and one has less left: such calls go through "
                          "host memory.");
}

}  // namespace rueda::nccl
