// A table that all ranks fill, each with one entry. Ranks of a host may put theirs into the store together,
// as one value: a batch. Pure.
//
// A batch lies under the key of its lowest rank, and its ranks never change once it is there; an entry of it
// may be replaced, by another process that has become that rank. So whoever lacks a rank finds it by asking
// for the lowest rank that it lacks, again and again.
//
// Example: ranks 0, 2 and 3 of a host come together, and rank 1 of another host alone. The keys are "t/rank0"
// with {0, 2, 3} and "t/rank1" with {1}. A reader asks for rank 0 and has 0, 2 and 3; then for rank 1.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "rueda/base/limits.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"

namespace rueda::store {

using Entries = std::map<Rank, std::string>;

// Of a batch of several ranks: what a compare-and-set needs has room for two of them.
inline constexpr size_t kMaxBatchBytes = kMaxStoreValueBytes / 4;

std::string entries_key(std::string_view table, Rank lowest);
std::string encode_entries(const Entries& entries);
Result<Entries> decode_entries(std::string_view text);
// How many of these entries fit into one batch, from the lowest rank on; at least one.
size_t entries_of_batch(const Entries& entries);

// What is to be done where a batch is to be written, and another one is there already.
struct BatchMerge {
  Entries there;              // what is to stand there instead
  bool is_different = false;  // from what is there
  Entries elsewhere = {};     // of mine, not in that batch: they need another key
};
// Fails if what is there is no batch of this key.
Result<BatchMerge> merge_batch(std::string_view there, Rank lowest, const Entries& mine);

}  // namespace rueda::store
