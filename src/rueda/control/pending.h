// The tensors of one process set that wait for ranks: matches requests by name, completes tensor groups,
// and finds ranks that disagree about groups. A tensor is complete when every member has submitted it or
// has joined. Pure.
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
  uint64_t id = 0;                // no other tensor of any set has it: the sequence of the first submission
  std::vector<Arrival> arrivals;  // in order of arrival; of the lowest ranks first when it is complete
  RankSet submitted;              // by whom
  Rank missing = 0;               // members that neither submitted nor joined
  Nanos since = 0;                // first submission
  uint64_t order = 0;             // of the first submission, within the set
  Status fault;                   // of a submission; reported when the tensor is complete
  std::vector<PendingGroup*> groups;  // more than one when ranks disagree
  bool has_group_conflict = false;
  std::string base;  // "x" if this is "x_1of3", the first member of a group that the API named
  std::list<PendingTensor*>::iterator at;

  [[nodiscard]] bool is_complete() const { return missing == 0; }
  [[nodiscard]] const TensorRequest& first() const { return *arrivals.front().request; }
};

// One for each rank, ascending.
std::vector<Submission> submissions_of(const PendingTensor& tensor);
// One for each different request, of the lowest rank that made it; ascending.
std::vector<Submission> different_submissions_of(const PendingTensor& tensor);

struct PendingGroup {
  std::string name;
  int32_t size = 0;
  std::map<int32_t, PendingTensor*> members;  // by position
  int32_t complete = 0;
  bool has_conflict = false;
  bool is_suspect = false;  // has a conflict and a complete member: take_conflicts() looks at it
};

// Tensors that leave the table together, in order of first submission; those of a group, in
// order of position.
struct Finished {
  std::vector<std::unique_ptr<PendingTensor>> tensors;
  Status verdict;  // why they fail; ok: check and run them
  bool is_group = false;
};

class PendingSet {
 public:
  // joined: the ranks that have; the coordinator owns it, and it outlives this object.
  PendingSet(int32_t id, std::vector<Rank> members, const RankSet& joined);

  [[nodiscard]] int32_t id() const { return id_; }
  [[nodiscard]] const std::vector<Rank>& members() const { return members_; }
  [[nodiscard]] const RankSet& member_set() const { return member_set_; }
  [[nodiscard]] Rank index_of(Rank world_rank) const;  // -1: not a member
  // In order of first submission. Includes the complete members of incomplete groups.
  [[nodiscard]] const std::list<PendingTensor*>& waiting() const { return waiting_; }
  [[nodiscard]] std::vector<Rank> missing_ranks(const PendingTensor& tensor) const;

  // The tensor that waits under this name, or null.
  [[nodiscard]] const PendingTensor* find(const std::string& name) const;
  // Whether a tensor of this set comes before a complete one of any set: every member that has submitted the
  // complete one had submitted this one before.
  [[nodiscard]] bool comes_before(const PendingTensor& tensor, const PendingTensor& complete) const;

  // Members submit a tensor.
  void submit(Arrival&& arrival, const Status& fault, Nanos now);
  // A member has joined. The set of those that have says so already.
  void join(Rank from);
  // What the calls above have finished.
  std::vector<Finished> take_finished();
  // Tensors about whose groups the ranks disagree. To be called after all requests that a rank has sent
  // together, when all its groups are known.
  std::vector<Finished> take_conflicts();
  // Everything that waits, because the set is removed or a plan begins.
  std::vector<std::unique_ptr<PendingTensor>> take_all();

 private:
  PendingTensor& find_or_add(const Arrival& arrival, Nanos now);
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
  RankSet member_set_;
  const RankSet& joined_;
  uint64_t next_order_ = 0;
  std::unordered_map<std::string, std::unique_ptr<PendingTensor>> tensors_;
  std::unordered_map<std::string, PendingGroup> groups_;
  // The first members of groups, by base name. If a base has several, the ranks may disagree about the length
  // of its group.
  std::unordered_map<std::string, std::vector<PendingTensor*>> bases_;
  std::list<PendingTensor*> waiting_;
  std::vector<Finished> finished_;
  std::vector<std::string> suspect_names_;  // complete, but their group has a conflict
  std::vector<std::string> suspect_bases_;
};

}  // namespace rueda::control
