#include "rueda/control/row_counts.h"

#include <algorithm>
#include <limits>
#include <string>

namespace rueda::control {
namespace {

// Of an allgather there is a number for each member, of an alltoall one for each pair of them.
size_t members_of(const Bucket& bucket, const Entry& entry) {
  if (bucket.what == Collective::kAllgather) return entry.rows.size();
  size_t n = 0;
  while ((n + 1) * (n + 1) <= entry.rows.size()) ++n;
  return n;
}

// How many numbers each member tells of one tensor.
size_t told_of_each(const Bucket& bucket, size_t members) {
  return bucket.what == Collective::kAllgather ? 1 : members;
}

// Of the result on one rank, and of what one rank gives: no more elements than a number can count in bytes.
bool is_possible(const Entry& entry, int64_t rows, int64_t element_bytes) {
  int64_t bytes = element_bytes;
  for (size_t dim = 1; dim < entry.shape.size(); ++dim)
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(entry.shape[dim], 1), &bytes)) return false;
  return !__builtin_mul_overflow(bytes, rows, &bytes);
}

}  // namespace

Status check_varying_rows(const Bucket& bucket) {
  const Entry& first = bucket.entries.front();
  const size_t members = members_of(bucket, first);
  const auto is_readable = [&](const Entry& entry) {
    return entry.rows_vary && !entry.shape.empty() && entry.rows.size() == first.rows.size();
  };
  if (may_have_varying_rows(bucket.what) && members > 0 && std::ranges::all_of(bucket.entries, is_readable) &&
      (bucket.what == Collective::kAllgather || members * members == first.rows.size()))
    return Status::ok();
  return {Code::kInternal, "A learned plan cannot tell the rows of tensor " + first.name + "."};
}

Terms row_count_terms() {
  Terms terms;
  terms.what = Collective::kAllgather;
  terms.dtype = DType::kInt64;
  return terms;
}

Bucket row_counts_before(const Bucket& bucket) {
  const size_t members = members_of(bucket, bucket.entries.front());
  const auto told = static_cast<int64_t>(bucket.entries.size() * told_of_each(bucket, members));
  Bucket counts;
  static_cast<Terms&>(counts) = row_count_terms();
  counts.process_set = bucket.process_set;
  counts.entries.push_back({.name = bucket.entries.front().name + " (rows)",
                            .shape = {told},
                            .rows = std::vector<int64_t>(members, told)});
  return counts;
}

void tell_rows(const TensorRequest& request, std::vector<int64_t>& told) {
  if (request.what == Collective::kAllgather)
    told.push_back(request.shape.front());
  else
    told.insert(told.end(), request.splits.begin(), request.splits.end());
}

Result<std::vector<std::vector<int64_t>>> rows_of(const Bucket& bucket, std::span<const int64_t> told) {
  const size_t members = members_of(bucket, bucket.entries.front());
  const size_t each = told_of_each(bucket, members);
  std::vector<std::vector<int64_t>> rows(bucket.entries.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const Entry& entry = bucket.entries[i];
    int64_t sum = 0;
    for (size_t member = 0; member < members; ++member) {
      const size_t from = (member * rows.size() + i) * each;
      for (const int64_t one : told.subspan(from, each)) {
        const bool is_count = one >= 0 && !__builtin_add_overflow(sum, one, &sum);
        if (!is_count || (each > 1 && one > std::numeric_limits<int32_t>::max()))
          return Status(Code::kInternal, "Tensor " + entry.name + " cannot have " + std::to_string(one) +
                                             " rows on one rank.");
        rows[i].push_back(one);
      }
    }
    if (!is_possible(entry, sum, static_cast<int64_t>(size_of(bucket.dtype))))
      return Status(Code::kInvalidArgument, "Tensor " + entry.name + " is too large with the " +
                                                std::to_string(sum) + " rows of all ranks.");
  }
  return rows;
}

}  // namespace rueda::control
