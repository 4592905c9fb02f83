#include "rueda/control/call_history.h"

#include <algorithm>
#include <utility>

#include "rueda/control/numbered_name.h"

namespace rueda::control {
namespace {

constexpr size_t kMostCalls = 1 << 13;   // that are remembered
constexpr size_t kMostKinds = 1 << 12;   // if there are more, nothing repeats
constexpr size_t kMostRows = 1 << 22;    // in them; an alltoall has as many as the square of the ranks
constexpr size_t kMostTried = 256;       // periods, for each call
constexpr size_t kMostOvertaking = 256;  // calls that one answer may overtake

}  // namespace

// Told apart by everything but the number, as bytes.
size_t CallHistory::kind_of(SeenTensor call) {
  Bucket bucket = call.bucket;
  Entry& entry = bucket.entries.front();
  if (const auto name = split_name(entry.name, entry.numbered_at)) {
    std::string key;
    name->put_key(key);
    entry.name = std::move(key);
    entry.numbered_at = 0;
  }
  const Response described = std::move(bucket);
  const Bytes bytes = encode(std::span(&described, 1));
  std::string key(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto [known, is_new] = known_.try_emplace(std::move(key), kinds_.size());
  if (is_new) {
    rows_ += call.entry().rows.size();
    kinds_.push_back(std::move(call));
  }
  return known->second;
}

void CallHistory::add(SeenTensor call) {
  if (kinds_.size() >= kMostKinds || rows_ >= kMostRows) clear();
  if (calls_.size() >= 2 * kMostCalls) calls_.erase(calls_.begin(), calls_.end() - kMostCalls);
  Call made{.number = call.number, .seen = call.seen, .started = call.started};
  made.kind = kind_of(std::move(call));
  auto at = calls_.end();
  for (size_t passed = 0; passed < kMostOvertaking && at != calls_.begin() && (at - 1)->number > made.number;
       ++passed)
    --at;
  calls_.insert(at, made);
}

void CallHistory::clear() {
  calls_.clear();
  kinds_.clear();
  known_.clear();
  rows_ = 0;
}

std::vector<SeenTensor> CallHistory::last(size_t calls) const {
  std::vector<SeenTensor> tensors;
  for (size_t at = calls_.size() - calls; at < calls_.size(); ++at) {
    const Call& call = calls_[at];
    SeenTensor& tensor = tensors.emplace_back(kinds_[call.kind]);
    Entry& entry = tensor.bucket.entries.front();
    if (const auto name = split_name(entry.name, entry.numbered_at)) entry.name = name->with(call.number);
    tensor.number = call.number;
    tensor.seen = call.seen;
    tensor.started = call.started;
  }
  return tensors;
}

std::optional<CallHistory::Period> CallHistory::period(int repeats) const {
  const size_t all = calls_.size();
  const auto times = static_cast<size_t>(repeats) + 1;
  size_t tried = 0;
  for (size_t calls = 1; calls <= all / times && tried < kMostTried; ++calls) {
    if (calls_[all - 1 - calls].kind != calls_[all - 1].kind) continue;
    ++tried;
    if (std::optional<Period> found = check(calls, calls * times)) return found;
  }
  return std::nullopt;
}

// Whether the last calls, so many, repeat with this period.
std::optional<CallHistory::Period> CallHistory::check(size_t calls, size_t window) const {
  const size_t all = calls_.size();
  const Period period{.calls = calls, .stride = calls_[all - 1].number - calls_[all - 1 - calls].number};
  if (period.stride < 1) return std::nullopt;
  for (size_t at = all - 1; at >= all - window + calls; --at) {
    const Call &call = calls_[at], &before = calls_[at - calls];
    const bool recurs = call.kind == before.kind && call.number - before.number == period.stride;
    if (!recurs || call.seen < before.started) return std::nullopt;
  }
  return period;
}

}  // namespace rueda::control
