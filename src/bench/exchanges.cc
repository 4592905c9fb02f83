#include "bench/exchanges.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace rueda::bench {
namespace {

rueda_collective collective_of(Collective what) {
  switch (what) {
    case Collective::kAllgather:
      return RUEDA_ALLGATHER;
    case Collective::kBroadcast:
      return RUEDA_BROADCAST;
    case Collective::kAlltoall:
      return RUEDA_ALLTOALL;
    case Collective::kReducescatter:
      return RUEDA_REDUCESCATTER;
    default:
      return RUEDA_ALLREDUCE;
  }
}

int64_t output_count(const workload::Exchange& what, int rank, int ranks) {
  switch (what.what) {
    case Collective::kAllgather:
      return what.count * ranks;
    case Collective::kAlltoall:
      return workload::part_of(what.count, rank, ranks) * ranks;
    case Collective::kReducescatter:
      return workload::part_of(what.count, rank, ranks);
    default:
      return what.count;
  }
}

}  // namespace

Result<Exchanges> Exchanges::make(Rank& rank, const workload::Model& model, std::string_view memory) {
  Exchanges made(rank);
  for (const workload::Exchange& what : model.exchanges) {
    Result<Buffer> input = Buffer::make(rank.library(), memory, what.count);
    if (!input.is_ok()) return input.status();
    Result<Buffer> output =
        Buffer::make(rank.library(), memory, output_count(what, rank.rank(), rank.size()));
    if (!output.is_ok()) return output.status();
    std::vector<int32_t> splits;
    for (int to = 0; what.what == Collective::kAlltoall && to < rank.size(); ++to)
      splits.push_back(static_cast<int32_t>(workload::part_of(what.count, to, rank.size())));
    std::ranges::fill(input.value().values(), static_cast<float>(rank.rank() + 1));
    made.all_.push_back({.what = &what,
                         .name = "bench.exchange." + what.name,
                         .splits = std::move(splits),
                         .input = std::move(input).value(),
                         .output = std::move(output).value()});
  }
  return made;
}

Status Exchanges::begin(size_t index) {
  One& one = all_[index];
  const Result<int64_t> handle = rank_->submit({.what = collective_of(one.what->what),
                                                .name = one.name.c_str(),
                                                .count = one.what->count,
                                                .input = one.input.values().data(),
                                                .output = one.output.values().data(),
                                                .splits = one.splits});
  if (!handle.is_ok()) return handle.status();
  one.handle = handle.value();
  return Status::ok();
}

Result<bool> Exchanges::finish(size_t index) {
  One& one = all_[index];
  if (Status status = rank_->finish(std::exchange(one.handle, 0)); !status.is_ok()) return status;
  return is_right(one);
}

Result<bool> Exchanges::finish_all() {
  bool is_right = true;
  for (size_t index = 0; index < all_.size(); ++index) {
    if (all_[index].handle == 0) continue;
    const Result<bool> finished = finish(index);
    if (!finished.is_ok()) return finished.status();
    is_right &= finished.value();
  }
  return is_right;
}

// Each rank gives its number, from 1.
bool Exchanges::is_right(const One& one) const {
  const std::span<const float> result = one.output.values();
  const int ranks = rank_->size();
  if (result.empty()) return true;
  switch (one.what->what) {
    case Collective::kAllgather:
    case Collective::kAlltoall:
      return result.front() == 1 && result.back() == static_cast<float>(ranks);
    case Collective::kBroadcast:
      return result.front() == 1 && result.back() == 1;
    default: {
      const auto sum = static_cast<float>(ranks * (ranks + 1) / 2);
      return result.front() == sum && result.back() == sum;
    }
  }
}

}  // namespace rueda::bench
