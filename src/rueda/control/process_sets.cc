#include "rueda/control/process_sets.h"

#include <algorithm>

#include "rueda/base/limits.h"
#include "rueda/control/mismatch.h"

namespace rueda::control {
namespace {

// The calls block, so a well-behaved rank has one open per thread.
constexpr size_t kMaxOpenRequests = 1'024;
constexpr size_t kMaxListedRequests = 4;

std::string ranks_text(const std::vector<Rank>& ranks) { return shape_string({ranks.begin(), ranks.end()}); }

std::string request_text(const Request& request) {
  if (request.kind == Request::Kind::kRemoveSet) return "to remove set " + std::to_string(request.set_id);
  return "to add " + ranks_text(request.set_ranks);
}

bool agree(const Request& a, const Request& b) {
  if (a.kind != b.kind) return false;
  if (a.kind == Request::Kind::kRemoveSet) return a.set_id == b.set_id;
  return a.set_ranks == b.set_ranks;
}

Status disagreement(const std::vector<Submission>& match) {
  const bool sizes_differ = std::any_of(match.begin(), match.end(), [&](const Submission& one) {
    return one.request.set_ranks.size() != match[0].request.set_ranks.size();
  });
  std::string why = "Process sets: mismatching values on different ranks";
  if (sizes_differ) why += " (mismatching size on different ranks)";
  std::vector<const Request*> shown;
  for (const Submission& one : match) {
    const bool is_known = std::any_of(shown.begin(), shown.end(),
                                      [&](const Request* other) { return agree(*other, one.request); });
    if (is_known || shown.size() == kMaxListedRequests) continue;
    why += (shown.empty() ? ": rank " : ", rank ") + std::to_string(one.rank) + " asked " +
           request_text(one.request);
    shown.push_back(&one.request);
  }
  return {Code::kMismatch, why + ". All ranks must add and remove the same process sets in the same order."};
}

}  // namespace

ProcessSets::ProcessSets(Rank world_size, std::map<int32_t, std::vector<Rank>> sets)
    : world_size_(world_size), sets_(std::move(sets)), queues_(static_cast<size_t>(world_size)) {
  for (auto& [id, ranks] : sets_) std::sort(ranks.begin(), ranks.end());
}

Status ProcessSets::push(Rank from, Request request, Nanos now) {
  std::deque<Queued>& queue = queues_[static_cast<size_t>(from)];
  if (queue.size() >= kMaxOpenRequests)
    return {Code::kUnavailable, "Rank " + std::to_string(from) + " has more than " +
                                    std::to_string(kMaxOpenRequests) + " process set requests open."};
  std::sort(request.set_ranks.begin(), request.set_ranks.end());
  waiting_ranks_ += queue.empty() ? 1 : 0;
  queue.push_back({std::move(request), now});
  return Status::ok();
}

std::optional<std::vector<Submission>> ProcessSets::take_match(const std::vector<bool>& has_joined) {
  if (waiting_ranks_ == 0) return std::nullopt;
  if (waiting_ranks_ < world_size_)
    for (size_t rank = 0; rank < queues_.size(); ++rank)
      if (queues_[rank].empty() && !has_joined[rank]) return std::nullopt;
  std::vector<Submission> match;
  for (size_t rank = 0; rank < queues_.size(); ++rank) {
    if (queues_[rank].empty()) continue;
    match.push_back({static_cast<Rank>(rank), std::move(queues_[rank].front().request)});
    queues_[rank].pop_front();
    waiting_ranks_ -= queues_[rank].empty() ? 1 : 0;
  }
  return match;
}

Result<Response> ProcessSets::judge(const std::vector<Submission>& match) const {
  if (std::cmp_less(match.size(), world_size_))
    return Status(Code::kUnsupported, "Changing process sets is not supported with Join at this time: " +
                                          std::to_string(world_size_ - static_cast<Rank>(match.size())) +
                                          " ranks have joined.");
  const Request& first = match[0].request;
  for (const Submission& one : match)
    if (!agree(one.request, first)) return disagreement(match);
  return first.kind == Request::Kind::kRemoveSet ? judge_remove(first) : judge_add(first);
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

Result<Response> ProcessSets::judge_add(const Request& request) const {
  const std::vector<Rank>& ranks = request.set_ranks;
  if (Status status = check_ranks(ranks); !status.is_ok()) return status;
  if (std::cmp_equal(ranks.size(), world_size_))
    return Status(Code::kInvalidArgument, "Attempted to add a duplicate process set: " + ranks_text(ranks) +
                                              " is the whole world; use global_process_set.");
  int32_t id = 1;
  for (const auto& [known, members] : sets_) {
    if (members == ranks)
      return Status(Code::kInvalidArgument, "Attempted to add a duplicate process set: " + ranks_text(ranks) +
                                                " is registered with id " + std::to_string(known) + ".");
    if (known == id) ++id;  // ascending ids: stops at the first gap
  }
  if (sets_.size() >= kMaxGroups)
    return Status(Code::kUnavailable,
                  "More than " + std::to_string(kMaxGroups) + " process sets; remove some.");
  Response response;
  response.kind = Response::Kind::kSetAdded;
  response.set_ranks = ranks;
  response.set_id = id;
  return response;
}

Result<Response> ProcessSets::judge_remove(const Request& request) const {
  if (!sets_.contains(request.set_id))
    return Status(Code::kInvalidArgument,
                  "Process set " + std::to_string(request.set_id) +
                      " cannot be removed: Process set provided does not exist, or has "
                      "not been registered.");
  Response response;
  response.kind = Response::Kind::kSetRemoved;
  response.set_id = request.set_id;
  return response;
}

void ProcessSets::apply(const Response& response) {
  if (response.kind == Response::Kind::kSetAdded) sets_[response.set_id] = response.set_ranks;
  if (response.kind == Response::Kind::kSetRemoved) sets_.erase(response.set_id);
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
      waiting.name = head.request.name;
    }
    is_first = false;
  }
  return waiting;
}

}  // namespace rueda::control
