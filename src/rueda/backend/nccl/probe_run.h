// Makes the calls of a probe (probe.h), one after the other, and times them. Engine thread only, with the
// device's context current.
#pragma once

#include <cstddef>
#include <memory>

#include "rueda/backend/gpu.h"
#include "rueda/backend/nccl/lowering.h"
#include "rueda/backend/nccl/probe.h"

namespace rueda::nccl {

class ProbeRun {
 public:
  [[nodiscard]] bool has_next() const { return probe_.next().has_value(); }
  // The next call, on this memory: whatever is there is reduced. It is launched at once.
  Step begin(std::byte* memory);
  // NCCL has enqueued that call. Whether it has ended, or is given up.
  Result<bool> has_ended(backend::Gpu& gpu);
  // As Probe::bucket_bytes(). says_so: this member writes it to its log.
  [[nodiscard]] int64_t bucket_bytes(int64_t most, bool says_so) const;

 private:
  static constexpr Nanos kTime = 10 * kSecond;  // how long all calls of a probe are waited for

  Probe probe_;
  Deadline deadline_ = Deadline::after(kTime);
  Nanos began_ = 0;
  std::shared_ptr<cuda::Event> event_;  // after the call; null: NCCL has not enqueued it
};

}  // namespace rueda::nccl
