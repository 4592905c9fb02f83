#include "rueda/control/respond.h"

#include <algorithm>

#include "rueda/base/check.h"

namespace rueda::control {
namespace {

// A sentence that names thousands of tensors must still fit into a message.
constexpr size_t kMaxErrorBytes = 16'384;

// One tensor may claim almost 2^63 bytes, so sums over ranks could overflow.
int64_t saturating_product(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

int64_t saturating_sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

int64_t slice_bytes(const TensorRequest& request, size_t first_dim) {
  auto bytes = static_cast<int64_t>(size_of(request.dtype));
  for (size_t dim = first_dim; dim < request.shape.size(); ++dim)
    bytes = saturating_product(bytes, request.shape[dim]);
  return bytes;
}

void fill_allgather(const CompleteTensor& tensor, Candidate& candidate) {
  std::vector<int64_t> rows;
  rows.reserve(tensor.submissions.size());
  int64_t total = 0;
  for (const Submission& one : tensor.submissions) {
    rows.push_back(one.request.shape[0]);
    total = saturating_sum(total, one.request.shape[0]);
  }
  candidate.bucket.entries[0].rows = std::move(rows);
  candidate.bytes = saturating_product(total, slice_bytes(tensor.submissions[0].request, 1));
}

void fill_alltoall(const CompleteTensor& tensor, Candidate& candidate) {
  const size_t n = tensor.members.size();
  std::vector<int64_t> rows;  // [src * n + dst]
  rows.reserve(n * n);
  for (const Submission& one : tensor.submissions) {
    const std::vector<int32_t>& splits = one.request.splits;
    if (splits.empty()) {
      rows.insert(rows.end(), n, one.request.shape[0] / static_cast<int64_t>(n));
    } else {
      rows.insert(rows.end(), splits.begin(), splits.end());
    }
  }
  candidate.bucket.entries[0].rows = std::move(rows);
}

void fill_reducescatter(const CompleteTensor& tensor, Candidate& candidate) {
  const auto n = static_cast<Rank>(tensor.members.size());
  const int64_t total = tensor.submissions[0].request.shape[0];
  std::vector<int64_t> rows;
  for (Rank r = 0; r < n; ++r) rows.push_back(reducescatter_rows(total, n, r));
  candidate.bucket.entries[0].rows = std::move(rows);
}

}  // namespace

Candidate make_candidate(const CompleteTensor& tensor) {
  const TensorRequest& first = tensor.submissions[0].request;
  Candidate candidate{.bucket = {}, .bytes = slice_bytes(first, 0), .priority = first.priority};
  Bucket& bucket = candidate.bucket;
  bucket.process_set = first.process_set;
  static_cast<Terms&>(bucket) = first;
  bucket.root = first.what == Collective::kBroadcast ? first.root : -1;
  bucket.joined = tensor.joined;
  candidate.shares_memory = std::ranges::any_of(
      tensor.submissions, [](const Submission& one) { return one.request.shares_memory; });
  bucket.entries.push_back(
      {.name = first.name, .shape = first.shape, .rows = {}, .numbered_at = first.numbered_at});
  const bool is_by_rows = first.what == Collective::kAllgather || first.what == Collective::kAlltoall ||
                          first.what == Collective::kReducescatter;
  RUEDA_CHECK(!is_by_rows || tensor.submissions.size() == tensor.members.size(),
              "only allreduces and barriers run without the ranks that joined");
  if (first.what == Collective::kAllgather) fill_allgather(tensor, candidate);
  if (first.what == Collective::kAlltoall) fill_alltoall(tensor, candidate);
  if (first.what == Collective::kReducescatter) fill_reducescatter(tensor, candidate);
  return candidate;
}

Failure make_failure(int32_t process_set, std::vector<FailedName> failed, const Status& why) {
  return {.process_set = process_set,
          .failed = std::move(failed),
          .code = why.code,
          .error = why.why.substr(0, kMaxErrorBytes)};
}

int64_t reducescatter_rows(int64_t rows, Rank n, Rank r) {
  RUEDA_CHECK(n > 0 && r >= 0 && r < n, "the rank must be one of the set");
  return rows / n + (r < rows % n ? 1 : 0);
}

}  // namespace rueda::control
