#include "rueda/backend/device/peer_setup.h"

#include <algorithm>

#include "rueda/base/check.h"
#include "rueda/base/log.h"

namespace rueda::backend {
namespace {

// A smaller call passes through pinned memory: there it needs one host sync, here three.
// Two ranks that took turns on one H100 needed 1.2 ms for a call of any size up to 8 MiB, and 0.74, 1.4
// and 2.7 ms through host memory for 2, 4 and 8 MiB.
constexpr size_t kLargeBytes = 4 << 20;

std::string describe(const Group& group) {
  return group.id == 0 ? std::string("all ranks") : "process set " + std::to_string(group.id);
}

}  // namespace

bool PeerSetup::may_use_slots(const Call& call) const {
  const schedule::Spec& spec = call.spec;
  const bool is_sum = spec.what == Collective::kAllreduce && spec.op == ReduceOp::kSum &&
                      spec.dtype != DType::kBool;  // a sum of bools is an OR of bytes of any value
  if (!is_sum && spec.what != Collective::kBroadcast) return false;
  if (options_.use == PeerOptions::Use::kNever || spec.count == 0) return false;
  const size_t least = std::min(kLargeBytes, options_.section_bytes);
  const bool is_large = static_cast<size_t>(spec.count) * size_of(spec.dtype) >= least;
  return (is_large || options_.use == PeerOptions::Use::kAlways) &&
         static_cast<size_t>(call.group->size()) <= cuda::Kernels::kMostSummed &&
         options_.is_one_host(*call.group);
}

PeerSetup::Way PeerSetup::way_of(const Call& call) {
  if (!has_devices_ || call.group->size() < 2) return {};
  PeerMembers& members = members_[key_of(*call.group)];
  Way way{.uses_slots = may_use_slots(call), .must_set_up = false};
  if (call.may_be_cancelled) {  // members that never start it could not set up the process set
    way.uses_slots = way.uses_slots && members.has_tried;
    return way;
  }
  way.must_set_up = !members.has_met || (way.uses_slots && !members.has_tried);
  members.has_met = true;
  members.has_tried = members.has_tried || way.uses_slots;
  return way;
}

bool PeerSetup::is_settled(const Group& group, bool uses_slots) const {
  const auto found = members_.find(key_of(group));
  return !uses_slots || (found != members_.end() && found->second.is_tried);
}

StagingBuffers* PeerSetup::slots_of(const Group& group) {
  const PeerMembers& members = members_[key_of(group)];
  return members.is_tried && members.why_not.empty() ? window_.slots() : nullptr;
}

Status PeerSetup::refusal(const Group& group) const {
  const PeerMembers& members = members_.at(key_of(group));
  if (options_.use != PeerOptions::Use::kAlways || members.why_not.empty()) return Status::ok();
  return {Code::kUnsupported, "RUEDA_CUDA_IPC=on cannot be kept for " + describe(group) + ": " +
                                  members.why_not + " Set RUEDA_CUDA_IPC=auto to go through host memory."};
}

void PeerSetup::begin(const Call& call, bool uses_slots) {
  RUEDA_CHECK(state_ == State::kIdle, "members set up a process set between calls");
  at_ = call;
  group_ = *call.group;
  uses_slots_ = uses_slots;
  rows_.assign(group_.members.size(), {});
  window_.describe(rows_[static_cast<size_t>(group_.me)], call, uses_slots);
  meet(State::kSettingUp);
}

void PeerSetup::meet(State state) {
  state_ = state;
  all_rows_.assign(rows_.size(), {});
  const size_t bytes = rows_.size() * sizeof(PeerRow);
  segment_ = {.input = rows_.data(), .output = all_rows_.data(), .count = static_cast<int64_t>(bytes)};
  sync_.begin(at_, group_, sum_spec(DType::kUint8, bytes), {&segment_, 1});
}

void PeerSetup::go_on(const Status& met) {
  if (met.is_ok()) return state_ == State::kSettingUp ? finish_setup() : finish_mapping();
  PeerMembers& members = members_[key_of(group_)];
  members.is_met = members.is_tried = true;
  members.why_not = met.why;
  state_ = State::kIdle;
}

void PeerSetup::finish_setup() {
  PeerMembers& members = members_[key_of(group_)];
  members.is_met = true;
  const std::string shared = shared_gpu_of(group_, all_rows_);
  if (group_.me == 0 && options_.warns_of_shared_gpu && !shared.empty()) RUEDA_LOG_ONCE(kWarning, shared);
  state_ = State::kIdle;
  if (!uses_slots_) return;
  members.why_not = refusal_of(group_, all_rows_);
  if (members.why_not.empty()) return map_windows();
  finish_mapping();
}

void PeerSetup::map_windows() {
  PeerMembers& members = members_[key_of(group_)];
  members.section_bytes = section_bytes_of(all_rows_);
  members.windows.clear();
  members.window_bytes.clear();
  for (const PeerRow& row : all_rows_)
    members.window_bytes.push_back(PeerWindow::kSlots * static_cast<size_t>(row.slot_bytes));
  rows_.assign(all_rows_.size(), {});
  PeerRow& mine = rows_[static_cast<size_t>(group_.me)];
  for (size_t member = 0; member < all_rows_.size(); ++member) {
    const Rank rank = group_.members[member];
    if (member == static_cast<size_t>(group_.me)) {
      members.windows.push_back(window_.data());
      continue;
    }
    if (!mapped_.contains(rank)) {
      Result<cuda::MappedMemory> mapped =
          cuda::MappedMemory::open(window_.device(), all_rows_[member].window);
      if (!mapped.is_ok()) {
        mine.set_why_not("with rank " + std::to_string(rank) + ": " + mapped.status().why);
        break;
      }
      mapped_.emplace(rank, std::move(mapped).value());
    }
    members.windows.push_back(mapped_.at(rank).data());
  }
  meet(State::kMapping);
}

// Of all members the same: either all have mapped all windows, or none is used.
void PeerSetup::finish_mapping() {
  PeerMembers& members = members_[key_of(group_)];
  if (members.why_not.empty()) members.why_not = refusal_of(group_, all_rows_);
  members.is_tried = true;
  state_ = State::kIdle;
  if (members.why_not.empty() || group_.me != 0 || options_.use == PeerOptions::Use::kAlways) return;
  RUEDA_LOG_ONCE(kWarning, "GPU tensors of " + describe(group_) +
                               " pass through host memory, not from GPU to GPU, because memory of GPUs "
                               "cannot be mapped by " +
                               members.why_not + " RUEDA_CUDA_IPC=off silences this.");
}

}  // namespace rueda::backend
