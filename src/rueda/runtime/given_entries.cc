#include "rueda/runtime/given_entries.h"

namespace rueda::runtime {

Status GivenEntries::take(Rank lowest, const std::string& batch) {
  Result<store::Entries> entries = store::decode_entries(batch);
  if (!entries.is_ok() || entries.value().begin()->first != lowest)
    return {Code::kPermissionDenied, "what the store has under '" + key(lowest) +
                                         "' cannot be read by this release: all ranks must run the same "
                                         "release of rueda"};
  for (auto& [rank, value] : entries.value()) {
    lowest_[rank] = lowest;
    known_[rank] = std::move(value);
  }
  return Status::ok();
}

Result<std::string> GivenEntries::read(Rank lowest, Deadline deadline) {
  const Result<std::string> batch = store_.try_get(key(lowest), deadline);
  if (!batch.is_ok()) return batch;
  if (Status taken = take(lowest, batch.value()); !taken.is_ok()) return taken;
  return known_.at(lowest);
}

void GivenEntries::look_again(Nanos slice) {
  const std::map<Rank, Rank> known = lowest_;
  for (const auto& [rank, lowest] : known)
    if (lowest != rank) static_cast<void>(read(rank, Deadline::after(slice)));
}

Result<std::string> GivenEntries::newest(Rank rank, Deadline deadline) {
  if (Result<std::string> alone = read(rank, deadline); alone.is_ok()) return alone;
  for (Rank lower = 0; lower < rank && !has(rank) && !deadline.is_past(); ++lower)
    if (!has(lower)) static_cast<void>(read(lower, deadline));
  if (!has(rank))
    return Status(Code::kUnavailable, "rank " + std::to_string(rank) + " has given no entry yet");
  if (const auto again = read(lowest_.at(rank), deadline); !again.is_ok()) return again;
  return known_.at(rank);
}

std::vector<Rank> GivenEntries::missing(size_t at_most, Rank end, Nanos slice) {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < end && ranks.size() < at_most; ++rank)
    if (!has(rank) && !read(rank, Deadline::after(slice)).is_ok()) ranks.push_back(rank);
  return ranks;
}

}  // namespace rueda::runtime
