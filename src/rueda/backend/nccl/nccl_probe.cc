// The part of the backend that measures the fabric, once, before the first call of the world (probe.h).
#include <algorithm>
#include <string>
#include <utility>

#include "rueda/backend/nccl/nccl.h"
#include "rueda/base/log.h"

namespace rueda::backend {
namespace {

constexpr Nanos kProbeTime = 10 * kSecond;  // how long all calls of a probe are waited for

}  // namespace

// The members have connected. All of them decide alike. A hierarchical job's buckets are those of its
// network, and a rank whose GPU is full cannot spare the memory.
Status NcclBackend::begin_probe() {
  const Group& group = *call_.group;
  const bool is_world = group.id == 0 && group.size() > 1;
  if (!is_world || options_.topology || communicator_->pack_bytes() < nccl::Probe::kLarge) return launch();
  probe_.emplace();
  deadline_ = Deadline::after(kProbeTime);
  return launch_probe();
}

// The next call of the probe, on the memory for packed tensors: whatever is there is reduced.
Status NcclBackend::launch_probe() {
  const std::optional<size_t> bytes = probe_->next();
  if (!bytes) return end_probe();
  const cuda::ScopedContext context(*gpu_->device());
  if (!context.status().is_ok()) return context.status();
  state_ = State::kProbing;
  at_work_->is_launching = true;
  probed_.reset();
  probe_began_ = monotonic_now();
  std::byte* const memory = gpu_->packing().memory();
  const nccl::Step step{.send = memory, .receive = memory, .count = *bytes / 4, .type = nccl::kFloat32};
  return launch(std::span(&step, 1));
}

// NCCL has enqueued that call. False: it has not ended.
Result<bool> NcclBackend::probe() {
  if (probed_ == nullptr) {
    const cuda::ScopedContext context(*gpu_->device());
    if (!context.status().is_ok()) return context.status();
    Result<std::shared_ptr<cuda::Event>> event = gpu_->record();
    if (!event.is_ok()) return event.status();
    probed_ = std::move(event).value();
  }
  const std::optional<Status> outcome = probed_->outcome();
  if (!outcome && !deadline_.is_past()) return false;
  if (outcome && !outcome->is_ok()) return *outcome;
  if (outcome)
    probe_->took(monotonic_now() - probe_began_);
  else
    probe_->give_up();
  const Status status = launch_probe();
  if (!status.is_ok()) return status;
  return true;
}

Status NcclBackend::end_probe() {
  bucket_bytes_ =
      probe_->bucket_bytes(static_cast<int64_t>(std::min(communicator_->pack_bytes(), options_.pack_bytes)));
  if (call_.group->me == 0 && bucket_bytes_ > 0)
    RUEDA_LOG(kInfo, "NCCL takes " + std::to_string(probe_->latency_us()) + " us for a call and " +
                         std::to_string(probe_->us_per_byte() * (1 << 20)) +
                         " us for each MiB, so learned plans fuse GPU tensors up to " +
                         std::to_string(bucket_bytes_ >> 10) + " KiB.");
  probe_.reset();
  probed_.reset();
  const cuda::ScopedContext context(*gpu_->device());
  if (!context.status().is_ok()) return context.status();
  const auto launched = gpu_->launched(*options_.devices, {});
  if (!launched.is_ok()) return launched.status();
  keep(launched.value());
  return launch();
}

}  // namespace rueda::backend
