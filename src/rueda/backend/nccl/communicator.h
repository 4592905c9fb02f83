// One communicator of NCCL: this rank's part of a process set on its device. It is non-blocking: whatever
// takes time goes on in the background of NCCL, and is asked for. Engine thread only, with the device's
// context current.
#pragma once

#include <memory>
#include <string>

#include "rueda/backend/nccl/library.h"
#include "rueda/base/clock.h"
#include "rueda/base/types.h"

namespace rueda::nccl {

class Communicator {
 public:
  // Begins to connect. pack_bytes: how much all members can pack at once.
  static Result<std::unique_ptr<Communicator>> begin(std::shared_ptr<const Library> library,
                                                     const UniqueId& id, const Group& group,
                                                     size_t pack_bytes);
  // After finish() or abort(), or never begun.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Whether NCCL is done with what was asked last: beginning, or the launch of a group. Fails with the first
  // failure, of a member that was lost as well.
  Result<bool> is_settled();
  [[nodiscard]] CommHandle handle() const { return handle_; }
  [[nodiscard]] const std::string& name() const { return name_; }  // of the process set, for sentences
  [[nodiscard]] size_t pack_bytes() const { return pack_bytes_; }

  // Ends what was launched, on every stream, and frees the communicator. May take as long as NCCL likes.
  void abort();
  // Frees the communicator when all that was launched has ended; aborts at the deadline.
  void finish(Deadline deadline);
  // Takes the handle away, to abort it elsewhere; null if there is none.
  CommHandle release();

 private:
  Communicator(std::shared_ptr<const Library> library, std::string name, size_t pack_bytes)
      : library_(std::move(library)), name_(std::move(name)), pack_bytes_(pack_bytes) {}
  std::shared_ptr<const Library> library_;
  std::string name_;
  size_t pack_bytes_;
  CommHandle handle_ = nullptr;
};

// How long the members may take to connect. Thousands of ranks may need minutes, and a lost rank is noticed
// without this.
class ConnectionTime {
 public:
  static constexpr int kPatience = 4;
  // It is warned of a connection that takes longer than this; it fails after kPatience times as long.
  explicit ConnectionTime(Nanos patience);
  // They are not connected yet. says_so: this member warns.
  Status check(const Communicator& communicator, bool says_so);

 private:
  Nanos patience_;
  Deadline deadline_, warning_;
  bool has_warned_ = false;
};

// "process set 2 (ranks 0, 1, 3)"; of many ranks the first few.
std::string describe(const Group& group);

}  // namespace rueda::nccl
