#include "rueda/control/fusion.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace rueda::control {
namespace {

using Key = std::tuple<int32_t, TermsKey, int32_t, std::vector<Rank>>;

// The members of a group are packed first-fit into at most this many of its latest buckets, which bounds the
// search in groups of huge tensors.
constexpr size_t kMaxOpenOfGroup = 16;

Key key_of(const Candidate& candidate) {
  const Bucket& b = candidate.bucket;
  return {b.process_set, key_of(static_cast<const Terms&>(b)), b.device, b.joined};
}

class Packer {
 public:
  explicit Packer(const FusionOptions& options) : options_(options) {}

  void add(Unit unit) {
    if (unit.is_group) {
      add_group(std::move(unit.candidates));
    } else {
      add_single(std::move(unit.candidates[0]));
    }
  }

  std::vector<Bucket> take() && { return std::move(buckets_); }

 private:
  [[nodiscard]] bool can_fuse(const Candidate& candidate) const {
    return options_.fusion_bytes > 0 && is_fusible(candidate.bucket.what) &&
           candidate.bytes <= options_.fusion_bytes && !goes_alone(candidate);
  }

  [[nodiscard]] bool goes_alone(const Candidate& candidate) const {
    if (candidate.shares_memory) return true;
    const Bucket& bucket = candidate.bucket;
    const int64_t alone_bytes = options_.traits_of(bucket.process_set, bucket).alone_bytes;
    return alone_bytes > 0 && candidate.bytes >= alone_bytes;
  }

  [[nodiscard]] bool fits(size_t bucket, int64_t bytes) const {
    return bytes <= options_.fusion_bytes - bytes_[bucket];  // no overflow: both are at most fusion_bytes
  }

  size_t open(Candidate candidate) {
    bytes_.push_back(candidate.bytes);
    buckets_.push_back(std::move(candidate.bucket));
    return buckets_.size() - 1;
  }

  void append(size_t bucket, Candidate candidate) {
    bytes_[bucket] += candidate.bytes;
    buckets_[bucket].entries.push_back(std::move(candidate.bucket.entries[0]));
  }

  void add_single(Candidate candidate) {
    if (!can_fuse(candidate)) {
      open(std::move(candidate));
      return;
    }
    Key key = key_of(candidate);
    const auto at = open_.find(key);
    if (at != open_.end() && fits(at->second, candidate.bytes)) {
      append(at->second, std::move(candidate));
    } else {
      open_.insert_or_assign(std::move(key), open(std::move(candidate)));
    }
  }

  // A group whose members have equal terms may join a bucket of earlier tensors if it fits there as a whole.
  // Otherwise it gets buckets of its own, which follow one another directly.
  void add_group(std::vector<Candidate> members) {
    if (rides_along(members)) return;
    std::map<Key, std::vector<size_t>> own;
    for (Candidate& member : members) {
      if (!can_fuse(member)) {
        open(std::move(member));
        continue;
      }
      std::vector<size_t>& mine = own[key_of(member)];
      const size_t begin = mine.size() - std::min(mine.size(), kMaxOpenOfGroup);
      const auto at = std::find_if(mine.begin() + static_cast<std::ptrdiff_t>(begin), mine.end(),
                                   [&](size_t bucket) { return fits(bucket, member.bytes); });
      if (at != mine.end()) {
        append(*at, std::move(member));
      } else {
        mine.push_back(open(std::move(member)));
      }
    }
    if (options_.group_fusion_disabled) return;
    for (const auto& [key, mine] : own) open_.insert_or_assign(key, mine.back());
  }

  bool rides_along(std::vector<Candidate>& members) {
    if (options_.group_fusion_disabled || !can_fuse(members[0])) return false;
    const Key key = key_of(members[0]);
    const auto at = open_.find(key);
    if (at == open_.end()) return false;
    int64_t bytes = 0;
    for (const Candidate& member : members) {
      if (!can_fuse(member) || key_of(member) != key) return false;
      bytes += member.bytes;
      if (!fits(at->second, bytes)) return false;
    }
    for (Candidate& member : members) append(at->second, std::move(member));
    return true;
  }

  const FusionOptions& options_;
  std::vector<Bucket> buckets_;
  std::vector<int64_t> bytes_;  // of each bucket
  std::map<Key, size_t> open_;  // the bucket to which tensors of a kind may still be added
};

}  // namespace

bool is_fusible(Collective what) {
  return what == Collective::kAllreduce || what == Collective::kAllgather ||
         what == Collective::kReducescatter;
}

bool can_share(const Candidate& a, const Candidate& b) {
  return is_fusible(a.bucket.what) && !a.shares_memory && !b.shares_memory && key_of(a) == key_of(b);
}

std::vector<Bucket> fuse(std::vector<Unit> units, const FusionOptions& options) {
  if (units.size() == 1 && units[0].candidates.size() == 1) {  // the usual case with small tensors
    std::vector<Bucket> alone;
    alone.push_back(std::move(units[0].candidates[0].bucket));
    return alone;
  }
  Packer packer(options);
  for (Unit& unit : units) packer.add(std::move(unit));
  return std::move(packer).take();
}

}  // namespace rueda::control
