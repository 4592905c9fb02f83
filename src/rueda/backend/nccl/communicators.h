// The communicators of this rank, one for each process set that has used its device, made when first used.
// Engine thread only, with the device's context current.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "rueda/backend/nccl/communicator.h"
#include "rueda/memory/cuda/device.h"

namespace rueda::nccl {

class Communicators {
 public:
  explicit Communicators(std::shared_ptr<const Library> library) : library_(std::move(library)) {}
  ~Communicators();

  [[nodiscard]] Communicator* find(const Group& group) const;  // null: none has begun
  [[nodiscard]] bool is_empty() const { return made_.empty(); }
  // Begins one: the process set has none.
  Result<Communicator*> begin(const UniqueId& id, const Group& group, size_t pack_bytes);
  // The first failure of one, if any has failed: a member was lost, or NCCL has failed.
  [[nodiscard]] Status failure() const;

  // Aborts all of them, each in a thread of its own, because NCCL does not say how long that takes. Returns
  // how many had not returned from it at the deadline: these go on by themselves.
  size_t abort(std::shared_ptr<const cuda::Device> device, Deadline deadline);
  void finish(Deadline deadline);

 private:
  using Key = std::pair<int32_t, std::vector<Rank>>;  // the number of a set may come again
  static Key key_of(const Group& group) { return {group.id, group.members}; }

  std::shared_ptr<const Library> library_;
  std::map<Key, std::unique_ptr<Communicator>> made_;
};

}  // namespace rueda::nccl
