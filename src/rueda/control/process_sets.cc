#include "rueda/control/process_sets.h"

#include <algorithm>

#include "rueda/base/limits.h"
#include "rueda/control/mismatch.h"

namespace rueda::control {
namespace {

// The calls block, so a correct program has one open request per thread.
constexpr size_t kMaxOpenRequests = 1'024;
constexpr size_t kMaxListedRequests = 4;

std::string ranks_text(const std::vector<Rank>& ranks) { return shape_string({ranks.begin(), ranks.end()}); }

std::string change_text(const SetChange& change) {
  if (const auto* removed = std::get_if<RemoveSet>(&change.what))
    return "to remove set " + std::to_string(removed->id);
  return "to add " + ranks_text(std::get<AddSet>(change.what).ranks);
}

size_t ranks_named(const SetChange& change) {
  const auto* added = std::get_if<AddSet>(&change.what);
  return added != nullptr ? added->ranks.size() : 0;
}

Status disagreement(const std::vector<ProcessSets::Asked>& match) {
  const bool sizes_differ = std::any_of(match.begin(), match.end(), [&](const ProcessSets::Asked& one) {
    return ranks_named(one.change) != ranks_named(match[0].change);
  });
  std::string why = "Process sets: mismatching values on different ranks";
  if (sizes_differ) why += " (mismatching size on different ranks)";
  std::vector<const SetChange*> shown;
  for (const ProcessSets::Asked& one : match) {
    const bool is_known = std::any_of(shown.begin(), shown.end(),
                                      [&](const SetChange* other) { return other->what == one.change.what; });
    if (is_known || shown.size() == kMaxListedRequests) continue;
    why += (shown.empty() ? ": rank " : ", rank ") + std::to_string(one.rank) + " asked " +
           change_text(one.change);
    shown.push_back(&one.change);
  }
  return {Code::kMismatch, why + ". All ranks must add and remove the same process sets in the same order."};
}

// Each name once. As a rule all ranks use the same one.
std::vector<std::string> names_of(const std::vector<ProcessSets::Asked>& match) {
  std::vector<std::string> names;
  for (const ProcessSets::Asked& one : match)
    if (std::find(names.begin(), names.end(), one.change.name) == names.end())
      names.push_back(one.change.name);
  return names;
}

}  // namespace

ProcessSets::ProcessSets(Rank world_size, std::map<int32_t, std::vector<Rank>> sets)
    : world_size_(world_size), sets_(std::move(sets)), queues_(static_cast<size_t>(world_size)) {
  for (auto& [id, ranks] : sets_) std::sort(ranks.begin(), ranks.end());
}

Status ProcessSets::push(Rank from, SetChange change, Nanos now) {
  std::deque<Queued>& queue = queues_[static_cast<size_t>(from)];
  if (queue.size() >= kMaxOpenRequests)
    return {Code::kUnavailable, "Rank " + std::to_string(from) + " has more than " +
                                    std::to_string(kMaxOpenRequests) + " process set requests open."};
  if (auto* added = std::get_if<AddSet>(&change.what)) std::sort(added->ranks.begin(), added->ranks.end());
  waiting_ranks_ += queue.empty() ? 1 : 0;
  queue.push_back({std::move(change), now});
  return Status::ok();
}

std::optional<std::vector<ProcessSets::Asked>> ProcessSets::take_match(const std::vector<bool>& has_joined) {
  if (waiting_ranks_ == 0) return std::nullopt;
  if (waiting_ranks_ < world_size_)
    for (size_t rank = 0; rank < queues_.size(); ++rank)
      if (queues_[rank].empty() && !has_joined[rank]) return std::nullopt;
  std::vector<Asked> match;
  for (size_t rank = 0; rank < queues_.size(); ++rank) {
    if (queues_[rank].empty()) continue;
    match.push_back({static_cast<Rank>(rank), std::move(queues_[rank].front().change)});
    queues_[rank].pop_front();
    waiting_ranks_ -= queues_[rank].empty() ? 1 : 0;
  }
  return match;
}

Result<ProcessSets::Outcome> ProcessSets::judge(const std::vector<Asked>& match) const {
  if (std::cmp_less(match.size(), world_size_))
    return Status(Code::kUnsupported, "Changing process sets is not supported with Join at this time: " +
                                          std::to_string(world_size_ - static_cast<Rank>(match.size())) +
                                          " ranks have joined.");
  const SetChange& first = match[0].change;
  for (const Asked& one : match)
    if (one.change.what != first.what) return disagreement(match);
  return std::visit(
      [&](const auto& change) -> Result<Outcome> {
        auto verdict = judge(change);
        if (!verdict.is_ok()) return verdict.status();
        verdict.value().names = names_of(match);
        return Outcome(std::move(verdict).value());
      },
      first.what);
}

Status ProcessSets::check_ranks(const std::vector<Rank>& ranks) const {
  const std::string of = " in the process set " + ranks_text(ranks) + "; the world has ranks 0 to " +
                         std::to_string(world_size_ - 1) + ".";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= world_size_)
      return {Code::kInvalidArgument, "invalid rank: " + std::to_string(ranks[i]) + of};
    if (i > 0 && ranks[i] == ranks[i - 1])
      return {Code::kInvalidArgument, "duplicate rank: " + std::to_string(ranks[i]) + of};
  }
  return Status::ok();
}

Result<SetAdded> ProcessSets::judge(const AddSet& added) const {
  const std::vector<Rank>& ranks = added.ranks;
  if (Status status = check_ranks(ranks); !status.is_ok()) return status;
  if (std::cmp_equal(ranks.size(), world_size_))
    return Status(Code::kInvalidArgument, "Attempted to add a duplicate process set: " + ranks_text(ranks) +
                                              " is the whole world; use global_process_set.");
  int32_t id = 1;
  for (const auto& [known, members] : sets_) {
    if (members == ranks)
      return Status(Code::kInvalidArgument, "Attempted to add a duplicate process set: " + ranks_text(ranks) +
                                                " is registered with id " + std::to_string(known) + ".");
    if (known == id) ++id;  // ids ascend, so this stops at the first gap
  }
  if (sets_.size() >= kMaxGroups)
    return Status(Code::kUnavailable,
                  "More than " + std::to_string(kMaxGroups) + " process sets; remove some.");
  return SetAdded{.names = {}, .id = id, .ranks = ranks};
}

Result<SetRemoved> ProcessSets::judge(const RemoveSet& removed) const {
  if (!sets_.contains(removed.id))
    return Status(Code::kInvalidArgument,
                  "Process set " + std::to_string(removed.id) +
                      " cannot be removed: Process set provided does not exist, or has "
                      "not been registered.");
  return SetRemoved{.names = {}, .id = removed.id};
}

std::optional<ProcessSets::Waiting> ProcessSets::waiting() const {
  if (waiting_ranks_ == 0) return std::nullopt;
  Waiting waiting;
  bool is_first = true;
  for (size_t rank = 0; rank < queues_.size(); ++rank) {
    if (queues_[rank].empty()) {
      waiting.missing.push_back(static_cast<Rank>(rank));
      continue;
    }
    const Queued& head = queues_[rank].front();
    if (is_first || head.when < waiting.since) {
      waiting.since = head.when;
      waiting.name = head.change.name;
    }
    is_first = false;
  }
  return waiting;
}

}  // namespace rueda::control
