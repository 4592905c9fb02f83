// Puts a call on the stream of this rank's GPU, part by part: tensors are packed, NCCL enqueues its groups in
// the background, results are unpacked. Which of these comes when, call_stages.h says. Engine thread only,
// with the device's context current; nothing waits.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "rueda/backend/backend.h"
#include "rueda/backend/gpu.h"
#include "rueda/backend/nccl/adasum.h"
#include "rueda/backend/nccl/communicator.h"
#include "rueda/backend/nccl/levels.h"
#include "rueda/backend/nccl/library.h"
#include "rueda/backend/nccl/lowering.h"
#include "rueda/memory/cuda/device.h"

namespace rueda::nccl {

class Launch {
 public:
  // An allreduce of more tensors has several parts: each may have an event that the stream waits for.
  static constexpr size_t kMostTensors = 512;

  Launch(std::shared_ptr<const Library> library, std::shared_ptr<cuda::Devices> devices,
         std::unique_ptr<backend::Gpu> gpu)
      : library_(std::move(library)), devices_(std::move(devices)), gpu_(std::move(gpu)) {}

  [[nodiscard]] backend::Gpu& gpu() { return *gpu_; }

  // Of this call from now on. levels: null unless it is hierarchical; then it is borrowed until the call
  // ends.
  void begin(const backend::Call& call, Communicator& communicator, const Levels* levels);
  // How much memory the parts of an Adasum need; 0: it is none. The same on every member.
  [[nodiscard]] size_t adasum_bytes() const { return adasum_bytes_; }
  // Allocates it if it can. Returns how much there is.
  size_t reserve_for_adasum();

  // Whether a part is left that is not stored, and how many entries it takes in the queue of the stream.
  [[nodiscard]] bool has_part() const { return !part_.segments.empty(); }
  [[nodiscard]] size_t part_entries() const { return part_entries_; }

  // Packs and scales the tensors of the part. NCCL is given its group: all of it, what reduces inside a host,
  // or the first level of an Adasum.
  Status reduce();
  // Adasum: the vectors of the last exchange are combined, if there was one; then the next one is launched.
  Status combine();
  [[nodiscard]] bool has_exchange() const { return is_adasum(call_.spec) && !adasum_->is_combined(); }
  Status exchange() { return launch(*communicator_, adasum_->exchange()); }
  // By levels: my share of the sums of my host, ready when an event happens that lives until the next call of
  // this; it may be empty. Then all shares are gathered.
  Result<backend::Segment> share();
  Status gather();
  // Scales and unpacks the results of the part. The next part is the one that is left.
  Status store();
  // The event of the whole call.
  Result<std::shared_ptr<backend::CudaEvent>> end();
  // An event after everything that is enqueued now.
  Result<std::shared_ptr<backend::CudaEvent>> mark();

  // One group of NCCL. Also between calls.
  Status launch(Communicator& communicator, std::span<const Step> steps);

 private:
  void choose_part();
  [[nodiscard]] size_t part_size(std::span<const backend::Segment> left) const;
  [[nodiscard]] size_t most_for_adasum() const;
  ResultCode issue(CommHandle comm, const Step& step);

  std::shared_ptr<const Library> library_;
  std::shared_ptr<cuda::Devices> devices_;
  std::unique_ptr<backend::Gpu> gpu_;
  std::unique_ptr<Adasum> adasum_;        // once it is used
  std::shared_ptr<cuda::Event> reduced_;  // my share of the sums of my host is there

  backend::Call call_;
  Communicator* communicator_ = nullptr;
  const Levels* levels_ = nullptr;
  size_t adasum_bytes_ = 0;
  backend::Call part_;       // the call with fewer segments
  size_t parts_done_ = 0;    // segments of the parts before it
  size_t part_entries_ = 0;  // at most
  Scaling scaling_;
};

}  // namespace rueda::nccl
