// The communicators of this rank, made when first used: one for each process set that has used its device,
// and one among those of its members that are on this host, if allreduces are hierarchical (levels.h). Engine
// thread only, with the device's context current.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "rueda/backend/nccl/communicator.h"
#include "rueda/memory/cuda/device.h"

namespace rueda::nccl {

class Communicators {
 public:
  explicit Communicators(std::shared_ptr<const Library> library) : library_(std::move(library)) {}
  ~Communicators();

  // That of `members`, who are all members of the process set, or some of them. Null: none has begun.
  [[nodiscard]] Communicator* find(const Group& set, const Group& members) const;
  [[nodiscard]] bool is_empty() const { return made_.empty(); }
  // Begins one: these members have none.
  Result<Communicator*> begin(const UniqueId& id, const Group& set, const Group& members, size_t pack_bytes);
  // The first failure of one, if any has failed: a member was lost, or NCCL has failed.
  [[nodiscard]] Status failure() const;

  // Aborts all of them, each in a thread of its own, because NCCL does not say how long that takes. Returns
  // how many had not returned from it at the deadline: these go on by themselves.
  size_t abort(std::shared_ptr<const cuda::Device> device, Deadline deadline);
  void finish(Deadline deadline);

 private:
  // The number of a set may come again, and two sets may have the same members on one host: all members of a
  // set must find a communicator, or none of them.
  using Key = std::tuple<int32_t, std::vector<Rank>, std::vector<Rank>>;
  static Key key_of(const Group& set, const Group& members) { return {set.id, set.members, members.members}; }

  std::shared_ptr<const Library> library_;
  std::map<Key, std::unique_ptr<Communicator>> made_;
};

}  // namespace rueda::nccl
