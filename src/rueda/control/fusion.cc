#include "rueda/control/fusion.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace rueda::control {
namespace {

using Key = std::tuple<int32_t, TermsKey, int32_t, std::vector<Rank>>;

// A group is packed first-fit over this many of its latest responses: bounds the scan for groups of huge
// tensors.
constexpr size_t kMaxOpenOfGroup = 16;

bool is_fusible(Collective what) {
  return what == Collective::kAllreduce || what == Collective::kAllgather ||
         what == Collective::kReducescatter;
}

Key key_of(const Candidate& candidate) {
  const Response& r = candidate.response;
  return {r.process_set, key_of(static_cast<const Terms&>(r)), r.device, r.joined};
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

  std::vector<Response> take() && { return std::move(responses_); }

 private:
  [[nodiscard]] bool can_fuse(const Candidate& candidate) const {
    return options_.fusion_bytes > 0 && is_fusible(candidate.response.what) &&
           candidate.bytes <= options_.fusion_bytes &&
           (options_.alone_bytes == 0 || candidate.bytes < options_.alone_bytes);
  }

  [[nodiscard]] bool fits(size_t response, int64_t bytes) const {
    return bytes <= options_.fusion_bytes - bytes_[response];  // both at most fusion_bytes: no overflow
  }

  size_t open(Candidate candidate) {
    bytes_.push_back(candidate.bytes);
    responses_.push_back(std::move(candidate.response));
    return responses_.size() - 1;
  }

  void append(size_t response, Candidate candidate) {
    bytes_[response] += candidate.bytes;
    responses_[response].entries.push_back(std::move(candidate.response.entries[0]));
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

  // A group whose members are all alike and fit may ride along with earlier tensors; else it gets responses
  // of its own, one directly after the other.
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
                                   [&](size_t response) { return fits(response, member.bytes); });
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

  FusionOptions options_;
  std::vector<Response> responses_;
  std::vector<int64_t> bytes_;  // of each response
  std::map<Key, size_t> open_;  // the response that tensors of a kind may still join
};

}  // namespace

bool can_share(const Candidate& a, const Candidate& b) {
  return is_fusible(a.response.what) && key_of(a) == key_of(b);
}

std::vector<Response> fuse(std::vector<Unit> units, const FusionOptions& options) {
  Packer packer(options);
  for (Unit& unit : units) packer.add(std::move(unit));
  return std::move(packer).take();
}

}  // namespace rueda::control
