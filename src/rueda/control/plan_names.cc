#include "rueda/control/plan_names.h"

#include <string_view>
#include <unordered_set>

#include "rueda/control/numbered_name.h"

namespace rueda::control {
namespace {

constexpr int64_t kMostStride = 1 << 16;  // operations of one pass that are counted

Status unclear(const Entry& entry) {
  return {Code::kInternal, "A learned plan has tensor " + entry.name + " twice, or without a usable number."};
}

}  // namespace

Result<PlanNames> PlanNames::of(std::span<const Bucket> buckets) {
  PlanNames names;
  size_t position = 0;
  for (const Bucket& bucket : buckets) {
    OfSet& of_set = names.of_set_[bucket.process_set];
    std::unordered_set<std::string_view> in_bucket;  // never full, if a name were there twice
    for (const Entry& entry : bucket.entries) {
      if (entry.numbered_at == 0) {
        if (!in_bucket.insert(entry.name).second) return unclear(entry);
        of_set.plain.try_emplace(entry.name, position++);
      } else if (Status added = names.add_numbered(of_set, entry, position++); !added.is_ok()) {
        return added;
      }
    }
  }
  return names;
}

Status PlanNames::add_numbered(OfSet& names, const Entry& entry, size_t position) {
  const std::optional<NumberedName> name = split_name(entry.name, entry.numbered_at);
  if (!name || entry.stride < 1 || entry.stride > kMostStride) return unclear(entry);
  name->put_key(key_);
  const auto [at, is_new] = names.numbered.try_emplace(key_);
  Series& series = at->second;
  if (is_new) {
    series = {.first = name->number, .stride = entry.stride, .positions = {}};
    series.positions.assign(static_cast<size_t>(entry.stride), -1);
  }
  if (series.stride != entry.stride) return unclear(entry);
  const int64_t apart = (name->number - series.first) % series.stride;
  int32_t& known = series.positions[static_cast<size_t>(apart < 0 ? apart + series.stride : apart)];
  if (known >= 0) return unclear(entry);
  known = static_cast<int32_t>(position);
  return Status::ok();
}

std::optional<PlanNames::Found> PlanNames::find(const TensorRequest& request) const {
  const auto of_set = of_set_.find(request.process_set);
  if (of_set == of_set_.end()) return std::nullopt;
  const auto& [plain, numbered] = of_set->second;
  if (request.numbered_at == 0) {
    const auto at = plain.find(request.name);
    if (at == plain.end()) return std::nullopt;
    return Found{.position = at->second};
  }
  const std::optional<NumberedName> name = split_name(request.name, request.numbered_at);
  if (!name) return std::nullopt;
  name->put_key(key_);
  const auto at = numbered.find(key_);
  if (at == numbered.end() || name->number < at->second.first) return std::nullopt;
  const Series& series = at->second;
  const int32_t position =
      series.positions[static_cast<size_t>((name->number - series.first) % series.stride)];
  if (position < 0) return std::nullopt;
  return Found{.position = static_cast<size_t>(position), .number = name->number};
}

}  // namespace rueda::control
