// The part of the backend that reduces hierarchically.
#include <utility>

#include "rueda/backend/nccl/nccl.h"
#include "rueda/base/log.h"

namespace rueda::backend {

// Those of the call, if it is to be reduced hierarchically; otherwise null. The same on every member.
const nccl::Levels* NcclBackend::levels() {
  if (!options_.topology || call_.spec.what != Collective::kAllreduce || is_adasum()) return nullptr;
  const Group& group = *call_.group;
  const auto [found, is_new] = levels_.try_emplace(key_of(group));
  if (is_new) {
    nccl::LevelsOrReason made = nccl::levels_of(group, options_.topology(group));
    found->second = std::move(made.levels);
    if (group.me == 0 && !made.why_not.empty())
      RUEDA_LOG(kWarning, "NCCL reduces " + nccl::describe(group) + " on one level: " + made.why_not);
  }
  const bool is_used = found->second && meetings_.can_run(found->second->between, call_.spec);
  return is_used ? &*found->second : nullptr;
}

// NCCL has enqueued what reduces a part inside my host. Members at one place of their hosts have equal
// shares.
Status NcclBackend::reduce_between() {
  const Run& run = gpu_->packing().runs().front();
  const nccl::Share mine = nccl::share_of(run.count, by_levels_->inside.me, by_levels_->inside.size());
  if (mine.count == 0) return gather();
  Result<std::shared_ptr<cuda::Event>> reduced = gpu_->record();
  if (!reduced.is_ok()) return reduced.status();
  reduced_ = std::move(reduced).value();
  schedule::Spec spec = call_.spec;  // scaled before and after, not here
  spec.count = mine.count;
  spec.scale = {};
  std::byte* const share = run.output + static_cast<size_t>(mine.begin) * size_of(spec.dtype);
  state_ = State::kBetween;
  meetings_.begin_for(
      by_levels_->between, spec,
      {.input = share,
       .output = share,
       .count = mine.count,
       .memory = {
           .kind = MemoryKind::kDevice, .device = gpu_->device()->ordinal(), .ready = reduced_->handle()}});
  return Status::ok();
}

// The shares have been added between hosts, or are about to be written when an event happens.
Status NcclBackend::gather() {
  const cuda::ScopedContext context(*gpu_->device());
  if (!context.status().is_ok()) return context.status();
  if (state_ == State::kBetween && meetings_.event() != nullptr)
    if (const Status waits = meetings_.event()->make_stream_wait(gpu_->stream().handle()); !waits.is_ok())
      return waits;
  state_ = State::kLaunching;
  is_gathering_ = true;
  const Group& inside = by_levels_->inside;
  return launch(
      nccl::gathering_steps_of(call_.spec, gpu_->packing().runs().front(), inside.me, inside.size()));
}

}  // namespace rueda::backend
