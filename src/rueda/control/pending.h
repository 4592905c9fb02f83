// The names of one process set that wait for ranks: matching by name, groups, and ranks that disagree about
// groups. A tensor is complete when every member has submitted it or has joined. Values in, finished tensors
// out.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/control/tensor.h"

namespace rueda::control {

struct PendingGroup;

struct PendingTensor {
  std::string name;
  std::vector<Submission> submissions;  // in order of arrival
  std::vector<bool> is_submitted;       // by member index
  Rank missing = 0;                     // members that neither submitted nor joined
  Nanos since = 0;                      // first submission
  uint64_t order = 0;                   // ascending with first submission, within the set
  Status fault;                       // a submission that cannot be served; told when the tensor is complete
  std::vector<PendingGroup*> groups;  // more than one when ranks disagree
  bool has_group_conflict = false;
  std::string base;  // "x" when this is the first member, "x_1of3", of a group named by the API
  std::list<PendingTensor*>::iterator at;

  [[nodiscard]] bool is_complete() const { return missing == 0; }
};

struct PendingGroup {
  std::string name;
  int32_t size = 0;
  std::map<int32_t, PendingTensor*> members;  // by position
  int32_t complete = 0;
  bool has_conflict = false;
  bool is_suspect = false;  // has a conflict and a complete member: fails at the end of the batch
};

// Tensors that leave the table together, in order of first submission (a group: of position).
struct Finished {
  std::vector<std::unique_ptr<PendingTensor>> tensors;
  Status verdict;  // why they fail; ok: check and run them
  bool is_group = false;
};

class PendingSet {
 public:
  // has_joined: by world rank, owned by the coordinator, outlives this.
  PendingSet(int32_t id, std::vector<Rank> members, const std::vector<bool>& has_joined);

  [[nodiscard]] int32_t id() const { return id_; }
  [[nodiscard]] const std::vector<Rank>& members() const { return members_; }
  [[nodiscard]] Rank index_of(Rank world_rank) const;  // -1: not a member
  // In order of first submission; complete members of incomplete groups are among them.
  [[nodiscard]] const std::list<PendingTensor*>& waiting() const { return waiting_; }
  [[nodiscard]] std::vector<Rank> missing_ranks(const PendingTensor& tensor) const;

  [[nodiscard]] bool is_waiting(const std::string& name) const { return tensors_.contains(name); }

  // A member submits a tensor. True when it is the name's first submission.
  bool submit(Rank from, TensorRequest&& request, const Status& fault, Nanos now);
  // A member has joined: has_joined says so already.
  void join(Rank from);
  // What the calls above finished.
  std::vector<Finished> take_finished();
  // Tensors on whose groups the ranks disagree. After a whole batch of a rank, so that its groups are all
  // known.
  std::vector<Finished> take_conflicts();
  // Everything that waits, because the set ends.
  std::vector<std::unique_ptr<PendingTensor>> take_all();

 private:
  PendingTensor& find_or_add(const TensorRequest& request, Nanos now);
  void enter_group(PendingTensor& tensor, const TensorRequest& request);
  void suspect(PendingGroup& group);
  void complete(PendingTensor& tensor);
  void fail_conflict(const std::string& name, std::vector<Finished>& out);
  void fail_length_conflict(const std::string& base, std::vector<Finished>& out);
  [[nodiscard]] bool can_never_complete(const std::vector<PendingTensor*>& rivals) const;
  [[nodiscard]] std::vector<PendingTensor*> related(std::vector<PendingTensor*> seeds) const;
  std::vector<std::unique_ptr<PendingTensor>> remove(std::vector<PendingTensor*> tensors);

  int32_t id_;
  std::vector<Rank> members_;
  const std::vector<bool>& has_joined_;
  uint64_t next_order_ = 0;
  std::unordered_map<std::string, std::unique_ptr<PendingTensor>> tensors_;
  std::unordered_map<std::string, PendingGroup> groups_;
  // First members of groups by base name: more than one of a base means that ranks may disagree about its
  // length.
  std::unordered_map<std::string, std::vector<PendingTensor*>> bases_;
  std::list<PendingTensor*> waiting_;
  std::vector<Finished> finished_;
  std::vector<std::string> suspect_names_;  // complete, but their group has a conflict
  std::vector<std::string> suspect_bases_;
};

}  // namespace rueda::control
