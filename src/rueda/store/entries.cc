#include "rueda/store/entries.h"

#include <span>
#include <utility>

#include "rueda/base/bytes.h"
#include "rueda/store/messages.h"

namespace rueda::store {
namespace {

constexpr size_t kEntryHeaderBytes = sizeof(Rank) + sizeof(uint32_t);

}  // namespace

std::string entries_key(std::string_view table, Rank lowest) {
  return std::string(table) + "rank" + std::to_string(lowest);
}

std::string encode_entries(const Entries& entries) {
  ByteWriter out;
  out.put(static_cast<uint32_t>(entries.size()));
  for (const auto& [rank, value] : entries) {
    out.put(rank);
    out.put_string(value);
  }
  return {reinterpret_cast<const char*>(out.bytes().data()), out.bytes().size()};
}

Result<Entries> decode_entries(std::string_view text) {
  ByteReader in(std::as_bytes(std::span(text)));
  Entries entries;
  Rank last = -1;
  for (auto count = in.get<uint32_t>(); count > 0 && in.is_ok(); --count) {
    const auto rank = in.get<Rank>();
    if (rank <= last || rank >= kMaxRanks) in.fail();
    entries.emplace_hint(entries.end(), rank, in.get_string(kMaxStoreValueBytes));
    last = rank;
  }
  if (!in.is_ok() || !in.is_at_end() || entries.empty()) return malformed_message();
  return entries;
}

size_t entries_of_batch(const Entries& entries) {
  size_t count = 0, bytes = sizeof(uint32_t);
  for (const auto& [rank, value] : entries) {
    bytes += kEntryHeaderBytes + value.size();
    if (count > 0 && bytes > kMaxBatchBytes) break;
    ++count;
  }
  return count;
}

Result<BatchMerge> merge_batch(std::string_view there, Rank lowest, const Entries& mine) {
  Result<Entries> batch = decode_entries(there);
  if (!batch.is_ok()) return batch.status();
  if (batch.value().begin()->first != lowest) return malformed_message();
  BatchMerge merge{.there = std::move(batch).value()};
  for (const auto& [rank, value] : mine) {
    const auto at = merge.there.find(rank);
    if (at == merge.there.end()) {
      merge.elsewhere.emplace(rank, value);
    } else if (at->second != value) {
      at->second = value;
      merge.is_different = true;
    }
  }
  return merge;
}

}  // namespace rueda::store
