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
  const TensorRequest& first = tensor.submissions[0].request;
  std::string why =
      "Mismatched groups: the ranks disagree about the members of a group. Tensor " + tensor.name;
  for (const Submission& one : tensor.submissions) {
    const bool is_first = &one == &tensor.submissions[0];
    if (!is_first && group_text(one.request) == group_text(first)) continue;
    why += (is_first ? ": rank " : ", but rank ") + std::to_string(one.rank) + " has it as " +
           group_text(one.request);
    if (!is_first) break;
  }
  std::map<std::string, std::vector<Rank>> by_text;
  for (const Submission& one : tensor.submissions) by_text[group_text(one.request)].push_back(one.rank);
  std::vector<std::vector<Rank>> groups;
  for (auto& [text, ranks] : by_text) groups.push_back(std::move(ranks));
  return {Code::kMismatch,
          why + ". Every rank must submit the same groups." + outnumbered_text(outnumbered_among(groups))};
}

Status length_conflict(const std::vector<PendingTensor*>& rivals) {
  const Submission& a = rivals[0]->submissions[0];
  const Submission& b = rivals[1]->submissions[0];
  const auto length = [](const Submission& one) { return std::to_string(one.request.group_size); };
  std::vector<std::vector<Rank>> groups;
  for (const PendingTensor* rival : rivals) {
    std::vector<Rank>& ranks = groups.emplace_back();
    for (const Submission& one : rival->submissions) ranks.push_back(one.rank);
  }
  return {Code::kMismatch, "Mismatched groups: One rank submitted a group of length " + length(a) +
                               ", but another rank submitted a group of length " + length(b) + ". Group " +
                               rivals[0]->base + ": rank " + std::to_string(a.rank) + " has " + length(a) +
                               " tensors, rank " + std::to_string(b.rank) + " has " + length(b) + "." +
                               outnumbered_text(outnumbered_among(groups))};
}

}  // namespace

PendingSet::PendingSet(int32_t id, std::vector<Rank> members, const std::vector<bool>& has_joined)
    : id_(id), members_(std::move(members)), has_joined_(has_joined) {}

Rank PendingSet::index_of(Rank world_rank) const {
  const auto guess = static_cast<size_t>(world_rank);
  if (guess < members_.size() && members_[guess] == world_rank)
    return world_rank;  // the world, or its first ranks
  const auto at = std::lower_bound(members_.begin(), members_.end(), world_rank);
  return at != members_.end() && *at == world_rank ? static_cast<Rank>(at - members_.begin()) : -1;
}

std::vector<Rank> PendingSet::missing_ranks(const PendingTensor& tensor) const {
  std::vector<Rank> missing;
  for (size_t i = 0; i < members_.size(); ++i)
    if (!tensor.is_submitted[i] && !has_joined_[static_cast<size_t>(members_[i])])
      missing.push_back(members_[i]);
  return missing;
}

const PendingTensor* PendingSet::find(const std::string& name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : at->second.get();
}

// A member that has joined keeps nobody waiting.
bool PendingSet::comes_before(const PendingTensor& tensor, const PendingTensor& complete) const {
  std::unordered_map<Rank, uint64_t> sequences;
  for (const Submission& one : tensor.submissions) sequences.emplace(one.rank, one.sequence);
  bool have_any_both = false;
  for (const Submission& one : complete.submissions) {
    if (index_of(one.rank) < 0) continue;
    const auto at = sequences.find(one.rank);
    if (at == sequences.end() && has_joined_[static_cast<size_t>(one.rank)]) continue;
    if (at == sequences.end() || at->second > one.sequence) return false;
    have_any_both = true;
  }
  return have_any_both;
}

bool PendingSet::submit(Submission&& submission, const Status& fault, Nanos now) {
  const Rank from = submission.rank;
  PendingTensor& tensor = find_or_add(submission, now);
  if (!fault.is_ok() && tensor.fault.is_ok()) tensor.fault = fault;
  const auto index = static_cast<size_t>(index_of(from));
  if (tensor.is_submitted[index]) {
    tensor.fault = {Code::kDuplicateName, "Rank " + std::to_string(from) + " submitted " + tensor.name +
                                              " with the same name as another tensor that is currently being "
                                              "processed."};
    return false;
  }
  const bool is_first = tensor.submissions.empty();
  const bool was_complete = tensor.is_complete();
  tensor.is_submitted[index] = true;
  if (!has_joined_[static_cast<size_t>(from)] && tensor.missing > 0) --tensor.missing;
  enter_group(tensor, submission.request);
  tensor.submissions.push_back(std::move(submission));
  // If all other ranks have joined, a tensor is complete at its first submission.
  if (tensor.is_complete() && (!was_complete || is_first)) {
    complete(tensor);
  } else if (!tensor.base.empty()) {
    if (const auto rivals = bases_.find(tensor.base); rivals->second.size() > 1)
      suspect_bases_.push_back(tensor.base);
  }
  return is_first;
}

PendingTensor& PendingSet::find_or_add(const Submission& submission, Nanos now) {
  const TensorRequest& request = submission.request;
  const auto [slot, is_new] = tensors_.try_emplace(request.name);
  if (!is_new) return *slot->second;
  slot->second = std::make_unique<PendingTensor>();
  PendingTensor& tensor = *slot->second;
  tensor.name = request.name;
  tensor.id = submission.sequence;
  tensor.submissions.reserve(members_.size());
  tensor.is_submitted.resize(members_.size());
  tensor.missing = static_cast<Rank>(std::count_if(
      members_.begin(), members_.end(), [&](Rank rank) { return !has_joined_[static_cast<size_t>(rank)]; }));
  tensor.since = now;
  tensor.order = next_order_++;
  tensor.at = waiting_.insert(waiting_.end(), &tensor);
  tensor.base = base_name(request);
  if (!tensor.base.empty()) bases_[tensor.base].push_back(&tensor);
  return tensor;
}

void PendingSet::enter_group(PendingTensor& tensor, const TensorRequest& request) {
  const bool is_first = tensor.submissions.empty();
  if (!is_first) {
    const TensorRequest& first = tensor.submissions[0].request;
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
  const Rank index = index_of(from);
  if (index < 0) return;
  std::vector<PendingTensor*> completed;
  for (PendingTensor* tensor : waiting_) {
    if (tensor->is_submitted[static_cast<size_t>(index)] || tensor->is_complete()) continue;
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
  for (size_t i = 0; i < members_.size(); ++i) {
    const bool is_covered = has_joined_[static_cast<size_t>(members_[i])] ||
                            std::any_of(rivals.begin(), rivals.end(),
                                        [i](const PendingTensor* rival) { return rival->is_submitted[i]; });
    if (!is_covered) return false;
  }
  return true;
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
    std::sort(tensor->submissions.begin(), tensor->submissions.end(),
              [](const Submission& a, const Submission& b) { return a.rank < b.rank; });
  }
  return out;
}

std::vector<std::unique_ptr<PendingTensor>> PendingSet::take_all() {
  return remove({waiting_.begin(), waiting_.end()});
}

}  // namespace rueda::control
