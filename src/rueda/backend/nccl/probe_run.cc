#include "rueda/backend/nccl/probe_run.h"

#include <optional>
#include <string>
#include <utility>

#include "rueda/base/log.h"

namespace rueda::nccl {

Step ProbeRun::begin(std::byte* memory) {
  event_.reset();
  began_ = monotonic_now();
  return {.send = memory, .receive = memory, .count = *probe_.next() / 4, .type = kFloat32};
}

Result<bool> ProbeRun::has_ended(backend::Gpu& gpu) {
  if (event_ == nullptr) {
    Result<std::shared_ptr<cuda::Event>> event = gpu.record();
    if (!event.is_ok()) return event.status();
    event_ = std::move(event).value();
  }
  const std::optional<Status> outcome = event_->outcome();
  if (!outcome && !deadline_.is_past()) return false;
  if (outcome && !outcome->is_ok()) return *outcome;
  if (outcome)
    probe_.took(monotonic_now() - began_);
  else
    probe_.give_up();
  return true;
}

int64_t ProbeRun::bucket_bytes(int64_t most, bool says_so) const {
  const int64_t bytes = probe_.bucket_bytes(most);
  if (says_so && bytes > 0)
    RUEDA_LOG(kInfo, "NCCL takes " + std::to_string(probe_.latency_us()) + " us for a call and " +
                         std::to_string(probe_.us_per_byte() * (1 << 20)) +
                         " us for each MiB, so learned plans fuse GPU tensors up to " +
                         std::to_string(bytes >> 10) + " KiB.");
  return bytes;
}

}  // namespace rueda::nccl
