#include "rueda/control/pending.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "rueda/control/mismatch.h"

namespace rueda::control {
namespace {

// "x" for "x_1of3", as the API names the first member of a group of 3. Empty for other names.
std::string base_name(const TensorRequest& request) {
  if (request.group_index != 0) return {};
  const std::string suffix = "_1of" + std::to_string(request.group_size);
  if (!request.name.ends_with(suffix)) return {};
  return request.name.substr(0, request.name.size() - suffix.size());
}

std::string group_text(const TensorRequest& request) {
  if (request.group_size == 1) return "no group";
  return "position " + std::to_string(request.group_index + 1) + " of the " +
         std::to_string(request.group_size) + " tensors of group " + request.group_name;
}

Status group_conflict(const PendingTensor& tensor) {
  const TensorRequest& first = tensor.first();
  std::string why =
      "Mismatched groups: the ranks disagree about the members of a group. Tensor " + tensor.name;
  for (const Arrival& one : tensor.arrivals) {
    const bool is_first = &one == &tensor.arrivals[0];
    if (!is_first && group_text(*one.request) == group_text(first)) continue;
    why += (is_first ? ": rank " : ", but rank ") + std::to_string(one.ranks.first()) + " has it as " +
           group_text(*one.request);
    if (!is_first) break;
  }
  std::map<std::string, RankSet> by_text;
  for (const Arrival& one : tensor.arrivals) by_text[group_text(*one.request)].add(one.ranks);
  std::vector<std::vector<Rank>> groups;
  for (const auto& [text, ranks] : by_text) groups.push_back(ranks.ranks());
  return {Code::kMismatch,
          why + ". Every rank must submit the same groups." + outnumbered_text(outnumbered_among(groups))};
}

Status length_conflict(const std::vector<PendingTensor*>& rivals) {
  const Arrival& a = rivals[0]->arrivals[0];
  const Arrival& b = rivals[1]->arrivals[0];
  const auto length = [](const Arrival& one) { return std::to_string(one.request->group_size); };
  std::vector<std::vector<Rank>> groups;
  for (const PendingTensor* rival : rivals) groups.push_back(rival->submitted.ranks());
  return {Code::kMismatch, "Mismatched groups: One rank submitted a group of length " + length(a) +
                               ", but another rank submitted a group of length " + length(b) + ". Group " +
                               rivals[0]->base + ": rank " + std::to_string(a.ranks.first()) + " has " +
                               length(a) + " tensors, rank " + std::to_string(b.ranks.first()) + " has " +
                               length(b) + "." + outnumbered_text(outnumbered_among(groups))};
}

}  // namespace

std::vector<Submission> submissions_of(const PendingTensor& tensor) {
  std::map<Rank, const TensorRequest*> by_rank;
  for (const Arrival& one : tensor.arrivals)
    one.ranks.for_each([&](Rank rank) { by_rank.emplace(rank, one.request.get()); });
  std::vector<Submission> all;
  all.reserve(by_rank.size());
  for (const auto& [rank, request] : by_rank) all.push_back({.rank = rank, .request = *request});
  return all;
}

std::vector<Submission> different_submissions_of(const PendingTensor& tensor) {
  std::map<const TensorRequest*, Rank> lowest;  // equal requests are one
  for (const Arrival& one : tensor.arrivals) {
    const auto [at, is_new] = lowest.emplace(one.request.get(), one.ranks.first());
    if (!is_new) at->second = std::min(at->second, one.ranks.first());
  }
  std::map<Rank, const TensorRequest*> by_rank;
  for (const auto& [request, rank] : lowest) by_rank.emplace(rank, request);
  std::vector<Submission> all;
  for (const auto& [rank, request] : by_rank) all.push_back({.rank = rank, .request = *request});
  return all;
}

PendingSet::PendingSet(int32_t id, std::vector<Rank> members, const RankSet& joined)
    : id_(id), members_(std::move(members)), member_set_(members_), joined_(joined) {}

Rank PendingSet::index_of(Rank world_rank) const {
  const auto guess = static_cast<size_t>(world_rank);
  if (guess < members_.size() && members_[guess] == world_rank)
    return world_rank;  // the world, or its first ranks
  const auto at = std::lower_bound(members_.begin(), members_.end(), world_rank);
  return at != members_.end() && *at == world_rank ? static_cast<Rank>(at - members_.begin()) : -1;
}

std::vector<Rank> PendingSet::missing_ranks(const PendingTensor& tensor) const {
  RankSet missing = member_set_;
  missing.remove(tensor.submitted);
  missing.remove(joined_);
  return missing.ranks();
}

const PendingTensor* PendingSet::find(const std::string& name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : at->second.get();
}

// A member that has joined keeps nobody waiting.
bool PendingSet::comes_before(const PendingTensor& tensor, const PendingTensor& complete) const {
  bool have_any_both = false;
  for (const Arrival& one : complete.arrivals) {
    const RankSet ranks = one.ranks.common(member_set_);
    RankSet without = ranks;
    without.remove(tensor.submitted);
    if (!joined_.includes(without)) return false;
    for (const Arrival& other : tensor.arrivals) {
      if (ranks.common(other.ranks).is_empty()) continue;
      if (other.sequence > one.sequence) return false;
      have_any_both = true;
    }
  }
  return have_any_both;
}

void PendingSet::submit(Arrival&& arrival, const Status& fault, Nanos now) {
  PendingTensor& tensor = find_or_add(arrival, now);
  if (!fault.is_ok() && tensor.fault.is_ok()) tensor.fault = fault;
  if (const RankSet again = arrival.ranks.common(tensor.submitted); !again.is_empty()) {
    tensor.fault = {Code::kDuplicateName, "Rank " + std::to_string(again.last()) + " submitted " +
                                              tensor.name +
                                              " with the same name as another tensor that is currently being "
                                              "processed."};
    arrival.ranks.remove(again);
    if (arrival.ranks.is_empty()) return;
  }
  const bool is_first = tensor.arrivals.empty();
  const bool was_complete = tensor.is_complete();
  tensor.submitted.add(arrival.ranks);
  const Rank awaited = arrival.ranks.count() - arrival.ranks.common(joined_).count();
  tensor.missing -= std::min(tensor.missing, awaited);
  enter_group(tensor, *arrival.request);
  for (const Arrival& other : tensor.arrivals) {
    if (other.request != arrival.request && !(*other.request == *arrival.request)) continue;
    arrival.request = other.request;
    break;
  }
  tensor.arrivals.push_back(std::move(arrival));
  // If all other ranks have joined, a tensor is complete at its first submission.
  if (tensor.is_complete() && (!was_complete || is_first)) {
    complete(tensor);
  } else if (!tensor.base.empty()) {
    if (const auto rivals = bases_.find(tensor.base); rivals->second.size() > 1)
      suspect_bases_.push_back(tensor.base);
  }
}

PendingTensor& PendingSet::find_or_add(const Arrival& arrival, Nanos now) {
  const TensorRequest& request = *arrival.request;
  const auto [slot, is_new] = tensors_.try_emplace(request.name);
  if (!is_new) return *slot->second;
  slot->second = std::make_unique<PendingTensor>();
  PendingTensor& tensor = *slot->second;
  tensor.name = request.name;
  tensor.id = arrival.sequence;
  tensor.missing = static_cast<Rank>(members_.size()) - member_set_.common(joined_).count();
  tensor.since = now;
  tensor.order = next_order_++;
  tensor.at = waiting_.insert(waiting_.end(), &tensor);
  tensor.base = base_name(request);
  if (!tensor.base.empty()) bases_[tensor.base].push_back(&tensor);
  return tensor;
}

void PendingSet::enter_group(PendingTensor& tensor, const TensorRequest& request) {
  const bool is_first = tensor.arrivals.empty();
  if (!is_first) {
    const TensorRequest& first = tensor.first();
    if (first.group_size == request.group_size && first.group_index == request.group_index &&
        first.group_name == request.group_name)
      return;
    if (first.group_size == 1 && request.group_size == 1) return;
    tensor.has_group_conflict = true;
    for (PendingGroup* group : tensor.groups) group->has_conflict = true;
  }
  if (request.group_size == 1) return;
  PendingGroup& group = groups_[request.group_name];
  if (group.size == 0) {
    group.name = request.group_name;
    group.size = request.group_size;
  }
  const auto [member, is_new] = group.members.try_emplace(request.group_index, &tensor);
  if (std::find(tensor.groups.begin(), tensor.groups.end(), &group) == tensor.groups.end())
    tensor.groups.push_back(&group);
  group.has_conflict |=
      tensor.has_group_conflict || group.size != request.group_size || member->second != &tensor;
  if (!group.has_conflict) return;
  if (!is_new && member->second != &tensor) {
    // Two tensors claim the same position. The second is kept under a negative one, which no tensor has, so
    // that it fails with the others.
    tensor.has_group_conflict = true;
    const int32_t lowest = group.members.begin()->first;
    group.members.emplace(std::min(lowest, 0) - 1, &tensor);
  }
  suspect(group);
}

// One complete member is enough for take_conflicts() to look at the whole group.
void PendingSet::suspect(PendingGroup& group) {
  if (group.is_suspect) return;
  for (const auto& [position, member] : group.members) {
    if (!member->is_complete()) continue;
    group.is_suspect = true;
    suspect_names_.push_back(member->name);
    return;
  }
}

void PendingSet::complete(PendingTensor& tensor) {
  if (tensor.has_group_conflict) {
    suspect_names_.push_back(tensor.name);
    return;
  }
  if (tensor.groups.empty()) {
    Finished finished;
    finished.tensors = remove({&tensor});
    finished_.push_back(std::move(finished));
    return;
  }
  PendingGroup& group = *tensor.groups[0];
  ++group.complete;
  if (group.has_conflict) {
    suspect_names_.push_back(tensor.name);
    return;
  }
  if (group.complete < group.size) return;
  Finished finished;
  std::vector<PendingTensor*> members;
  for (const auto& [position, member] : group.members) members.push_back(member);
  finished.tensors = remove(std::move(members));
  finished.is_group = true;
  finished_.push_back(std::move(finished));
}

void PendingSet::join(Rank from) {
  if (index_of(from) < 0) return;
  std::vector<PendingTensor*> completed;
  for (PendingTensor* tensor : waiting_) {
    if (tensor->submitted.contains(from) || tensor->is_complete()) continue;
    if (--tensor->missing == 0) completed.push_back(tensor);
    if (!tensor->base.empty() && bases_[tensor->base].size() > 1) suspect_bases_.push_back(tensor->base);
  }
  // complete() removes the tensor, and perhaps its group. The other members of that group are complete too
  // and come earlier in this list, so it removes no tensor that is still to come.
  for (PendingTensor* tensor : completed) complete(*tensor);
}

std::vector<Finished> PendingSet::take_finished() { return std::exchange(finished_, {}); }

std::vector<Finished> PendingSet::take_conflicts() {
  std::vector<Finished> out;
  for (const std::string& name : std::exchange(suspect_names_, {})) fail_conflict(name, out);
  for (const std::string& base : std::exchange(suspect_bases_, {})) fail_length_conflict(base, out);
  return out;
}

void PendingSet::fail_conflict(const std::string& name, std::vector<Finished>& out) {
  const auto at = tensors_.find(name);
  if (at == tensors_.end()) return;  // it has failed already, with a related tensor
  std::vector<PendingTensor*> all = related({at->second.get()});
  const auto culprit =
      std::find_if(all.begin(), all.end(), [](const PendingTensor* t) { return t->has_group_conflict; });
  Finished finished;
  finished.verdict = group_conflict(culprit != all.end() ? **culprit : *at->second);
  finished.is_group = true;
  finished.tensors = remove(std::move(all));
  out.push_back(std::move(finished));
}

void PendingSet::fail_length_conflict(const std::string& base, std::vector<Finished>& out) {
  const auto at = bases_.find(base);
  if (at == bases_.end() || !can_never_complete(at->second)) return;
  Finished finished;
  finished.verdict = length_conflict(at->second);
  finished.is_group = true;
  finished.tensors = remove(related(at->second));
  out.push_back(std::move(finished));
}

// True if every member has submitted some group of this base, and none of these groups is complete. If all
// ranks use the base for groups of two lengths in the same order, this is never true, because the older
// group completes first.
bool PendingSet::can_never_complete(const std::vector<PendingTensor*>& rivals) const {
  if (rivals.size() < 2) return false;
  for (const PendingTensor* rival : rivals)
    if (rival->is_complete()) return false;
  RankSet covered = joined_;
  for (const PendingTensor* rival : rivals) covered.add(rival->submitted);
  return covered.includes(member_set_);
}

std::vector<PendingTensor*> PendingSet::related(std::vector<PendingTensor*> seeds) const {
  std::set<PendingTensor*> seen(seeds.begin(), seeds.end());
  std::vector<PendingTensor*> all = std::move(seeds);
  std::set<const PendingGroup*> groups;
  for (size_t i = 0; i < all.size(); ++i)
    for (const PendingGroup* group : all[i]->groups)
      if (groups.insert(group).second)
        for (const auto& [position, member] : group->members)
          if (seen.insert(member).second) all.push_back(member);
  std::sort(all.begin(), all.end(),
            [](const PendingTensor* a, const PendingTensor* b) { return a->order < b->order; });
  return all;
}

// Removes the groups of the tensors too: callers pass whole groups.
std::vector<std::unique_ptr<PendingTensor>> PendingSet::remove(std::vector<PendingTensor*> tensors) {
  std::vector<std::unique_ptr<PendingTensor>> out;
  out.reserve(tensors.size());
  std::set<const PendingGroup*> groups;
  for (PendingTensor* tensor : tensors) {
    waiting_.erase(tensor->at);
    for (const PendingGroup* group : tensor->groups) groups.insert(group);
    if (!tensor->base.empty()) {
      std::vector<PendingTensor*>& rivals = bases_[tensor->base];
      std::erase(rivals, tensor);
      if (rivals.empty()) bases_.erase(tensor->base);
    }
    const auto at = tensors_.find(tensor->name);
    out.push_back(std::move(at->second));
    tensors_.erase(at);
  }
  for (const PendingGroup* group : groups) groups_.erase(std::string(group->name));
  for (const auto& tensor : out) {
    tensor->groups.clear();
    std::ranges::sort(tensor->arrivals, {}, [](const Arrival& one) { return one.ranks.first(); });
  }
  return out;
}

std::vector<std::unique_ptr<PendingTensor>> PendingSet::take_all() {
  return remove({waiting_.begin(), waiting_.end()});
}

}  // namespace rueda::control
