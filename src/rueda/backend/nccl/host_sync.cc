#include "rueda/backend/nccl/host_sync.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "rueda/base/check.h"

namespace rueda::nccl {
namespace {

template <size_t kBytes>
void set_text(char (&to)[kBytes], std::string_view text) {
  const size_t bytes = std::min(text.size(), kBytes - 1);
  std::memcpy(to, text.data(), bytes);
  std::memset(to + bytes, 0, kBytes - bytes);
}

template <size_t kBytes>
std::string_view text_of(const char (&from)[kBytes]) {
  return {from, strnlen(from, kBytes)};
}

schedule::Spec barrier() {
  return {.what = Collective::kBarrier, .counts = {}, .scale = {}, .segment_counts = {}};
}

std::string rank_text(const Group& group, size_t member) {
  return "rank " + std::to_string(group.members[member]);
}

}  // namespace

void MemberInfo::set_gpu(std::string_view text) { set_text(gpu, text); }
void MemberInfo::set_why_not(std::string_view text) { set_text(why_not, text); }

std::string refusal_of(const Group& group, std::span<const MemberInfo> members) {
  std::map<std::string_view, size_t> owners;  // the first member with each GPU
  for (size_t member = 0; member < members.size(); ++member) {
    if (const std::string_view why = text_of(members[member].why_not); !why.empty())
      return rank_text(group, member) + " cannot use NCCL: " + std::string(why);
    const std::string_view gpu = text_of(members[member].gpu);
    if (gpu.empty()) continue;
    const auto [owner, is_new] = owners.try_emplace(gpu, member);
    if (!is_new)
      return rank_text(group, owner->second) + " and " + rank_text(group, member) +
             " use the same GPU, which NCCL refuses; give each rank a GPU of its own.";
  }
  return {};
}

size_t pack_bytes_of(std::span<const MemberInfo> members) {
  const auto least = std::ranges::min_element(members, {}, &MemberInfo::pack_bytes);
  return static_cast<size_t>(std::max<int64_t>(least->pack_bytes, 0));
}

backend::Call HostSync::open(const Group& group, schedule::Spec spec, bool is_for_call) {
  RUEDA_CHECK(open_ == 0 && !ended_, "host syncs run one after the other");
  is_for_call_ = is_for_call;
  event_.reset();
  open_ = next_++;
  return {.id = open_, .order = order_++, .group = &group, .spec = std::move(spec)};
}

void HostSync::begin_for(const backend::Call& call) {
  backend::Call sync = open(*call.group, barrier(), true);
  sync.may_be_cancelled = call.may_be_cancelled;
  sync.generation = call.generation;
  host_->start(sync);
}

void HostSync::discard(const backend::Call& call, std::span<const int32_t> arrivals) {
  backend::Call sync = open(*call.group, barrier(), true);
  sync.may_be_cancelled = true;
  sync.generation = call.generation;
  host_->cancellation()->discard(sync, arrivals);
}

void HostSync::begin_for(const Group& group, const MemberInfo& mine) {
  const auto members = static_cast<size_t>(group.size());
  mine_ = mine;
  member_infos_.assign(members, {});
  counts_.assign(members, static_cast<int64_t>(sizeof(mine_)));
  backend::Call sync = open(group,
                            {.what = Collective::kAllgather,
                             .dtype = DType::kUint8,
                             .counts = counts_,
                             .scale = {},
                             .segment_counts = {}},
                            false);
  if (members == 1) {
    member_infos_.front() = mine_;
    open_ = 0;
    ended_ = Status::ok();
    return;
  }
  RUEDA_CHECK(host_ != nullptr, "members need a way to meet");
  segment_ = {.input = &mine_,
              .output = member_infos_.data(),
              .count = static_cast<int64_t>(sizeof(mine_)),
              .counts = counts_,
              .memory = {}};
  sync.segments = std::span(&segment_, 1);
  host_->start(sync);
}

void HostSync::begin_for(const Group& between, const schedule::Spec& spec, const backend::Segment& segment) {
  segment_ = segment;
  backend::Call sync = open(between, spec, false);
  sync.segments = std::span(&segment_, 1);
  host_->start(sync);
}

bool HostSync::hand_over(const backend::Call& call) {
  if (!can_run(*call.group, call.spec)) return false;
  backend::Call theirs = call;
  theirs.id = next_++;
  theirs.order = order_++;
  theirs.may_be_cancelled = false;  // all members have come
  handed_over_[theirs.id] = call.id;
  host_->start(theirs);
  return true;
}

bool HostSync::progress(std::vector<backend::Done>& done) {
  if (host_ == nullptr || host_->is_idle()) return false;
  const bool moved = host_->progress(done_);
  for (backend::Done& each : std::exchange(done_, {})) {
    if (each.id == open_) {
      open_ = 0;
      ended_ = std::move(each.status);
      event_ = std::move(each.event);
      continue;
    }
    const auto owner = handed_over_.extract(each.id);
    RUEDA_CHECK(!owner.empty(), "a backend finished a call that was not running");
    each.id = owner.mapped();
    done.push_back(std::move(each));
  }
  return moved;
}

std::vector<int32_t> HostSync::pause() {
  return open_ != 0 && is_for_call_ ? host_->cancellation()->pause(open_) : std::vector<int32_t>();
}

void HostSync::resume() {
  if (open_ != 0 && is_for_call_) host_->cancellation()->resume(open_);
}

void HostSync::cancel(std::span<const int32_t> arrivals) {
  RUEDA_CHECK(is_for_call_, "a call is cancelled before all members have come");
  if (open_ != 0) host_->cancellation()->cancel(open_, arrivals);
}

}  // namespace rueda::nccl
