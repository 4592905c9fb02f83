// How members tell one another which GPU they have, and map windows.

#include <algorithm>
#include <utility>

#include "rueda/backend/device/peer.h"
#include "rueda/base/check.h"
#include "rueda/base/log.h"

namespace rueda::backend {
namespace {

// One section comes, one is added, one leaves.
constexpr size_t kSlots = 3;
// A window with smaller slots is not worth its meetings.
constexpr size_t kLeastSectionBytes = 256 << 10;

std::string describe(const Group& group) {
  return group.id == 0 ? std::string("all ranks") : "process set " + std::to_string(group.id);
}

}  // namespace

Status PeerBackend::refusal(const Group& group) const {
  const Members& members = members_.at(key_of(group));
  if (options_.use != PeerOptions::Use::kAlways || members.why_not.empty()) return Status::ok();
  return {Code::kUnsupported, "RUEDA_CUDA_IPC=on cannot be kept for " + describe(group) + ": " +
                                  members.why_not + " Set RUEDA_CUDA_IPC=auto to go through host memory."};
}

void PeerBackend::introduce(const Call& call, bool uses_slots) {
  RUEDA_CHECK(state_ == State::kIdle, "members introduce themselves between calls");
  call_ = call;
  group_ = *call.group;
  uses_slots_ = uses_slots;
  rows_.assign(group_.members.size(), {});
  PeerRow& mine = rows_[static_cast<size_t>(group_.me)];
  fill(mine, uses_slots);
  meet_rows(State::kIntroducing);
}

void PeerBackend::fill(PeerRow& row, bool uses_slots) {
  if (device_ == nullptr) {
    const auto tensor =
        std::ranges::find_if(call_.segments, [](const Segment& one) { return one.memory.device >= 0; });
    Result<int32_t> ordinal(tensor != call_.segments.end() ? tensor->memory.device : -1);
    if (ordinal.value() < 0) {
      if (!uses_slots) return;  // it has joined, and has no GPU yet
      ordinal = cuda::usual_ordinal(devices_->driver(), options_.local_rank);
    }
    if (!ordinal.is_ok()) return row.set_why_not(ordinal.status().why);
    const auto device = devices_->get(ordinal.value());
    if (!device.is_ok()) return row.set_why_not(device.status().why);
    device_ = device.value();
  }
  row.set_gpu(device_->uuid(), device_->name());
  if (!uses_slots) return;
  if (slots_ == nullptr && why_no_window_.empty()) {
    const Status opened = open_gpu();
    why_no_window_ = opened.is_ok() ? make_window() : opened.why;
  }
  if (!why_no_window_.empty()) return row.set_why_not(why_no_window_);
  row.slot_bytes = static_cast<int64_t>(slot_bytes_);
  row.window = window_.handle();
}

Status PeerBackend::open_gpu() {
  auto stream = cuda::Stream::create(device_);
  if (!stream.is_ok()) return stream.status();
  auto kernels = cuda::Kernels::load(device_);
  if (!kernels.is_ok()) return kernels.status();
  stream_ = std::move(stream).value();
  kernels_ = std::move(kernels).value();
  events_ = std::make_unique<cuda::EventPool>(device_);
  return Status::ok();
}

// A device that is nearly full gives smaller slots. Returns why there is no window; empty: there is one.
std::string PeerBackend::make_window() {
  const size_t least = std::min(kLeastSectionBytes, options_.section_bytes);
  std::string why;
  for (size_t section = options_.section_bytes; section >= least; section /= 2) {
    slot_bytes_ = slot_bytes_for(section);
    Result<cuda::ExportedMemory> window = cuda::ExportedMemory::create(device_, kSlots * slot_bytes_);
    if (window.is_ok()) {
      window_ = std::move(window).value();
      slots_ = std::make_unique<StagingBuffers>(window_.data(), slot_bytes_, kSlots);
      return {};
    }
    why = window.status().why;
    if (window.status().code == Code::kUnsupported) break;  // memory of no size can be exported
  }
  return why;
}

void PeerBackend::meet_rows(State state) {
  all_rows_.assign(rows_.size(), {});
  const size_t bytes = rows_.size() * sizeof(PeerRow);
  segment_ = {.input = rows_.data(), .output = all_rows_.data(), .count = static_cast<int64_t>(bytes)};
  meet({&segment_, 1}, sum_spec(DType::kUint8, bytes), state);
}

void PeerBackend::finish_introduction() {
  Members& members = members_[key_of(group_)];
  members.is_met = true;
  const std::string shared = shared_gpu_of(group_, all_rows_);
  if (group_.me == 0 && options_.warns_of_shared_gpu && !shared.empty()) RUEDA_LOG_ONCE(kWarning, shared);
  state_ = State::kIdle;
  if (!uses_slots_) return;
  members.why_not = refusal_of(group_, all_rows_);
  if (members.why_not.empty()) return map_windows();
  finish_mapping();
}

void PeerBackend::map_windows() {
  Members& members = members_[key_of(group_)];
  members.section_bytes = section_bytes_of(all_rows_);
  members.windows.clear();
  members.window_bytes.clear();
  for (const PeerRow& row : all_rows_)
    members.window_bytes.push_back(kSlots * static_cast<size_t>(row.slot_bytes));
  rows_.assign(all_rows_.size(), {});
  PeerRow& mine = rows_[static_cast<size_t>(group_.me)];
  for (size_t member = 0; member < all_rows_.size(); ++member) {
    const Rank rank = group_.members[member];
    if (member == static_cast<size_t>(group_.me)) {
      members.windows.push_back(window_.data());
      continue;
    }
    if (!mapped_.contains(rank)) {
      Result<cuda::MappedMemory> mapped = cuda::MappedMemory::open(device_, all_rows_[member].window);
      if (!mapped.is_ok()) {
        mine.set_why_not("with rank " + std::to_string(rank) + ": " + mapped.status().why);
        break;
      }
      mapped_.emplace(rank, std::move(mapped).value());
    }
    members.windows.push_back(mapped_.at(rank).data());
  }
  meet_rows(State::kMapping);
}

// Of all members the same: either all have mapped all windows, or none is used.
void PeerBackend::finish_mapping() {
  Members& members = members_[key_of(group_)];
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
